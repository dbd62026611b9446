"""Recipes on the same problems, replicate by replicate: one table for each question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from bandits_torch.experiments.cells import Block, MakeProblem, ProblemSetting, RecipeSetting
from bandits_torch.loop import run
from benchmarks.leaderboard import settings

SEED = 0
BASE = "tv_gp_ucb w=2"  # what the band is measured against

# The band: the leaderboard's environments as they are.
BAND = {
    BASE: RecipeSetting("tv_gp_ucb", {"width": 2.0}),
    "tv_gp_ucb": RecipeSetting("tv_gp_ucb"),
    "band_gp_ucb": RecipeSetting("band_gp_ucb"),
}
# Environments whose functions are draws of the model that plays them.
MODEL_HOLDS = ("stationary", "slow-drift", "tv-gp-0.01", "tv-gp-0.03", "tv-gp-0.1")


def band(data: Path) -> dict[str, MakeProblem]:
    """Environments of the leaderboard's ranking."""
    known = settings.environments(data)
    return {name: known[name] for name in settings.RANKED}


def totals(
    problems: Mapping[str, MakeProblem],
    policies: Mapping[str, RecipeSetting],
    horizon: int,
    replicates: int,
    say: Callable[[str], None] = print,
) -> Iterator[pd.DataFrame]:
    """Regret of every replicate, a table for each problem."""
    for name, make in problems.items():
        block, rows = Block(replicates, horizon, 0, SEED), []
        for label, recipe in policies.items():
            problem = make(block)
            steps = min(horizon, problem.horizon or horizon)
            history = run(recipe(problem, block), problem, steps, seed=SEED)
            regret = history.regret.sum(-1).tolist()
            rows += [(name, label, k, steps, value) for k, value in enumerate(regret)]
            say(f"{name} {label}: {sum(regret) / replicates:.1f}")
        yield pd.DataFrame(rows, columns=["problem", "policy", "replicate", "steps", "regret"])


def gp(lengthscale: float, **options: object) -> ProblemSetting:
    """Functions drawn with a squared exponential kernel of this length-scale."""
    return ProblemSetting("gp", {"lengthscale": lengthscale, **options})
