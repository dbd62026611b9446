"""Every recipe there is, on a small problem it can play: new ones are covered without a line here."""

import inspect

from bandits_torch import recipes
from bandits_torch.problems import make

# Settings that make things happen within a few dozen steps: restarts, windows, dictionaries, networks that are quick.
QUICK = {
    "r_gp_ucb": {"interval": 7},
    "sw_gp_ucb": {"window": 9},
    "tv_gp_ucb": {"forgetting_rate": 0.1},
    "et_gp_ucb": {"delta": 0.5},
    "opnn": {"hidden": 16, "training_steps": 5},
    "ada_opnn": {"hidden": 16, "training_steps": 5},
    "master_gp_ucb": {"rkhs_bound": 4.0},  # its rho is one for all replicates, so they must agree in B
}


def build(name, replicates, horizon, *, first=0, num_arms=12, seed=3):
    """(policy, problem): replicates ``first``, first + 1, ... of the recipe on functions that switch, or on hills."""
    kind = list(inspect.signature(recipes.RECIPES[name]).parameters)[1]
    common = {"replicates": replicates, "seed": seed}
    if kind == "kernel":
        problem = make(
            "switching", horizon=max(horizon, 4), num_arms=num_arms, first_replicate=first, **common
        )
    else:
        problem = make("hills", num_arms=21, first_replicate=first, **common)
    options = dict(QUICK.get(name, {}))
    if "first_replicate" in recipes.options_of(name):
        options["first_replicate"] = first
    return recipes.build(name, problem, replicates=replicates, horizon=horizon, seed=seed, **options), problem


OVER_POINTS = ("gp_ei", "sw_gp_ucb", "tv_gp_ucb", "pe_gp_ucb")  # one for each kind of state there


def build_over_points(name, replicates, horizon):
    """(policy, problem) on a continuous domain."""
    problem = make("dynamic-levy", dim=2, horizon=horizon, replicates=replicates)
    search = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 5}}
    options = QUICK.get(name, {}) | {"search": search}
    return recipes.build(name, problem, replicates=replicates, horizon=horizon, seed=3, **options), problem
