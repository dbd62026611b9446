"""Ranks, shares and their intervals, from one total of regret per environment, policy and replicate."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

RESAMPLES = 4000
LEVEL = 0.95


def cube(totals: pd.DataFrame, environments: list[str], policies: list[str]) -> np.ndarray:
    """Totals as (environments, policies, replicates).

    ValueError where a total is missing, or the environments differ in their replicates.
    """
    table = totals.pivot(index=["environment", "policy"], columns="replicate", values="regret")
    wanted = pd.MultiIndex.from_product([environments, policies])
    values = table.reindex(wanted).to_numpy()
    missing = sorted({str(key) for key, row in zip(wanted, values, strict=True) if np.isnan(row).any()})
    if missing:
        raise ValueError(
            f"totals must have every replicate of every policy, missing some of {', '.join(missing)}"
        )
    return values.reshape(len(environments), len(policies), -1)


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """Average over environments of the rank (1: least) of each policy's mean regret; ties share their ranks.

    values: (environments, policies, replicates); returns (policies,).
    """
    return rankdata(values.mean(-1), axis=-1).mean(0)


def rank_intervals(
    values: np.ndarray, resamples: int = RESAMPLES, level: float = LEVEL, seed: int = 0
) -> np.ndarray:
    """Percentile bootstrap intervals of ``mean_ranks``, (policies, 2).

    Two levels: environments are drawn with replacement, and within each environment its replicates, the same ones
    for all policies, as they met the same functions and noise. So an interval says where the mean rank would lie on
    another choice of environments like these. With one environment it is about replicates alone.
    """
    E, P, S = values.shape
    generator = np.random.default_rng(seed)
    total = np.zeros((resamples, P))
    for _ in range(E):  # an environment that is drawn twice has its replicates drawn twice
        drawn = generator.integers(E, size=resamples)
        replicates = generator.integers(S, size=(resamples, 1, S))
        means = np.take_along_axis(values[drawn], replicates, axis=2).mean(-1)
        total += rankdata(means, axis=-1)
    means = total / E
    tail = 50 * (1 - level)
    return np.percentile(means, [tail, 100 - tail], axis=0).T


def shares(values: np.ndarray, random: int) -> np.ndarray:
    """Mean regret of each policy as a share of that of the policy number ``random``, (environments, policies)."""
    means = values.mean(-1)
    return means / means[:, [random]]


def ranking(totals: pd.DataFrame, environments: list[str], policies: list[str]) -> pd.DataFrame:
    """A row per policy, best first: mean_rank, low, high (of its interval), share of random's regret, wins.

    ``share`` is the mean over environments; ``first`` in how many environments no mean regret is less.
    """
    values = cube(totals, environments, policies)
    low, high = rank_intervals(values).T
    means = values.mean(-1)
    columns = {
        "mean_rank": mean_ranks(values),
        "low": low,
        "high": high,
        "share": shares(values, policies.index("random")).mean(0),
        "first": (means == means.min(-1, keepdims=True)).sum(0),
    }
    return pd.DataFrame(columns, index=pd.Index(policies, name="policy")).sort_values(["mean_rank", "share"])


def summary(totals: pd.DataFrame) -> pd.DataFrame:
    """By environment and policy: mean regret, its standard error, milliseconds a step."""
    groups = totals.groupby(["environment", "policy"], sort=False)
    regret = groups["regret"]
    return pd.DataFrame(
        {
            "regret": regret.mean(),
            "standard_error": regret.std() / regret.count() ** 0.5,
            "ms_per_step": groups["ms_per_step"].first(),
        }
    )
