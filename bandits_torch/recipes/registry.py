"""Find recipes by name, and build them with arguments from a problem's knowledge."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from bandits_torch import naming, validation
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

    ``name``: the name of a recipe or of an entry point in the group ``bandits_torch.recipes``, or ``module:function``.
    Raises ValueError for an unknown name.
    """
    if isinstance(name, str) and name not in RECIPES:
        found = naming.find("recipes", name)
        recipe = next((one for one in REGISTERED.values() if one.call is found), None)
        is_other = found is not None and recipe is None
        validation.require(not is_other, "policy name", name, "the name of a recipe (@recipe)")
        if recipe is not None:
            REGISTERED[name], RECIPES[name] = recipe, recipe.call
    if not isinstance(name, str) or name not in RECIPES:
        raise ValueError(unknown_name("policy name", name, RECIPES, "`bandits-torch list` shows all"))
    return REGISTERED[name]


def build(
    name: str, problem: Problem, *, replicates: int, horizon: int, seed: int = 0, **options: Any
) -> Policy:
    """Build the recipe ``name`` for a problem. Arguments not in ``options`` come from the problem's ``knowledge``.

    Raises ValueError for an unknown name or option, and lists the known ones. If a recipe takes a single prior mean for
    all arms and the problem has several, it gets their average, with a warning.

    ``replicates``: S; ``horizon``: T, the planned number of steps; ``seed``: of the policy's random numbers.
    """
    recipe = registered(name)
    accepted = recipe.options
    validation.instance("problem", problem, Problem, "a Problem")
    validation.positive_integer("horizon", horizon)
    validation.natural("seed", seed)
    validation.known_names(f"options of {name}", options, accepted)
    known = vars(problem.knowledge) | {
        "replicates": replicates,
        "horizon": horizon,
        "prior": problem.true_prior,
    }
    known |= {"seed": seed} if recipe.seeded or isinstance(problem, ContinuousProblem) else {}
    known |= options
    if "prior_mean" not in options:
        known["prior_mean"] = _prior_mean(recipe, known["prior_mean"])
    if problem.knowledge.context_dim and not recipe.contexts:
        raise ValueError(
            f"policy {name} must be one that takes a context, such as cgp_ucb, tv_cgp_ucb or random, "
            f"because {type(problem).__name__} has a context at every step"
        )
    if recipe.belief is not None and known[recipe.belief] is None:
        raise ValueError(
            f"policy {recipe.name} must have a problem with candidate priors, such as hills or "
            f"intel-temperature-priors, got {type(problem).__name__}, which has none"
        )
    wanted = {
        key: value for key, value in known.items() if key in {*accepted, recipe.belief, "noise_variance"}
    }
    choices = problem.domain if isinstance(problem, ContinuousProblem) else problem.arms
    return recipe.call(choices, **wanted)


def options_of(name: str) -> dict[str, Any]:
    """The keyword settings of a recipe with their defaults.

    Raises ValueError for an unknown name.
    """
    return registered(name).options


def _prior_mean(recipe: Recipe, prior_mean: float | Tensor) -> float | Tensor:
    """A problem's prior mean; its average, with a warning, if the recipe takes only one number."""
    if not recipe.one_mean or not isinstance(prior_mean, Tensor) or prior_mean.numel() == 1:
        return prior_mean
    average = float(prior_mean.mean())
    if bool((prior_mean != average).any()):
        warnings.warn(
            f"{recipe.name} has one prior_mean for all arms: it gets the average, {average:g}", stacklevel=3
        )
    return average
