"""Cycles in records of rewards: periods, and how sure they are beside drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ROWS = 2048  # the last rows looked at
_SERIES = 3  # leading common movements
_FEWEST, _CYCLES = 40, 4  # rows; cycles that a record must hold
_EULER = 0.5772156649  # minus the mean of the logarithm of an Exp(1) variable
_SAME = 0.03  # relative difference of periods
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
    record = _Record.of(rewards, times)
    if record is None:
        return []
    u, s, _ = np.linalg.svd(record.centred, full_matrices=False)
    kept = [i for i in range(min(_SERIES, len(s))) if s[i] > 1e-9 * max(s[0], 1e-300)]
    found = [one for peaks in record.peaks(u[:, kept], level / max(1, len(kept)), 4 * most) for one in peaks]
    found = [Period(one.length, min(1.0, one.p_value * len(kept))) for one in found]
    told: list[Period] = []
    for one in sorted(found, key=lambda each: each.p_value):
        again = any(
            abs(1 / one.length - m / other.length) < 3 / record.span
            for other in told
            for m in (1, 2, 3, 4, 5, 6)
        )
        if not again and len(told) < most:
            told.append(one)
    return told


def find_own_periods(
    rewards: np.ndarray,
    times: np.ndarray | None = None,
    common: Sequence[Period] = (),
    *,
    level: float = 0.01,
) -> dict[int, Period]:
    """The clearest cycle of each arm by itself, by the arm's index, which is none of the ``common`` ones.

    Each arm is looked at as a principal component is by ``find_periods``, and p-values are times the number of arms. A
    cycle within 3 % of a common one, of its harmonics, or of what it is a harmonic of, is not told.

    Args: as for ``find_periods``; ``common``: cycles of all arms.

    Cost: O(T^2 + T N).
    """
    record = _Record.of(rewards, times)
    if record is None:
        return {}
    N = record.centred.shape[1]
    found: dict[int, Period] = {}
    for n, peaks in enumerate(record.peaks(record.centred, level / N, 4)):
        for one in peaks:
            ratios = [m * one.length / other.length for other in common for m in range(1, 7)]
            ratios += [one.length / (m * other.length) for other in common for m in range(1, 7)]
            if all(abs(ratio - 1) > _SAME for ratio in ratios):
                found[n] = Period(one.length, min(1.0, one.p_value * N))
                break
    return found


class _Record:
    """The last rows of a record, each arm less its line and in units of its spread, and their periodograms."""

    def __init__(self, centred: np.ndarray, times: np.ndarray, k: np.ndarray) -> None:
        self.centred, self.times, self.span = centred, times - times[0], float(times[-1] - times[0])
        self.frequency = k / self.span
        self.taper = np.sin(np.pi * self.times / self.span)[:, None] ** 2

    @staticmethod
    def of(rewards: np.ndarray, times: np.ndarray | None) -> _Record | None:
        """None where the record is too short."""
        rewards = np.asarray(rewards, dtype=np.float64)
        times = np.arange(len(rewards)) if times is None else np.asarray(times, dtype=np.float64)
        rewards, times = rewards[-2 * _ROWS :], times[-2 * _ROWS :]
        seen = ~np.isnan(rewards).all(1)
        rewards, times = rewards[seen][-_ROWS:], times[seen][-_ROWS:]
        if len(times) < _FEWEST:
            return None
        span, gap = times[-1] - times[0], float(np.median(np.diff(times)))
        k = np.arange(_CYCLES, int(span / (2 * gap)) + 1)
        if len(k) < _FEWEST // 4:
            return None
        held = ~np.isnan(rewards)
        x = (times - times[0]) / span
        slope = np.polynomial.polynomial.Polynomial
        centred = np.zeros_like(rewards)
        for n in range(rewards.shape[1]):
            at = held[:, n]
            if at.sum() >= _FEWEST // 2:
                line = slope.fit(x[at], rewards[at, n], 1)
                residual = rewards[at, n] - line(x[at])
                spread = residual.std()
                if spread > 1e-12 * np.abs(rewards[at, n]).max():
                    centred[at, n] = residual / spread
        return _Record(centred, times, k)

    def peaks(self, series: np.ndarray, level: float, most: int) -> list[list[Period]]:
        """Of each series (T, n) the clearest cycles with a p-value up to ``level``."""
        tapered = (series - series.mean(0)) * self.taper
        count, found = len(self.frequency), []
        for n, power in enumerate(_powers(self.times, tapered, self.frequency)):
            told: list[Period] = []
            found.append(told)
            if power.max() <= 0:
                continue
            ratio = power / _background(np.log(self.frequency), power)
            p = np.clip(-np.expm1(count * np.log1p(-np.minimum(np.exp(-ratio), 1 - 1e-16))), 0.0, 1.0)
            for j in np.argsort(p, kind="stable")[:most]:
                if p[j] <= level:
                    low, high = self.frequency[max(j - 1, 0)], self.frequency[min(j + 1, count - 1)]
                    fine = np.linspace(low, high, 41)
                    best = fine[np.argmax(_powers(self.times, tapered[:, n : n + 1], fine)[0])]
                    told.append(Period(float(1 / best), float(p[j])))
        return found


def _powers(times: np.ndarray, series: np.ndarray, frequency: np.ndarray) -> np.ndarray:
    """Lomb and Scargle's power of each series (T, n), (n, K): of the best sine and cosine at each frequency."""
    angle = 2 * np.pi * frequency[:, None] * times
    c, s = np.cos(angle), np.sin(angle)
    cc, ss, cs = (c * c).sum(1), (s * s).sum(1), (c * s).sum(1)
    a, b = (c @ series).T, (s @ series).T
    return np.asarray(
        (a * a * ss - 2 * a * b * cs + b * b * cc) / (2 * np.maximum(cc * ss - cs * cs, 1e-300))
    )


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
