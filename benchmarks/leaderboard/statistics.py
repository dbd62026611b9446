"""Ranks, shares and their intervals, from one total of regret per environment, policy and replicate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

RESAMPLES = 4000
LEVEL = 0.95


def regrets(totals: pd.DataFrame, environments: list[str], policies: list[str]) -> list[np.ndarray]:
    """Totals of each environment, (policies, replicates); environments may differ in how many replicates they have.

    ValueError where a total is missing.
    """
    missing, made = [], []
    for environment in environments:
        own = totals[(totals["environment"] == environment) & totals["policy"].isin(policies)]
        table = own.pivot(index="policy", columns="replicate", values="regret").reindex(policies)
        missing += [str((environment, name)) for name in table.index[table.isna().any(axis=1)]]
        made.append(table.to_numpy())
    if missing:
        raise ValueError(
            f"totals must have every replicate of every policy, missing some of {', '.join(sorted(missing))}"
        )
    return made


def mean_ranks(values: Sequence[np.ndarray]) -> np.ndarray:
    """Average over environments of the rank (1: least) of each policy's mean regret; ties share their ranks.

    values: of each environment (policies, replicates); returns (policies,).
    """
    return rankdata(_means(values), axis=-1).mean(0)


def rank_intervals(
    values: Sequence[np.ndarray], resamples: int = RESAMPLES, level: float = LEVEL, seed: int = 0
) -> np.ndarray:
    """Percentile bootstrap intervals of ``mean_ranks``, (policies, 2).

    Two levels: environments are drawn with replacement, and within each environment its replicates, the same ones
    for all policies, as they met the same functions and noise. So an interval says where the mean rank would lie on
    another choice of environments like these. With one environment it is about replicates alone.
    """
    E, P = len(values), len(values[0])
    generator = np.random.default_rng(seed)
    times = generator.multinomial(E, [1 / E] * E, size=resamples)  # an environment is drawn, (resamples, E)
    total = np.zeros((resamples, P))
    for own, drawn in zip(values, times.T, strict=True):
        S = own.shape[-1]
        for turn in range(drawn.max(initial=0)):  # drawn twice, its replicates are drawn twice
            at = np.flatnonzero(drawn > turn)
            replicates = generator.integers(S, size=(len(at), S))
            total[at] += rankdata(own[:, replicates].mean(-1).T, axis=-1)
    means = total / E
    tail = 50 * (1 - level)
    return np.percentile(means, [tail, 100 - tail], axis=0).T


def _means(values: Sequence[np.ndarray]) -> np.ndarray:
    """Of each environment and policy, (environments, policies)."""
    return np.stack([own.mean(-1) for own in values])


def shares(values: Sequence[np.ndarray], random: int) -> np.ndarray:
    """Mean regret of each policy as a share of that of the policy number ``random``, (environments, policies)."""
    means = _means(values)
    return means / means[:, [random]]


def ranking(totals: pd.DataFrame, environments: list[str], policies: list[str]) -> pd.DataFrame:
    """A row per policy, best first: mean_rank, low, high (of its interval), share of random's regret, wins.

    ``share`` is the mean over environments; ``first`` in how many environments no mean regret is less.
    """
    values = regrets(totals, environments, policies)
    low, high = rank_intervals(values).T
    means = _means(values)
    columns = {
        "mean_rank": mean_ranks(values),
        "low": low,
        "high": high,
        "share": shares(values, policies.index("random")).mean(0),
        "first": (means == means.min(-1, keepdims=True)).sum(0),
    }
    return pd.DataFrame(columns, index=pd.Index(policies, name="policy")).sort_values(["mean_rank", "share"])


def summary(totals: pd.DataFrame) -> pd.DataFrame:
    """By environment and policy: mean regret, its standard error, milliseconds a step of the first replicates."""
    groups = totals.sort_values("replicate", kind="stable").groupby(["environment", "policy"], sort=False)
    regret = groups["regret"]
    return pd.DataFrame(
        {
            "regret": regret.mean(),
            "standard_error": regret.std() / regret.count() ** 0.5,
            "ms_per_step": groups["ms_per_step"].first(),
        }
    )
