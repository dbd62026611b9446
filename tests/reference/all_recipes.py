"""Every recipe there is, on a small problem it can play: new ones are covered without a line here."""

import pytest

from bandits_torch import make, recipes

# Settings with a state of their own, by a word after the recipe's name: "sw_gp_ucb-likelihood".
VARIANTS = {
    "likelihood": {"window": {"candidates": [20, 4], "every": 3, "memory": 6}},
    "learning": {"learn_hyperparameters": {"every": 5, "first": 4}},
    "cycles": {"cycles": [24.0, 168.0]},
    "control": {"control": 0},
    "moves": {"max_move": 0.04, "move_price": 0.05},
    "price": {"move_price": 0.1},
    "reward": {"incumbent": "reward"},
    "units": {"reward_scale": "warm-up"},
    "stale": {"forgetting_rate": 0.9, "stale": 1e-2},  # drops the first observations at step 32
    "wasserstein": {"forgetting_rate": 0.3, "stale": "wasserstein"},
}
WITH_SETTINGS = ("sw_gp_ucb-likelihood", "auto-cycles", "auto-control", "ada_opkb-units", "gp_ei-reward")
KINDS = ("gp_ts", "tv_gp_ucb", "bbkb", "pe_gp_ucb", "master_gp_ucb", "ada_opkb", "auto")


def of_every_kind():
    """The recipes as parameters of a test of what they have in common: in its short form, one of each kind of state."""
    return [pytest.param(name, marks=() if name in KINDS else pytest.mark.slow) for name in recipes.RECIPES]


def build(name, replicates, horizon, *, first=0, num_arms=12, seed=3):
    """(policy, problem): replicates ``first``, first + 1, ... of the recipe on functions that switch, or on hills."""
    name, _, variant = name.partition("-")
    about = recipes.registered(name)
    common = {"replicates": replicates, "seed": seed, "first_replicate": first}
    if about.belief in (None, "kernel"):
        problem = make("switching", horizon=max(horizon, 4), num_arms=num_arms, **common)
    else:
        problem = make("hills", num_arms=num_arms + 9, **common)
    options = {**about.quick, "first_replicate": first, **VARIANTS.get(variant, {})}
    return recipes.build(name, problem, replicates=replicates, horizon=horizon, seed=seed, **options), problem


OVER_POINTS = ("gp_ei", "sw_gp_ucb", "tv_gp_ucb", "pe_gp_ucb")  # one for each kind of state there
OF_THEIR_OWN = ("auto", "random", "regret_balancing", "gp_ucb-learning", "sw_gp_ucb-likelihood")
OF_THEIR_OWN += ("tv_gp_ucb-stale", "tv_gp_ucb-wasserstein", "safe_gp_ucb", "auto-moves")


def build_over_points(name, replicates, horizon, *, first=0):
    """(policy, problem) on a continuous domain, replicates ``first``, first + 1, ... of it."""
    name, _, variant = name.partition("-")
    problem = make("dynamic-levy", dim=2, horizon=horizon, replicates=replicates)
    search = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 5}}
    options = {"search": search} if "search" in recipes.options_of(name) else {}
    options |= {"first_replicate": first} if first else {}
    options = {**recipes.registered(name).quick, **options, **VARIANTS.get(variant, {})}
    return recipes.build(name, problem, replicates=replicates, horizon=horizon, seed=3, **options), problem
