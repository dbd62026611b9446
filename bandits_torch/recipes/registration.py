"""``Setup``, the arguments that recipes share; ``recipe``, which registers a recipe; and lookup by name."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, cast

from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import naming, validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.arms.inputs import features_of
from bandits_torch.models.candidate_priors import CandidatePrior
from bandits_torch.models.hyperparameters import ANISOTROPY
from bandits_torch.policies.learned_hyperparameters import LearnedHyperparameters
from bandits_torch.policies.policy import Origin, Policy
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.problem import Problem

Number = float | Tensor
Choices = Tensor | int | Domain  # features of arms, their number, or a domain of points


@validation.names_arguments
@dataclass(frozen=True, eq=False)
class Setup:
    """The arguments that recipes share: choices, prior knowledge of the rewards, and how the policy runs.

    Each recipe reads only the fields it needs. ``dataclasses.replace(setup, replicates=5)`` makes a changed copy.

    Args:
        choices: ``(N, d)`` features of arms, N, or a ``Domain`` of points.
        kernel: prior covariance over arms or points, without time; None for recipes without a prior.
        noise_variance: lambda, a number or (S,); None if unknown.
        prior_mean: prior mean reward, a number or (N,).
        priors: candidate priors (``CandidatePrior``), for recipes with an unknown prior.
        prior: the true prior among these, for the oracle.
        replicates: S, the number of runs advanced together.
        seed, first_replicate: seed of the policy's random numbers, and the number of its first replicate.
        form: ``"auto"``, ``"covariance"`` or ``"factor"``, the form of an ``ArmGP``.
        search: a ``PointSearch`` (or its arguments), the optimiser over a ``Domain``.
        learn_hyperparameters: True, or the arguments of ``LearnedHyperparameters``, to refit kernel, noise and mean. If
            some inputs matter far more than others, pass a larger ``anisotropy`` (see ``learnable``).
        grown_from: number of arms at the start, if more were added later (``AskTell.add_arms``). ``auto`` scales
            features and chooses its members by these arms alone. None: all arms.

    Raises ValueError for ``replicates`` below 1, a ``seed`` or ``first_replicate`` below 0, a ``search`` or
    ``learn_hyperparameters`` of another type, unknown arguments in these, a ``search`` over arms and a ``form`` over a
    ``Domain``. Recipes check the other fields.
    """

    choices: Choices
    kernel: Kernel | Tensor | None = None
    noise_variance: Number | None = None
    prior_mean: Number = 0.0
    priors: Sequence[CandidatePrior] | None = None
    prior: CandidatePrior | None = None
    replicates: int = 1
    seed: int = 0
    first_replicate: int = 0
    form: str = "auto"
    search: PointSearch | Mapping[str, Any] | None = None
    learn_hyperparameters: bool | Mapping[str, Any] = False
    grown_from: int | None = None

    def __post_init__(self) -> None:
        validation.positive_integer("replicates", self.replicates)
        validation.natural("seed", self.seed)
        validation.natural("first_replicate", self.first_replicate)
        if self.search is not None:
            expected = "a PointSearch, or its arguments"
            validation.instance("search", self.search, (PointSearch, Mapping), expected)
        expected = "True, False or the arguments of LearnedHyperparameters"
        validation.instance("learn_hyperparameters", self.learn_hyperparameters, (bool, Mapping), expected)
        for name, known in _ARGUMENTS.items():
            given = getattr(self, name)
            if isinstance(given, Mapping):
                validation.known_names(f"arguments of {name}", given, known)
        over_arms = self.domain is None
        expected = "None over arms: it searches a Domain"
        validation.require(self.search is None or not over_arms, "search", self.search, expected)
        expected = "'auto' over a Domain: it is the form of an ArmGP"
        validation.require(over_arms or self.form == "auto", "form", self.form, expected)

    @property
    def domain(self) -> Domain | None:
        """The domain whose points are played; None for arms."""
        return self.choices if isinstance(self.choices, Domain) else None

    @property
    def features(self) -> Tensor:
        """The features of the arms, (N, d) or (S, N, d); their indices if only their number is given."""
        return features_of(cast(Tensor | int, self.choices), None, None)

    def of_arms(self, at: Tensor) -> Setup:
        """The setup of the arms with the indices ``at`` (n,), in this order, or of those in a mask (N,)."""
        features, kernel, mean = self.features, self.kernel, self.prior_mean
        at = at.to(features.device)
        if isinstance(kernel, Tensor):
            kernel = kernel[..., at, :][..., at]
        if isinstance(mean, Tensor) and mean.dim() > 0 and mean.shape[-1] == features.shape[-2]:
            mean = mean[..., at]
        return replace(self, choices=features[..., at, :], kernel=kernel, prior_mean=mean)

    @property
    def seeds(self) -> dict[str, Any]:
        """``seed`` and ``first_replicate`` as keyword arguments of a policy."""
        return {"seed": self.seed, "first_replicate": self.first_replicate}

    @property
    def anisotropy(self) -> float:
        """The argument of ``learnable``."""
        given = self.learn_hyperparameters
        return given.get("anisotropy", ANISOTROPY) if isinstance(given, Mapping) else ANISOTROPY

    @property
    def point_search(self) -> PointSearch | None:
        """``search`` as a ``PointSearch``; None if it is None."""
        return PointSearch(**self.search) if isinstance(self.search, Mapping) else self.search


# The names that each field of a setup accepts if it is a mapping of arguments.
_ARGUMENTS = {
    "search": [*inspect.signature(PointSearch).parameters],
    "learn_hyperparameters": [*inspect.signature(LearnedHyperparameters).parameters, "anisotropy"][1:],
}
DEFAULTS: dict[str, Any] = {item.name: item.default for item in fields(Setup)}
_OF_SETUP = {*DEFAULTS, "device"}  # keywords of policies that a setup gives


RUN = ("replicates", "seed", "first_replicate")  # fields of a setup that every recipe takes
GP = (*RUN, "prior_mean", "form", "search", "learn_hyperparameters")
OWN_WIDTH_AND_CONSTANT: dict[str, dict[str, Any]] = {"": {}, " w=2": {"width": 2.0}}  # for ``Recipe.race``
_KNOWLEDGE = (
    *("horizon", "rkhs_bound", "forgetting_rate", "rkhs_variation_budget", "cycles"),
    *("context_dim", "context_kernel", "constraints", "safe_arms"),
)


@dataclass(frozen=True)
class Recipe:
    """The registration of a recipe, read by command line, documentation, universal tests and leaderboard.

    Attributes:
        name: the name of the function.
        call: the public function.
        belief: the field of ``Setup`` that holds its prior: ``"kernel"``, ``"priors"``, ``"prior"``, or None.
        optional: whether the belief may be left out.
        takes: the other fields of ``Setup`` that it reads.
        seeded: whether it draws random numbers over arms. If so, ``build`` passes a seed; over points it always does.
        points: whether it also accepts a ``Domain``.
        contexts: whether it plays arms under a context (``ArmContext``).
        one_mean: whether its ``prior_mean`` must be one number for all arms.
        scale_free: whether, without prior knowledge, rewards multiplied by a constant above 0 lead to the same choices.
        quick: arguments for cheap tests of a few dozen steps.
        race: arguments of its leaderboard entries, by the suffix of their names.
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
        """The first citation in its docstring: paper, with theorem or algorithm. Empty if there is none."""
        cited = re.search(r"\(([^()]*\b(?:19|20)\d\d\b[^()]*)\)", inspect.getdoc(self.call) or "")
        return "" if cited is None else " ".join(cited[1].split())

    @property
    def options(self) -> dict[str, Any]:
        """Its keywords with their defaults, and ``noise_variance`` (None) if it reads the noise."""
        parameters = inspect.signature(self.call).parameters.values()
        keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        takes_noise = self.belief is not None or "noise_variance" in self.takes
        return keywords | {"noise_variance": None} if takes_noise else keywords

    @property
    def uses(self) -> tuple[str, ...]:
        """Its belief, and those of its options that ``build`` can fill from a problem or a run."""
        belief, options = () if self.belief is None else (self.belief,), self.options
        return (*belief, *(key for key in ("noise_variance", "prior_mean", *_KNOWLEDGE) if key in options))


RECIPES: dict[str, Callable[..., Policy]] = {}  # by name
REGISTERED: dict[str, Recipe] = {}


def recipe(
    *, passes_to: Callable[..., Any] | None = None, **about: Any
) -> Callable[[Callable[..., Policy]], Callable[..., Policy]]:
    """A decorator that registers a function of a ``Setup``; ``about``: fields of ``Recipe``.

    ``passes_to``: a function or class to which the recipe passes its ``**options``. The recipe then also takes the
    keywords of that one, with their defaults, but for those that it has itself and those that a setup gives.

    The decorated function raises ValueError for arguments that the recipe does not take or lacks. The decorator raises
    ValueError for a name that is taken, a ``passes_to`` that cannot be called, unless ``takes`` is a tuple of fields of
    a ``Setup``, and unless all parameters after the setup are keywords alone, then ``**options`` if ``passes_to`` is
    given. The same function of the same module may be defined again; the new one replaces the old.
    """

    def register(function: Callable[..., Policy]) -> Callable[..., Policy]:
        entry = Recipe(name := function.__name__, function, **about)
        validation.instance("takes", entry.takes, tuple, "a tuple of fields of a Setup")
        validation.known_names("takes", entry.takes, DEFAULTS)
        parameters = [*inspect.signature(function).parameters.values()]
        keywords = parameters[1:]
        shown, expected = [*map(str, parameters)], "a setup, then keywords: (setup, *, ...)"
        if passes_to is not None:
            validation.function("passes_to", passes_to, "a function or class with keywords")
            passes = bool(keywords) and keywords.pop().kind is inspect.Parameter.VAR_KEYWORD
            validation.require(
                passes, f"parameters of {name}", shown, f"{expected}, and **options to pass on"
            )
            own, passed = {p.name for p in keywords} | _OF_SETUP, inspect.signature(passes_to).parameters
            keywords += [p for p in passed.values() if p.kind is p.KEYWORD_ONLY and p.name not in own]
        alone = bool(parameters) and all(p.kind is p.KEYWORD_ONLY for p in keywords)
        validation.require(alone, f"parameters of {name}", shown, expected)
        own_signature, signature = inspect.Signature(keywords), _signature(keywords, entry)

        def made(setup: Setup, options: dict[str, Any]) -> Policy:
            expected = f"features or their number: {name} does not play a Domain"
            validation.require(entry.points or setup.domain is None, "arms", setup.choices, expected)
            # Copies, because the caller may change them later, and added arms need them again.
            setup, options = replace(setup, **_own(vars(setup))), _own(options)
            policy = function(setup, **options)
            policy.origin = Origin(call, setup, options)
            return policy

        def bound(to: inspect.Signature, *arguments: Any, **options: Any) -> dict[str, Any]:
            try:
                return to.bind(*arguments, **options).arguments
            except TypeError as error:
                raise validation.ArgumentError(f"{name}: {error}") from None

        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Policy:
            if arguments and isinstance(arguments[0], Setup):
                setup, *more = arguments
                validation.require(not more, "arguments after the setup", more, "given by name")
                known = own_signature.parameters
                validation.known_names(f"arguments of {name} besides a setup", options, known)
                learns, learn = "learn_hyperparameters" in entry.takes, setup.learn_hyperparameters
                validation.require(learns or not learn, "learn_hyperparameters", learn, f"False for {name}")
                return made(setup, bound(own_signature, **options))
            validation.known_names(f"arguments of {name}", options, signature.parameters)
            given = bound(signature, *arguments, **options)
            fields = {key: given.pop(key) for key in list(given) if key in DEFAULTS}
            return made(Setup(given.pop("arms"), **fields), given)

        vars(call)["__signature__"] = signature
        naming.register("name of a recipe", replace(entry, call=call), call, REGISTERED, RECIPES)
        return call

    return register


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, tensors and kernels among them copied."""
    tensors = {name: value.detach().clone() for name, value in values.items() if isinstance(value, Tensor)}
    kernels = {name: copy.deepcopy(value) for name, value in values.items() if isinstance(value, Kernel)}
    return {**values, **tensors, **kernels}


def _signature(keywords: list[inspect.Parameter], entry: Recipe) -> inspect.Signature:
    """The public signature, ``(arms, belief, noise_variance, *, keywords, other fields of the setup)``."""
    fields_of_setup = inspect.signature(Setup).parameters
    arms = inspect.Parameter("arms", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Choices | Setup")
    positional = [arms, *(fields_of_setup[name] for name in (entry.belief or "kernel", "noise_variance"))]
    if entry.belief is not None and not entry.optional:  # without a default
        kinds = [str(one.annotation).removesuffix(" | None") for one in positional]
        positional = [
            p.replace(default=p.empty, annotation=kind) for p, kind in zip(positional, kinds, strict=True)
        ]
    common = [
        fields_of_setup[key].replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for key in DEFAULTS
        if key in entry.takes and key != "noise_variance"
    ]
    return inspect.Signature([*positional, *keywords, *common], return_annotation="Policy")


def registered(name: str) -> Recipe:
    """The ``Recipe`` of this name.

    ``name``: the name of a recipe or of an entry point in the group ``bandits_torch.recipes``, or ``module:function``.
    Raises ValueError for an unknown name.
    """
    entry: Recipe = naming.registered("recipes", "policy name", name, REGISTERED, RECIPES)
    return entry


def build(
    name: str, problem: Problem, *, replicates: int, horizon: int, seed: int = 0, **options: Any
) -> Policy:
    """Build the recipe ``name`` for a problem. Arguments not in ``options`` come from the problem's ``knowledge``.

    A recipe with one prior mean for all arms gets their average if the problem's differ, with a warning.
    ``replicates``: S; ``horizon``: T, the planned number of steps; ``seed``: of the policy's random numbers.

    Raises ValueError for an unknown name or option, and for a problem that the recipe cannot play.
    """
    entry = registered(name)
    accepted = entry.options
    validation.instance("problem", problem, Problem, "a Problem")
    validation.positive_integer("horizon", horizon)
    validation.natural("seed", seed)
    validation.known_names(f"options of {name}", options, accepted)
    run = {"replicates": replicates, "horizon": horizon, "prior": problem.true_prior}
    known = vars(problem.knowledge) | run
    known |= {"seed": seed} if entry.seeded or isinstance(problem, ContinuousProblem) else {}
    known |= options
    mean = known["prior_mean"]
    several = isinstance(mean, Tensor) and mean.numel() > 1
    if entry.one_mean and several and "prior_mean" not in options:
        known["prior_mean"] = average = float(mean.mean())
        if bool((mean != average).any()):
            message = f"{entry.name} has one prior_mean for all arms: it gets the average, {average:g}"
            warnings.warn(message, stacklevel=2)
    if problem.knowledge.context_dim and not entry.contexts:
        raise ValueError(
            f"policy {name} must be one that takes a context, such as cgp_ucb, tv_cgp_ucb or random, "
            "because the problem has a context at every step"
        )
    if entry.belief is not None and known[entry.belief] is None:
        raise ValueError(
            f"policy {entry.name} must have a problem with candidate priors, such as hills or "
            "intel-temperature-priors, got one that has none"
        )
    taken = {*accepted, entry.belief, "noise_variance"}
    wanted = {key: value for key, value in known.items() if key in taken}
    choices = problem.domain if isinstance(problem, ContinuousProblem) else problem.arms
    return entry.call(choices, **wanted)


def options_of(name: str) -> dict[str, Any]:
    """``Recipe.options`` of the recipe ``name``. Raises ValueError for an unknown name."""
    return registered(name).options
