"""The recipes by name, and how a problem's knowledge becomes their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from bandits_torch import validation
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.problem import Problem
from bandits_torch.recipes import adaptive, averaging, index_policies, sketched, unknown_prior

# One line a recipe, in the order of the README.
_RECIPES: tuple[Callable[..., Policy], ...] = (
    averaging.auto,
    index_policies.random,
    index_policies.gp_ucb,
    index_policies.igp_ucb,
    index_policies.gp_ts,
    index_policies.gp_ei,
    index_policies.gp_pi,
    index_policies.r_gp_ucb,
    index_policies.sw_gp_ucb,
    index_policies.tv_gp_ucb,
    index_policies.ui_gp_ucb,
    index_policies.et_gp_ucb,
    sketched.bkb,
    sketched.bbkb,
    unknown_prior.pe_gp_ucb,
    unknown_prior.mle_gp_ucb,
    unknown_prior.bayes_gp_ucb,
    unknown_prior.regret_balancing,
    unknown_prior.known_prior_gp_ucb,
    adaptive.opkb,
    adaptive.ada_opkb,
    adaptive.ada_opkb_calibrated,
    adaptive.opnn,
    adaptive.ada_opnn,
    adaptive.master_gp_ucb,
    adaptive.w_gp_ucb,
)
RECIPES: dict[str, Callable[..., Policy]] = {recipe.__name__: recipe for recipe in _RECIPES}
_PRIOR_OPTIONS = {
    "replicates": 1,
    "prior_mean": 0.0,
    "form": "auto",
    "noise_variance": None,
    "search": None,
    "learn_hyperparameters": False,
}


def build(
    name: str, problem: Problem, *, replicates: int, horizon: int, seed: int = 0, **options: Any
) -> Policy:
    """The recipe ``name`` for a problem: what an honest user knows of it fills what ``options`` leave open.

    Raises ValueError on an unknown name or option, listing those there are.

    ``replicates``: S; ``horizon``: T, the steps it is planned for; ``seed``: of the policy's random numbers.
    """
    accepted = options_of(name)
    validation.instance("problem", problem, Problem, "a Problem")
    validation.positive_integer("horizon", horizon)
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        raise ValueError(f"options of {name} must be among {', '.join(accepted)}, got {', '.join(unknown)}")
    known = vars(problem.knowledge) | {"replicates": replicates, "horizon": horizon, "seed": seed} | options
    noise_variance, belief = known.pop("noise_variance"), _belief(name, problem)
    wanted = {key: value for key, value in known.items() if key in accepted}
    choices = problem.domain if isinstance(problem, ContinuousProblem) else problem.arms
    return RECIPES[name](choices, belief, noise_variance, **wanted)


def options_of(name: str) -> dict[str, Any]:
    """The keyword settings of a recipe with their defaults.

    Raises ValueError for an unknown name.
    """
    known = isinstance(name, str) and name in RECIPES
    validation.require(known, "policy name", name, f"one of {', '.join(RECIPES)}")
    parameters = inspect.signature(RECIPES[name]).parameters.values()
    own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    passes_on = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if RECIPES[name] is index_policies.random:  # knows of no model
        return own
    return own | (_PRIOR_OPTIONS if passes_on else {"noise_variance": None})


def _belief(name: str, problem: Problem) -> Any:
    """What a recipe takes beside the arms, by the name of its second argument: kernel, priors or the true prior."""
    kind = list(inspect.signature(RECIPES[name]).parameters)[1]
    knowledge = problem.knowledge
    belief = {"kernel": knowledge.kernel, "priors": knowledge.priors, "prior": problem.true_prior}[kind]
    if belief is None:
        raise ValueError(
            f"policy {name} must have a problem with candidate priors, such as hills or "
            f"intel-temperature-priors, got {type(problem).__name__}, which has none"
        )
    return belief
