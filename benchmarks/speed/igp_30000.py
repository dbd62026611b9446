"""The experiment of Chowdhury & Gopalan (2017), section 6, at full length, as one batch."""

from typing import Any

import pandas as pd
import torch

from bandits_torch import make, recipes, run
from benchmarks.pages import say
from benchmarks.speed.page import Settings


def measure(settings: Settings) -> pd.DataFrame:
    """Wall time of IGP-UCB on draws of a Gaussian process, 100 arms, all replicates at once."""
    replicates, horizon = (2, 50) if settings.fast else (25, 30_000)
    say(f"{replicates} replicates, {horizon} steps")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the command line does: a step this short gains nothing from a second thread
    try:
        return pd.DataFrame([played(replicates, horizon, settings.device)])
    finally:
        torch.set_num_threads(threads)


def played(replicates: int, horizon: int, device: str, capture: bool = False) -> dict[str, Any]:
    problem = make("gp", replicates=replicates).to(device)
    policy = recipes.build("igp_ucb", problem, replicates=replicates, horizon=horizon)
    history = run(policy, problem, horizon, capture=capture)
    seconds = history.meta["wall_seconds"]
    return {
        "arms": problem.num_arms,
        "replicates": replicates,
        "steps": horizon,
        "wall_seconds": seconds,
        "seconds_per_step": seconds / horizon,
        "seconds_per_replicate_step": seconds / horizon / replicates,
        "mean_cumulative_regret": history.mean_cumulative_regret,
    }
