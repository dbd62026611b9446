"""Recipes on the same problems, replicate by replicate: one table for each question."""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bandits_torch import run
from bandits_torch.experiments import Block, ProblemSetting, RecipeSetting
from bandits_torch.experiments.engines import MakeProblem
from bandits_torch.models import CandidatePrior
from bandits_torch.problems import Problem
from benchmarks.leaderboard import settings
from benchmarks.pages import say

SEED = 0
_NEED_PRIORS = ("mle_gp_ucb", "bayes_gp_ucb")
BASE = "tv_gp_ucb w=2"  # what the band is measured against

# The band: the first replicates of the leaderboard's environments.
BAND, _BAND_REPLICATES = (BASE, "tv_gp_ucb", "band_gp_ucb"), 10
_LEADERBOARD = Path(settings.__file__).parent / "results" / "totals.csv"
# Environments whose functions are draws of the model that plays them.
MODEL_HOLDS = ("stationary", "slow-drift", "tv-gp-0.01", "tv-gp-0.03", "tv-gp-0.1")


def band() -> pd.DataFrame:
    """What the leaderboard has of ``BAND``, as a table of ``totals``."""
    table = pd.read_csv(_LEADERBOARD)
    table = table[table["policy"].isin(BAND) & table["environment"].isin(settings.RANKED)]
    table = table[table["replicate"] < _BAND_REPLICATES]
    return table.rename(columns={"environment": "problem", "horizon": "steps"})


def totals(
    problems: Mapping[str, MakeProblem], policies: Mapping[str, RecipeSetting], horizon: int, replicates: int
) -> Iterator[pd.DataFrame]:
    """Regret of every replicate, a table for each problem."""
    for name, make in problems.items():
        block, rows = Block(replicates, horizon, 0, SEED), []
        for label, recipe in policies.items():
            problem = make(block)
            if recipe.name in _NEED_PRIORS and not problem.knowledge.priors:
                continue
            steps = min(horizon, problem.horizon or horizon)
            history = run(recipe(problem, block), problem, steps, seed=SEED)
            regret = history.regret.sum(-1).tolist()
            rows += [(name, label, k, steps, value) for k, value in enumerate(regret)]
            say(f"{name} {label}: {sum(regret) / replicates:.1f}")
        yield pd.DataFrame(rows, columns=["problem", "policy", "replicate", "steps", "regret"])


# An unknown length-scale. theta_0 is given; the functions are drawn with another, or with this one.
GIVEN = 0.4
_DRAWN = {
    "se, .05": {"lengthscale": 0.05},
    "matern-5/2, .05": {"lengthscale": 0.05, "kernel": "matern"},
    "se, .4 (as given)": {"lengthscale": 0.4},
    "se, .1, d = 2": {"lengthscale": 0.1, "dim": 2},
}
_UNKNOWN = ("a_gp_ucb", "lb_gp_ucb", "mle_gp_ucb", "bayes_gp_ucb", "igp_ucb")
LENGTH_SCALES = {
    name + suffix: RecipeSetting(name, options)
    for suffix, options in (("", {}), (" w=2", {"width": 2.0}))
    for name in _UNKNOWN
}


def misinformed(problem: Problem, horizon: int) -> Problem:
    """A problem whose policies are given the length-scale ``GIVEN``, and candidates e^{-p/d} of it (for those that take
    priors); B is the norm under the kernel that drew the functions."""
    known, dim, kernels = problem.knowledge, problem.arms.shape[-1], []
    for p in range(1 + math.ceil(dim * math.log(horizon) / 4 - 1e-9)):
        kernel = copy.deepcopy(known.kernel)
        kernel.lengthscale = GIVEN * math.exp(-p / dim)
        kernels.append(kernel)
    priors = [CandidatePrior(kernel) for kernel in kernels]
    problem.knowledge = replace(known, kernel=kernels[0], priors=priors)
    return problem


def length_scales() -> dict[str, MakeProblem]:
    """Each given its length-scale, and given the wrong one."""
    made: dict[str, MakeProblem] = {}
    for name, options in _DRAWN.items():
        setting = ProblemSetting("gp", options)
        made[name] = lambda block, setting=setting: misinformed(setting(block), block.horizon)
        made[name + "; known"] = setting
    return made


# Drift: R-PERP beside the restarts and the window of Zhou & Shroff.
DRIFT = {
    name + suffix: RecipeSetting(name, options)
    for suffix, options in (("", {}), (" w=2", {"width": 2.0}))
    for name in ("r_perp", "r_gp_ucb", "sw_gp_ucb")
} | {"random": RecipeSetting("random")}
_DRIFTING = ("stationary", "one-switch", "four-switches", "slow-drift", "tv-gp-0.01", "tv-gp-0.03", "cosine")


def drift() -> dict[str, MakeProblem]:
    """Environments of the leaderboard that are made up."""
    known = settings.environments(None)
    return {name: known[name] for name in _DRIFTING}


PARTS = {"length_scales": (length_scales, LENGTH_SCALES), "drift": (drift, DRIFT)}
