"""Every recipe there is, on a small problem it can play: new ones are covered without a line here."""

import pytest

from bandits_torch import recipes
from bandits_torch.problems import make

KINDS = ("gp_ts", "tv_gp_ucb", "bbkb", "pe_gp_ucb", "master_gp_ucb", "ada_opkb", "auto")


def of_every_kind():
    """The recipes as parameters of a test of what they have in common: in its short form, one of each kind of state."""
    return [pytest.param(name, marks=() if name in KINDS else pytest.mark.long) for name in recipes.RECIPES]


def build(name, replicates, horizon, *, first=0, num_arms=12, seed=3):
    """(policy, problem): replicates ``first``, first + 1, ... of the recipe on functions that switch, or on hills."""
    about = recipes.registered(name)
    common = {"replicates": replicates, "seed": seed, "first_replicate": first}
    if about.belief in (None, "kernel"):
        problem = make("switching", horizon=max(horizon, 4), num_arms=num_arms, **common)
    else:
        problem = make("hills", num_arms=21, **common)
    options = {**about.quick, "first_replicate": first}
    return recipes.build(name, problem, replicates=replicates, horizon=horizon, seed=seed, **options), problem


OVER_POINTS = ("gp_ei", "sw_gp_ucb", "tv_gp_ucb", "pe_gp_ucb")  # one for each kind of state there


def build_over_points(name, replicates, horizon):
    """(policy, problem) on a continuous domain."""
    problem = make("dynamic-levy", dim=2, horizon=horizon, replicates=replicates)
    search = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 5}}
    about = recipes.registered(name)
    options = {**about.quick} | ({"search": search} if "search" in about.options else {})
    return recipes.build(name, problem, replicates=replicates, horizon=horizon, seed=3, **options), problem
