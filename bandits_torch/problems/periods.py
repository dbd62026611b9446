"""Cycles in records of rewards: periods, and how sure they are beside drift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import lombscargle

_ROWS = 2048  # the last rows looked at
_SERIES = 3  # leading common movements
_FEWEST, _CYCLES = 40, 4  # rows; cycles that a record must hold
_EULER = 0.5772156649  # minus the mean of the logarithm of an Exp(1) variable
_OUTLIER = 4.0  # times the background: left out of it
_LOG_SPREAD, _CUT, _UPPER = (
    1.2825,
    0.05,
    1.645,
)  # of log Exp(1): its deviation, what the cut takes; 95 % of N(0, 1)


@dataclass(frozen=True)
class Period:
    """A cycle.

    Attributes:
        length: of the cycle, in units of the times.
        p_value: how often a record without a cycle, which only drifts, would show one as clear at any period.
    """

    length: float
    p_value: float


def find_periods(
    rewards: np.ndarray, times: np.ndarray | None = None, *, level: float = 0.01, most: int = 3
) -> list[Period]:
    """Cycles that arms have in common, the clearest first; none for a record of fewer than 40 rows.

    A Lomb-Scargle periodogram (Lomb 1976; Scargle 1982) of each of the three leading principal components of the
    centred rewards, tapered by Hann's window. Drift shows as a background that falls smoothly with frequency: a cubic
    in log frequency, fitted to log power without its peaks (as Vaughan 2005 fits a line). Power over background, taken
    at the upper end of its 95 % interval, is then at most Exp(1), and p = 1 - (1 - exp(-ratio))^M over the M
    frequencies, times the number of components. Harmonics of a clearer cycle, and neighbours of its peak, are not told
    again. A cycle that the record holds fewer than eight times is often missed, as it cannot be told from drift.

    Args:
        rewards: (T, N), NaN where missing. The last 2048 rows are looked at.
        times: (T,) increasing; None: 0, 1, ...
        level: the largest p-value told.
        most: how many are told at most.

    Cost: O(T^2), at most some 10^7 operations.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    times = np.arange(len(rewards)) if times is None else np.asarray(times, dtype=np.float64)
    seen = ~np.isnan(rewards).all(1)
    rewards, times = rewards[seen][-_ROWS:], times[seen][-_ROWS:]
    T = len(times)
    if T < _FEWEST:
        return []
    span, gap = times[-1] - times[0], float(np.median(np.diff(times)))
    k = np.arange(_CYCLES, int(span / (2 * gap)) + 1)
    if len(k) < _FEWEST // 4:
        return []
    frequency = k / span
    x = (times - times[0]) / span
    held = (~np.isnan(rewards)).astype(float)
    slope = np.polynomial.polynomial.Polynomial
    centred = np.zeros_like(rewards)
    for n in range(rewards.shape[1]):
        at = held[:, n] > 0
        if at.sum() >= _FEWEST // 2:
            line = slope.fit(x[at], rewards[at, n], 1)
            residual = rewards[at, n] - line(x[at])
            spread = residual.std()
            centred[at, n] = residual / spread if spread > 1e-12 * np.abs(rewards[at, n]).max() else 0.0
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    kept = [i for i in range(min(_SERIES, len(s))) if s[i] > 1e-9 * max(s[0], 1e-300)]
    found: list[Period] = []
    for i in kept:
        series = u[:, i] - u[:, i].mean()
        power = lombscargle(times - times[0], series * np.sin(np.pi * x) ** 2, 2 * np.pi * frequency)
        ratio = power / _background(np.log(frequency), power)
        p = np.minimum(1.0, -np.expm1(len(k) * np.log1p(-np.exp(-ratio) + 1e-300)) * len(kept))
        for j in np.argsort(p, kind="stable")[: 4 * most]:
            if p[j] <= level:
                low, high = frequency[max(j - 1, 0)], frequency[min(j + 1, len(k) - 1)]
                fine = np.linspace(low, high, 41)
                tapered = series * np.sin(np.pi * x) ** 2
                best = fine[np.argmax(lombscargle(times - times[0], tapered, 2 * np.pi * fine))]
                found.append(Period(float(1 / best), float(p[j])))
    told: list[Period] = []
    for one in sorted(found, key=lambda each: each.p_value):
        again = any(
            abs(1 / one.length - m / other.length) < 3 / span for other in told for m in (1, 2, 3, 4, 5, 6)
        )
        if not again and len(told) < most:
            told.append(one)
    return told


def _background(log_frequency: np.ndarray, power: np.ndarray) -> np.ndarray:
    """What the mean power of a record without a cycle is at most (95 %), at each frequency."""
    log_power = np.log(np.maximum(power, 1e-300)) + _EULER
    z = (log_frequency - log_frequency.mean()) / log_frequency.std()
    design = np.stack([z**0, z, z**2, z**3], 1)
    kept = np.ones(len(power), dtype=bool)
    for _ in range(5):
        inverse = np.linalg.inv(design[kept].T @ design[kept])
        fit = design @ (inverse @ (design[kept].T @ log_power[kept]))
        error = _LOG_SPREAD * np.sqrt(np.einsum("ki,ij,kj->k", design, inverse, design))
        kept = power < _OUTLIER * np.exp(fit + error)
    return np.exp(fit + _UPPER * error + _CUT)
