"""Summaries of regret: over replicates, per step, and compared with random play."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.history import History, standard_error
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.problem import Problem, available_rewards

WRITTEN_OUT = 1e12  # regrets below are written without an exponent


def random_regret(problem: Problem, horizon: int) -> Tensor:
    """Exact expected regret of a uniformly random available arm, max_x f_t(x) - mean_x f_t(x).

    The maximum is the one that runs are scored by (``Problem.score``): with limits, over the arms within them. On a
    continuous domain, the mean is over 512 quasi-random points.

    Returns (R, horizon) on the CPU, R the problem's replicates (or its masks', if those are per replicate).
    The oracle, which plays the best available arm, has regret 0. Cost O(R N) per step.

    Raises ValueError for a ``horizon`` below 1.
    """
    validation.positive_integer("horizon", horizon)
    regrets = []
    for step in range(1, horizon + 1):
        if isinstance(problem, ContinuousProblem):
            regrets.append(problem.best(step) - problem.random_reward(step))
            continue
        expected, available = problem.expected_rewards(step), problem.available(step)
        rewards = available_rewards(expected, available)
        mask = torch.isfinite(rewards)
        mean = rewards.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1)
        _, best = problem.score(step, torch.zeros_like(mean, dtype=torch.long), available)
        regrets.append(best - mean)
    return torch.stack(regrets, dim=-1).double().cpu()


def best_arms(problem: Problem, horizon: int) -> Tensor:
    """The available arm of largest expected reward at each step; ties go to the smallest index.

    Args:
        problem: asked for ``expected_rewards`` and ``available`` of steps 1 to T.
        horizon: T, number of steps.

    Returns (R, T) integers on the CPU, R as for ``random_regret``. Cost O(R N) per step. Raises ValueError for a
    horizon below 1.
    """
    validation.positive_integer("horizon", horizon)
    steps = range(1, horizon + 1)
    rewards = (available_rewards(problem.expected_rewards(step), problem.available(step)) for step in steps)
    return torch.stack([reward.nan_to_num(nan=-torch.inf).argmax(-1) for reward in rewards], dim=-1).cpu()


def summary(histories: Mapping[str, History]) -> pd.DataFrame:
    """One row per policy: mean_cumulative_regret over the replicates, its standard_error, ms_per_step.

    ``histories``: by policy.
    """
    rows = {
        name: {
            "mean_cumulative_regret": history.mean_cumulative_regret,
            "standard_error": history.standard_error,
            "ms_per_step": history.ms_per_step,
        }
        for name, history in histories.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("policy")


def standings(histories: Mapping[str, History], random: Tensor) -> tuple[pd.DataFrame, float]:
    """``summary``, the best policy first, and the expected total regret of drawing arms at random.

    ``random``: (R, T) expected regret of drawing at random. A column ``of_random`` has the regret in % of that; NaN
    where nothing could be lost.
    """
    frame, at_random = summary(histories), float(random.sum(-1).mean())
    share = 100 * frame["mean_cumulative_regret"] / at_random if at_random > 0 else math.nan
    return frame.assign(of_random=share).sort_values("mean_cumulative_regret"), at_random


def per_step(histories: Mapping[str, History]) -> pd.DataFrame:
    """One row per policy and step, over the replicates: mean regret of the step, mean cumulative regret up to
    it, and the standard error of the latter (NaN for a single replicate).

    ``histories``: by policy.
    """
    parts = []
    for name, history in histories.items():
        cumulative = history.cumulative_regret
        columns = {
            "policy": name,
            "step": range(1, history.horizon + 1),
            "time": history.times.numpy(),
            "mean_regret": history.regret.mean(0).numpy(),
            "mean_cumulative_regret": cumulative.mean(0).numpy(),
            "standard_error": standard_error(cumulative).numpy(),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)
