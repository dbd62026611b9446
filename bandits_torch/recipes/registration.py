"""Registration of recipes, and their calling conventions.

A recipe is a function of a ``Setup`` and of its keywords. ``recipe`` registers it and returns the public function:
``name(setup, ...)``, or ``name(arms, kernel, noise_variance, ...)`` with the setup's fields among the keywords.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.policy import Origin, Policy
from bandits_torch.recipes.setup import DEFAULTS, Setup

RUN = ("replicates", "seed", "first_replicate")  # fields of a setup that every recipe takes
GP = (*RUN, "prior_mean", "form", "search", "learn_hyperparameters")
OWN_WIDTH_AND_CONSTANT: dict[str, dict[str, Any]] = {"": {}, " w=2": {"width": 2.0}}  # for ``Recipe.race``
_KNOWLEDGE = (
    *("horizon", "rkhs_bound", "forgetting_rate", "rkhs_variation_budget", "cycles"),
    *("context_dim", "context_kernel", "constraints", "safe_arms"),
)
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True)
class Recipe:
    """The registration of a recipe, read by command line, documentation, universal tests and leaderboard.

    Attributes:
        name: the name of the function.
        call: the public function.
        belief: its prior knowledge of the reward function, a field of ``Setup``: ``"kernel"``, ``"priors"``,
            ``"prior"`` (the true one), or None.
        optional: whether the belief may be left out.
        takes: the other fields of ``Setup`` that it reads.
        seeded: whether it draws random numbers over arms, so that ``build`` passes a seed (over points it always does).
        points: whether it also accepts a ``Domain``.
        contexts: whether it plays arms under a context (``ArmContext``).
        one_mean: whether its ``prior_mean`` must be one number for all arms.
        scale_free: whether rewards times a constant above 0 lead to the same choices, if nothing is known about them.
        quick: arguments for cheap tests of a few dozen steps.
        race: settings of its leaderboard entries, by suffix of the name; an empty mapping means the defaults.
    """

    name: str
    call: Callable[..., Policy]
    belief: str | None = "kernel"
    optional: bool = False
    takes: tuple[str, ...] = RUN
    seeded: bool = False
    points: bool = False
    contexts: bool = False
    one_mean: bool = False
    scale_free: bool = False
    quick: Mapping[str, Any] = field(default_factory=dict)
    race: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.call) or "").partition("\n")[0]

    @property
    def source(self) -> str:
        """The paper, with theorem or algorithm, as its docstring cites it; empty if there is none."""
        cited = re.search(r"\(([^()]*\b(?:19|20)\d\d\b[^()]*)\)", inspect.getdoc(self.call) or "")
        return "" if cited is None else " ".join(cited[1].split())

    @property
    def options(self) -> dict[str, Any]:
        """Its keywords with their defaults, and ``noise_variance``, which a problem may know."""
        parameters = inspect.signature(self.call).parameters.values()
        keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        takes_noise = self.belief is not None or "noise_variance" in self.takes
        return keywords | {"noise_variance": None} if takes_noise else keywords

    @property
    def uses(self) -> tuple[str, ...]:
        """What it uses of a problem's knowledge: belief, noise variance, prior mean, and what its keywords name."""
        belief, options = () if self.belief is None else (self.belief,), self.options
        return (*belief, *(key for key in ("noise_variance", "prior_mean", *_KNOWLEDGE) if key in options))


RECIPES: dict[str, Callable[..., Policy]] = {}  # by name
REGISTERED: dict[str, Recipe] = {}


def recipe(**about: Any) -> Callable[[Callable[..., Policy]], Callable[..., Policy]]:
    """Register a function of a ``Setup``; the keywords are those of ``Recipe``.

    The returned function raises ValueError for an argument that the recipe does not take, and names it.
    """

    def register(function: Callable[..., Policy]) -> Callable[..., Policy]:
        name = function.__name__
        takes, belief = about.get("takes", RUN), about.get("belief", "kernel")
        _, *keywords = inspect.signature(function).parameters.values()
        signature = _signature(keywords, takes, belief, about.get("optional", False))

        def made(setup: Setup, options: dict[str, Any]) -> Policy:
            fits = about.get("points", False) or setup.domain is None
            validation.require(fits, "arms", setup.choices, f"arms: {name} plays no points of a Domain")
            kernel = setup.kernel
            if not isinstance(kernel, Tensor):  # its owner may change it later
                setup = replace(setup, kernel=copy.deepcopy(kernel))
            policy = function(setup, **options)
            policy.origin = Origin(call, setup, options)
            return policy

        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Policy:
            if arguments and isinstance(arguments[0], Setup):
                setup, *more = arguments
                validation.require(not more, "arguments after the setup", more, "given by name")
                known = [p.name for p in keywords]
                validation.known_names(f"arguments of {name} besides a setup", options, known)
                learns, learn = "learn_hyperparameters" in takes, setup.learn_hyperparameters
                validation.require(learns or not learn, "learn_hyperparameters", learn, f"False for {name}")
                return made(setup, options)
            validation.known_names(f"arguments of {name}", options, signature.parameters)
            try:
                given = signature.bind(*arguments, **options).arguments
            except TypeError as error:
                raise validation.ArgumentError(f"{name}: {error}") from None
            fields = {key: given.pop(key) for key in list(given) if key in DEFAULTS}
            return made(Setup(given.pop("arms"), **fields), given)

        vars(call)["__signature__"] = signature
        validation.require(name not in REGISTERED, "name of a recipe", name, "new")
        REGISTERED[name] = Recipe(name, call, **about)
        RECIPES[name] = call
        return call

    return register


def _signature(
    keywords: list[inspect.Parameter], takes: tuple[str, ...], belief: str | None, optional: bool
) -> inspect.Signature:
    """``(arms, belief, noise_variance, *, keywords, fields of the setup)``."""
    annotations = inspect.signature(Setup).parameters
    is_needed = belief is not None and not optional
    needed = _EMPTY if is_needed else None
    believed = belief or "kernel"
    kinds = {key: str(annotations[key].annotation) for key in (believed, "noise_variance")}
    if is_needed:
        kinds = {key: kind.removesuffix(" | None") for key, kind in kinds.items()}
    first = (("arms", _EMPTY, "Choices | Setup"), *((key, needed, kind) for key, kind in kinds.items()))
    positional = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        for name, default, kind in first
    ]
    common = [
        annotations[key].replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for key in DEFAULTS
        if key in takes and key != "noise_variance"
    ]
    return inspect.Signature([*positional, *keywords, *common], return_annotation="Policy")
