"""The experiment of Chowdhury & Gopalan (2017), section 6, at full length, as one batch."""

from __future__ import annotations

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.loop import run
from bandits_torch.problems import make
from benchmarks.pages import duration, figures, of, say, table, whole
from benchmarks.speed.page import Settings

QUESTION = "How long do 25 replicates of 30 000 steps take?"


def measure(settings: Settings) -> pd.DataFrame:
    """Wall time of IGP-UCB on draws of a Gaussian process, 100 arms, all replicates at once."""
    replicates, horizon = (2, 50) if settings.fast else (25, 30_000)
    say(f"{replicates} replicates, {horizon} steps")
    problem = make("gp", replicates=replicates).to(settings.device)
    policy = recipes.build("igp_ucb", problem, replicates=replicates, horizon=horizon)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the command line does: a step this short gains nothing from a second thread
    try:
        history = run(policy, problem, horizon)
    finally:
        torch.set_num_threads(threads)
    seconds = history.meta["wall_seconds"]
    row = {
        "arms": problem.num_arms,
        "replicates": replicates,
        "steps": horizon,
        "wall_seconds": seconds,
        "seconds_per_step": seconds / horizon,
        "seconds_per_replicate_step": seconds / horizon / replicates,
        "mean_cumulative_regret": history.mean_cumulative_regret,
    }
    return pd.DataFrame([row])


def describe(frame: pd.DataFrame) -> str:
    columns = {
        "arms": of("arms", whole),
        "replicates": of("replicates", whole),
        "steps": of("steps", whole),
        "wall time": of("wall_seconds", duration),
        "a step": of("seconds_per_step", duration),
        "a step of a replicate": of("seconds_per_replicate_step", duration),
        "mean cumulative regret": of("mean_cumulative_regret", figures),
    }
    return _WORDS + table(frame, columns)


_WORDS = """IGP-UCB on draws of a Gaussian process (problem `gp`, squared exponential kernel of lengthscale 0.2, noise
1 % of the range), the whole loop, scoring and recording included; one thread.

"""
