"""``python -m benchmarks.bernoulli.log_odds``: would a Gaussian process over log-odds earn more than ``auto``?

A policy that is as near to members of ``auto`` as a short trial can be: the log-odds of each arm are a random walk; a
reward moves their mean and variance by one Newton step (Laplace's approximation); models with drift variances of 0 to
.1 a step are weighted by the probability of the rewards; the arm with the largest upper bound of its chance is pulled.
It learns from the first 200 rows, as a race does. Nothing of it was chosen on any record.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from benchmarks import options, pages
from benchmarks.bernoulli.__main__ import REPORTED, RIVALS
from benchmarks.bernoulli.problems import KINDS, drawn

_DRIFTS = np.array([0.0, 1e-4, 1e-3, 1e-2, 1e-1])[:, None]  # variance a step of each model
_WIDTH, _PAST = 1.25, 200  # as in ``auto``; rows learned from
NAME = "log-odds"


def expected(chances: np.ndarray, record: np.ndarray) -> float:
    """The chances of the arms pulled after the first rows, added up."""
    past = record[:_PAST].mean(0)
    level = logit(np.clip(past.mean(), 0.005, 0.995))
    spread = max(0.1, float(logit(np.clip(past, 0.005, 0.995)).var()))
    mean, variance = np.full((len(_DRIFTS), len(past)), level), np.full((len(_DRIFTS), len(past)), spread)
    log_weights, total = np.zeros(len(_DRIFTS)), 0.0
    for t, rewards in enumerate(record):
        variance = variance + _DRIFTS
        pulled = np.arange(record.shape[1])
        if t >= _PAST:
            weights = np.exp(log_weights - log_weights.max())[:, None]
            weights /= weights.sum()
            middle = (weights * mean).sum(0)
            spread_now = (weights * (variance + np.square(mean - middle))).sum(0)
            pulled = np.array([np.argmax(middle + _WIDTH * np.sqrt(spread_now))])
            total += float(chances[t, pulled[0]])
        m, v, y = mean[:, pulled], variance[:, pulled], rewards[pulled]
        chance = expit(m / np.sqrt(1 + math.pi * v / 8))  # of a success, as MacKay approximates it
        log_weights += np.log(np.where(y > 0, chance, 1 - chance)).sum(1)
        p = expit(m)
        v = 1 / (1 / v + p * (1 - p))
        mean[:, pulled], variance[:, pulled] = m + v * (y - p), v
    return total


def main(out: options.Out = None) -> None:
    """Print what it earns on the records that are reported, beside what is kept of the others."""
    kept = pd.read_csv(pages.results_folder(__file__, out) / "totals.csv")
    shares = []
    for kind in KINDS:
        found = expected(*drawn(kind, REPORTED))
        own = kept[kept["kind"] == kind].set_index("policy")["expected"]
        best = own[list(RIVALS)].max()
        shares.append((found / best, own["auto"] / best))
        pages.say(f"{kind}: {NAME} {found:.0f}, auto {own['auto']:.0f}, best of four rivals {best:.0f}")
    mean = np.mean(shares, 0)
    pages.say(f"mean share of the best rival: {NAME} {mean[0]:.3f}, auto {mean[1]:.3f}")


if __name__ == "__main__":
    options.command(main)()
