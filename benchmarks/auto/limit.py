"""How far choosing a rate and a width in hindsight would go: ``python -m benchmarks.auto.limit [ENVIRONMENT ...]``.

On every environment of the leaderboard ``tv_gp_ucb``, told the kernel and the noise, is played with each of six
forgetting rates and five widths. The best of the thirty, picked after the fact for each environment, is what a policy
might reach that knew both beforehand and kept them. results/limit.csv has a row for each setting; environments are
played from the checkout, with the data in ``../shared/data``.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.experiments.cells import Block
from bandits_torch.loop import run
from benchmarks.auto.playing import make_problem
from benchmarks.leaderboard import settings

RATES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
WIDTHS = (0.5, 1.0, 1.5, 2.0, 3.0)
REPLICATES = 10
TABLE = Path(__file__).parent / "results" / "limit.csv"


def regrets(environment: str, data: Path, replicates: int = REPLICATES) -> pd.DataFrame:
    """Mean regret of every setting in the first replicates of the leaderboard."""
    problem = make_problem(environment, Block(replicates, settings.HORIZON, 0, settings.SEED), data)
    steps = min(settings.HORIZON, problem.horizon or settings.HORIZON)
    told, rows = problem.knowledge, []
    for rate, width in product(RATES, WIDTHS):
        torch.manual_seed(settings.SEED)
        policy = recipes.tv_gp_ucb(
            problem.arms,
            told.kernel,
            told.noise_variance,
            prior_mean=told.prior_mean,
            forgetting_rate=rate,
            width=width,
            replicates=replicates,
        )
        regret = run(policy, problem, steps, seed=settings.SEED).regret.sum(-1)
        rows.append([environment, rate, width, float(regret.mean())])
    return pd.DataFrame(rows, columns=["environment", "forgetting_rate", "width", "regret"])


def main(names: list[str], data: Path = Path("../shared/data")) -> None:
    """Play, and keep each environment as soon as it is there."""
    torch.set_num_threads(1)
    for name in names or settings.RANKED:
        rows = regrets(name, data)
        if TABLE.exists():
            old = pd.read_csv(TABLE)
            rows = pd.concat([old[old["environment"] != name], rows], ignore_index=True)
        rows.to_csv(TABLE, index=False, float_format="%.6g")
        best = rows[rows["environment"] == name].nsmallest(1, "regret").iloc[0]
        print(f"{name}: {best['regret']:.1f} at {best['forgetting_rate']}, {best['width']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
