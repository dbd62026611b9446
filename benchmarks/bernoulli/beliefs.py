"""``python -m benchmarks.bernoulli.beliefs``: after rewards of 0 and 1 of random arms, how far the means of ``auto``
are from the chances, and how many of these its intervals of 90 % hold (PROTOCOL.md)."""

from typing import Annotated

import pandas as pd
import torch
import typer
from scipy.special import ndtri

from bandits_torch import recipes
from bandits_torch.policies import Observation
from benchmarks import options, pages

LEVELS = ((0.005, 0.02), (0.02, 0.05), (0.06, 0.15))  # of the chances
ARMS, LOGS, PULLS = 12, 10, 1000


def believed(low: float, high: float, seed: int) -> dict[str, object]:
    """A row of the table, for chances drawn uniformly from ``low`` to ``high``."""
    g = torch.Generator().manual_seed(seed)
    chance = low + (high - low) * torch.rand(LOGS, ARMS, generator=g, dtype=torch.float64)
    policy = recipes.auto(ARMS, replicates=LOGS, seed=0)
    for pull in range(PULLS):
        arm = torch.randint(ARMS, (LOGS,), generator=g)
        reward = torch.rand(LOGS, generator=g, dtype=torch.float64) < chance[torch.arange(LOGS), arm]
        policy.learn(Observation(float(pull), arm, reward.double()))
    mean, variance = policy.marginals(float(PULLS))
    error = mean - chance
    return {
        "chances": f"{low:g} to {high:g}",
        "means over chances": float((mean / chance).mean()),
        "held by 90 %": float((error.abs() <= float(ndtri(0.95)) * variance.sqrt()).double().mean()),
        "root mean square error": float(error.square().mean().sqrt()),
    }


def main(seed: Annotated[int, typer.Option(help="Of chances, arms and rewards.")] = 6) -> None:
    """Learn, and print the table."""
    pages.say(pd.DataFrame([believed(*level, seed) for level in LEVELS]).round(4).to_string(index=False))


if __name__ == "__main__":
    options.command(main)()
