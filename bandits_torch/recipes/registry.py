"""The recipes by name, and how a problem's knowledge becomes their arguments."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from bandits_torch import plugins, validation
from bandits_torch.naming import unknown_name
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.problem import Problem
from bandits_torch.recipes import (
    adaptive,
    averaging,
    classical,
    contextual,
    index_policies,
    safe,
    sketched,
    unknown_prior,
)
from bandits_torch.recipes.registration import RECIPES, REGISTERED, Recipe

# The package's recipes are listed in this order, and others after them.
_MODULES = (averaging, index_policies, safe, contextual, sketched, unknown_prior, adaptive, classical)
_PLACE = {module.__name__: place for place, module in enumerate(_MODULES)}
for _name in sorted(RECIPES, key=lambda name: _PLACE.get(RECIPES[name].__module__, len(_PLACE))):
    RECIPES[_name] = RECIPES.pop(_name)


def registered(name: str) -> Recipe:
    """The registration of a recipe: its source, what it uses of a problem, its options.

    ``name``: of a recipe, of an entry point of the group ``bandits_torch.recipes``, or ``module:function``. Raises
    ValueError for an unknown name.
    """
    if isinstance(name, str) and name not in RECIPES:
        found = plugins.find("recipes", name)
        about = next((one for one in REGISTERED.values() if one.call is found), None)
        validation.require(found is None or about is not None, "policy name", name, "of a recipe (@recipe)")
        if about is not None:
            REGISTERED[name], RECIPES[name] = about, about.call
    if not isinstance(name, str) or name not in RECIPES:
        raise ValueError(unknown_name("policy name", name, RECIPES, "`bandits-torch list` shows all"))
    return REGISTERED[name]


def build(
    name: str, problem: Problem, *, replicates: int, horizon: int, seed: int = 0, **options: Any
) -> Policy:
    """Build the recipe ``name`` for a problem: the problem's ``knowledge`` gives the arguments that ``options`` do not.

    Raises ValueError for an unknown name or option, and lists the known ones. A recipe with a single prior mean for all
    arms gets the average of the problem's, with a warning.

    ``replicates``: S; ``horizon``: T, the planned number of steps; ``seed``: of the policy's random numbers.
    """
    about = registered(name)
    accepted = about.options
    validation.instance("problem", problem, Problem, "a Problem")
    validation.positive_integer("horizon", horizon)
    validation.natural("seed", seed)
    validation.known_names(f"options of {name}", options, accepted)
    known = vars(problem.knowledge) | {
        "replicates": replicates,
        "horizon": horizon,
        "prior": problem.true_prior,
    }
    known |= {"seed": seed} if about.seeded or isinstance(problem, ContinuousProblem) else {}
    known |= options
    if "prior_mean" not in options:
        known["prior_mean"] = _prior_mean(about, known["prior_mean"])
    if problem.knowledge.context_dim and not about.contexts:
        raise ValueError(
            f"policy {name} must be one for arms under a context, such as cgp_ucb, tv_cgp_ucb or random: "
            f"{type(problem).__name__} has a context at every step, and {name} takes none"
        )
    if about.belief is not None and known[about.belief] is None:
        raise ValueError(
            f"policy {about.name} must have a problem with candidate priors, such as hills or "
            f"intel-temperature-priors, got {type(problem).__name__}, which has none"
        )
    wanted = {
        key: value for key, value in known.items() if key in {*accepted, about.belief, "noise_variance"}
    }
    choices = problem.domain if isinstance(problem, ContinuousProblem) else problem.arms
    return about.call(choices, **wanted)


def options_of(name: str) -> dict[str, Any]:
    """The keyword settings of a recipe with their defaults.

    Raises ValueError for an unknown name.
    """
    return registered(name).options


def _prior_mean(about: Recipe, prior_mean: float | Tensor) -> float | Tensor:
    """A problem's prior mean; its average, with a warning, if the recipe takes one number only."""
    if not about.one_mean or not isinstance(prior_mean, Tensor) or prior_mean.numel() == 1:
        return prior_mean
    average = float(prior_mean.mean())
    if bool((prior_mean != average).any()):
        warnings.warn(
            f"{about.name} has one prior_mean for all arms: it gets the average, {average:g}", stacklevel=3
        )
    return average
