"""How far choosing a rate and a width in hindsight would go: ``python -m benchmarks.auto.limit [ENVIRONMENT ...]``.

``tv_gp_ucb``, given the kernel and the noise, plays the leaderboard's environments with six rates and five widths.
"""

from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from bandits_torch import recipes, run
from bandits_torch.experiments import Block
from benchmarks.auto.playing import ENVIRONMENTS, make_problem
from benchmarks.leaderboard import settings
from benchmarks.options import DATA, Data, chosen, command
from benchmarks.pages import keep, say

RATES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
WIDTHS = (0.5, 1.0, 1.5, 2.0, 3.0)
REPLICATES = 10
TABLE = Path(__file__).parent / "results" / "limit.csv"


def regrets(environment: str, data: Path, replicates: int = REPLICATES) -> pd.DataFrame:
    """Mean regret of every setting in the first replicates of the leaderboard."""
    problem = make_problem(environment, Block(replicates, settings.HORIZON, 0, settings.SEED), data)
    steps = min(settings.HORIZON, problem.horizon or settings.HORIZON)
    rows = []
    for rate, width in product(RATES, WIDTHS):
        torch.manual_seed(settings.SEED)
        given = {"forgetting_rate": rate, "width": width, "replicates": replicates}
        policy = recipes.build("tv_gp_ucb", problem, horizon=steps, **given)
        regret = run(policy, problem, steps, seed=settings.SEED).regret.sum(-1)
        rows.append([environment, rate, width, float(regret.mean())])
    return pd.DataFrame(rows, columns=["environment", "forgetting_rate", "width", "regret"])


def main(
    environments: Annotated[list[str] | None, typer.Argument(help="Default: the leaderboard's.")] = None,
    data: Data = DATA,
) -> None:
    """Play, and keep each environment as soon as it is there."""
    torch.set_num_threads(1)
    for name in chosen(",".join(environments or settings.RANKED), ENVIRONMENTS, "environments"):
        rows = regrets(name, data)
        keep(TABLE, rows, ("environment",))
        best = rows.nsmallest(1, "regret").iloc[0]
        say(f"{name}: {best['regret']:.1f} at {best['forgetting_rate']}, {best['width']}")


if __name__ == "__main__":
    command(main)()
