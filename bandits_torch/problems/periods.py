"""Finds the periods of cycles in a record of rewards, tests them against drift, and fits each arm's cycle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bandits_torch import validation

ROWS = 2048  # the last rows with a reward, which are searched
_SERIES, _MOST = 3, 3  # principal components; common cycles returned
_LEVEL = 0.01  # the largest p-value of a cycle
_FEWEST, _CYCLES = 40, 4  # rows and repetitions that a cycle needs
_EULER = 0.5772156649  # minus the mean of the logarithm of an Exp(1) variable
_SAME = 0.03  # relative difference of periods that count as equal
_DENSEST = 8  # rows of the regular grid per row of the record, at most
_UNEVEN = 0.02  # mean distance of gaps, in rows of the grid, from whole numbers; of more it is asked whether they recur
_OUTLIER = 4.0  # power over background that is left out of the background's fit
_MOST_HARMONICS, _RIDGE = 6, 1.0  # harmonics of a period; ridge of their regression, in rows
_WORSE = 12.0  # loss of twice the log-likelihood for which a period is rounded to whole gaps
# Of log Exp(1): bias of the mean without outliers; n^1/2 times the standard deviation of the mean over n frequencies. A
# Hann window correlates power with that of the next frequency (4/9) and the next but one (1/36). Covariances of the
# logarithms are dilogarithms of these: sqrt(pi^2/6 + 2 Li2(4/9) + 2 Li2(1/36)).
_CUT, _LOG_SPREAD = 0.05, 1.648
_LEAST = float(np.finfo(np.float64).tiny)  # smallest p-value: rounding gives no 0
_UPPER = 1.645  # 95 % quantile of N(0, 1)


@dataclass(frozen=True)
class Period:
    """A cycle.

    Attributes:
        length: in units of the times.
        p_value: probability that a record that only drifts shows a cycle as clear at any period.
    """

    length: float
    p_value: float

    def rounded(self, span: float, size: float = 1.0) -> float:
        """The length in units of ``size``, rounded to a whole number if that changes the frequency by at most a fifth
        of 1 / ``span``, the precision that a record of length ``span`` gives."""
        number = self.length / size
        whole = max(round(number), 1)
        return whole if abs(1 / whole - 1 / number) <= 0.2 * size / span else number


def find_periods(rewards: np.ndarray, times: np.ndarray | None = None) -> list[Period]:
    """At most three cycles that arms have in common, the clearest first; none for fewer than 40 rows.

    A straight line is subtracted from each arm's rewards, which are then divided by their standard deviation. Each of
    the three leading principal components has a Lomb-Scargle periodogram (Lomb 1976; Scargle 1982), with a Hann window.
    Drift gives a background that varies smoothly with frequency: a cubic in log frequency, fitted to log power without
    its peaks (Vaughan 2005 fits a line). Power over the background's upper 95 % confidence limit, which allows for the
    correlation of neighbouring frequencies under the window, is at most Exp(1), so p = 1 - (1 - exp(-ratio))^M over M
    frequencies, times the number of components. p-values up to 1 % are returned. In simulations 0.5 % of 2 600 tables
    without a cycle had one (noise, random walks and both, 100 to 1 000 rows, 5 or 20 arms, some at random times).

    Only peaks count. Harmonics of a clearer cycle are left out. If the second or third harmonic is clearer than its
    cycle, the cycle is returned with the harmonic's p-value. A cycle that occurs fewer than eight times in the record
    is often missed, because drift looks the same.

    Drift that is seen only at regular times, such as weekdays, looks like a cycle. So if an arm's rewards are missing
    periodically, or rows come at times such as 0, .4, 1, 1.4, 2, the gaps are bridged by straight lines. A short cycle
    between such gaps then also appears at the sums and differences of its frequency with theirs. So if most arms have
    such gaps, each further cycle is searched for in what the clearer ones, subtracted with six harmonics by least
    squares, leave of these arms. In such an arm no cycle shorter than two of its median gaps, apart from gaps below an
    eighth of the mean, is searched for. If at most half of the frequencies remain, the arm does not count for common
    cycles.

    Args:
        rewards: (T, N), NaN where missing. Only the last 2048 rows with a reward are used.
        times: (T,) increasing; None: 0, 1, ...

    Cost: O(T^2), at most some 10^7 operations.
    """
    record = Record.of(rewards, times)
    return [] if record is None else record.common_periods()


class Record:
    """The last rows of a record, detrended and in units of each arm's standard deviation, and their periodograms.

    ``k``: frequencies as cycles in the record, consecutive integers. The first only serves to recognise peaks.
    """

    def __init__(self, rewards: np.ndarray, times: np.ndarray, k: np.ndarray) -> None:
        self.times, self.span = times - times[0], float(times[-1] - times[0])
        self.frequency = k / self.span
        self.taper = np.sin(np.pi * self.times / self.span)[:, None] ** 2
        self.waves = Waves(self.times, self.frequency)
        self.rewards, held = rewards, ~np.isnan(rewards)
        self.resolved = np.full(rewards.shape[1], len(k))  # how many frequencies an arm's rewards resolve
        self.bridged = np.zeros(rewards.shape[1], dtype=bool)  # arms with periodic gaps: see ``find_periods``
        gappy = np.flatnonzero(~held.all(0))
        for n, regular in zip(gappy, self.peaks(held[:, gappy].astype(float), _LEVEL, 1), strict=True):
            if any(regular):
                self.bridged[n] = True
                steps = np.diff(self.times[held[:, n]])
                apart = steps[steps >= steps.mean() / _DENSEST]  # times that nearly coincide resolve nothing
                self.resolved[n] = np.sum(self.frequency * np.median(apart) <= 0.5 + 1e-9)
        self.most_bridged = 2 * self.bridged.sum() > len(self.bridged)
        self.centred = self._centred(rewards)

    def _centred(self, rewards: np.ndarray) -> np.ndarray:
        """Rewards without a straight line, in units of their standard deviation, 0 where missing or not resolved."""
        held = ~np.isnan(rewards)
        centred = np.zeros_like(rewards)
        slope = np.polynomial.polynomial.Polynomial
        for n in np.flatnonzero((held.sum(0) >= _FEWEST // 2) & (self.resolved > _FEWEST // 4)):
            at = held[:, n]
            residual = rewards[at, n] - slope.fit(self.times[at], rewards[at, n], 1)(self.times[at])
            spread = residual.std()
            if spread > 1e-12 * np.abs(rewards[at, n]).max():
                centred[at, n] = residual / spread
            if self.bridged[n]:
                seen = centred[at, n]
                centred[:, n] = np.interp(self.times, self.times[at], seen, left=0.0, right=0.0)
        return centred

    def _without(self, cycles: Sequence[Period]) -> np.ndarray:
        """``centred`` of what these cycles, fitted to each arm's rewards by least squares, leave of them."""
        gap = float(np.median(np.diff(self.times)))
        lengths = [gap * one.rounded(self.span, gap) for one in cycles]
        orders = [(one, h) for one in lengths for h in range(1, _MOST_HARMONICS + 1) if one >= 2 * h * gap]
        design = harmonics(self.times, orders)
        ridge = _ridge(design.shape[1])
        left = self.rewards.copy()
        for n in np.flatnonzero(self.bridged):
            at = ~np.isnan(left[:, n])
            X = design[at]
            left[at, n] -= X @ np.linalg.solve(X.T @ X + ridge, X.T @ left[at, n])
        return self._centred(left)

    @staticmethod
    def of(rewards: np.ndarray, times: np.ndarray | None) -> Record | None:
        """The record of these rewards; None if it is too short."""
        rewards = np.asarray(rewards, dtype=np.float64)
        times = np.arange(len(rewards)) if times is None else np.asarray(times, dtype=np.float64)
        rewards, times = rewards[-2 * ROWS :], times[-2 * ROWS :]
        seen = ~np.isnan(rewards).all(1)
        rewards, times = rewards[seen][-ROWS:], times[seen][-ROWS:]
        if len(times) < _FEWEST:
            return None
        steps = np.diff(times)
        finest = float(np.mean(steps)) / _DENSEST
        gap = max(float(np.median(steps)), finest)  # most times may nearly coincide
        uneven, k = False, np.arange(_CYCLES - 1, int((times[-1] - times[0]) / (2 * gap)) + 1)
        if np.abs(steps / gap - np.rint(steps / gap)).mean() > _UNEVEN and len(k) > _FEWEST // 4:
            spacing = Record(np.log(steps)[:, None], times[1:], k)
            uneven = any(next(spacing.peaks(spacing.centred, _LEVEL, 1)))
            gap = finest if uneven else gap
        # Longer gaps are filled with rows of NaN, except gaps above an eighth of the record, which are not periodic.
        filled = steps <= (times[-1] - times[0]) / 8
        row = np.cumsum([0, *np.where(filled, np.maximum(np.rint(steps / gap), 1), 1).astype(int)])
        place = row
        if uneven:  # rows of equal length, each reward in the nearest one that is free
            place, count = np.cumsum([0, *np.where(filled, steps / gap, 1)]), np.arange(len(times))
            row = (np.maximum.accumulate(np.rint(place) - count) + count).astype(int)
        more = np.full((row[-1] + 1, rewards.shape[1]), np.nan)
        more[row] = rewards
        rewards, times = more[-2 * ROWS :], np.interp(np.arange(len(more)), place, times)[-2 * ROWS :]
        k = np.arange(_CYCLES - 1, int((times[-1] - times[0]) / (2 * gap)) + 1)
        return Record(rewards, times, k) if len(k) > _FEWEST // 4 else None

    def common_periods(self) -> list[Period]:
        """The cycles that ``find_periods`` returns."""
        clear: list[Period] = []
        centred = self.centred
        while True:
            for one in sorted(self._common(centred), key=lambda each: each.p_value):
                if self._joins(clear, one) and self.most_bridged:
                    centred = self._without(clear)  # in which the next one must be seen
                    break
            else:
                return clear

    def _common(self, centred: np.ndarray) -> list[Period]:
        """Cycles of the leading principal components."""
        together = 2 * self.resolved > self.resolved.max()
        u, s, _ = np.linalg.svd(centred * together, full_matrices=False)
        resolved = np.full(u.shape[1], self.resolved[together].min(initial=len(self.frequency)))
        kept = [i for i in range(min(_SERIES, len(s))) if s[i] > 1e-9 * max(s[0], 1e-300)]
        return [
            Period(one.length, min(1.0, one.p_value * len(kept)))
            for peaks in self.peaks(u[:, kept], _LEVEL / max(1, len(kept)), 4 * _MOST, resolved[kept])
            for one in peaks
        ]

    def _joins(self, clear: list[Period], one: Period) -> bool:
        """Add a cycle to the clearer ones, unless it is a harmonic of them or they are enough; whether it was added."""
        if any(self._repeats(one, other, range(1, 7)) for other in clear):
            return False
        parts = [other for other in clear if self._repeats(other, one, (2, 3))]
        if parts:  # such as a day whose second harmonic is clearer than its first
            clear[clear.index(parts[0])] = Period(one.length, parts[0].p_value)
            clear[:] = [other for other in clear if other not in parts]
        elif len(clear) < _MOST:
            clear.append(one)
        else:
            return False
        return True

    def _repeats(self, one: Period, other: Period, orders: Iterable[int]) -> bool:
        """Whether ``one`` is a harmonic, of one of these orders, of ``other``, within the record's resolution."""
        return any(abs(1 / one.length - m / other.length) < 3 / self.span for m in orders)

    def own_periods(self, common: Sequence[Period] = ()) -> dict[int, Period]:
        """The clearest cycle of each arm alone, by index, in addition to the ``common`` cycles.

        Each arm is tested like a principal component in ``find_periods``; p-values are multiplied by the number of
        arms. In the simulations 0.7 % of all tables had such a cycle, and 4 % of those of 20 arms and 100 rows. Of its
        four clearest cycles, those within 3 % of a common cycle, or of m times or 1/m of its length for m up to 6, are
        left out. Cost: O(T^2 N).
        """
        N = self.centred.shape[1]
        found: dict[int, Period] = {}
        centred = self.centred
        if common and self.most_bridged:
            centred = np.where(self.bridged, self._without(common), centred)
        for n, peaks in enumerate(self.peaks(centred, _LEVEL / N, 4, self.resolved)):
            for one in peaks:
                ratios = np.array([one.length / other.length for other in common])[:, None]
                m = np.arange(1, 7)
                if (np.abs([m * ratios - 1, ratios / m - 1]) > _SAME).all():
                    found[n] = Period(one.length, min(1.0, one.p_value * N))
                    break
        return found

    def peaks(
        self, series: np.ndarray, level: float, most: int, resolved: np.ndarray | None = None
    ) -> Iterator[Iterator[Period]]:
        """For each series of (T, n), its ``most`` clearest cycles with a p-value up to ``level``, among its first
        ``resolved`` frequencies (n,); None: among all."""
        tapered = (series - series.mean(0)) * self.taper
        counts = np.full(series.shape[1], len(self.frequency)) if resolved is None else resolved
        for n, power in enumerate(self.waves.powers(tapered)):
            yield self._peaks_of(tapered[:, n : n + 1], power[: counts[n]], level, most)

    def _peaks_of(self, series: np.ndarray, power: np.ndarray, level: float, most: int) -> Iterator[Period]:
        if not series.any():
            return
        count = len(power)
        frequency = self.frequency[:count]
        ratio = power / _background(np.log(frequency), power)
        p = np.clip(-np.expm1(count * np.log1p(-np.minimum(np.exp(-ratio), 1 - 1e-16))), _LEAST, 1.0)
        peak = power[1:] >= np.maximum(power[:-1], np.append(power[2:], 0.0))
        clearest = [j for j in np.argsort(p, kind="stable") if j > 0 and peak[j - 1]]
        for j in clearest[:most]:
            if p[j] > level:
                return
            low, high = frequency[max(j - 1, 0)], frequency[min(j + 1, count - 1)]
            fine = np.linspace(low, high, 41)
            best = fine[np.argmax(Waves(self.times, fine).powers(series)[0])]
            yield Period(float(1 / best), float(p[j]))


class Waves:
    """Cosines and sines at some frequencies (K,), at the times of a record (T,)."""

    def __init__(self, times: np.ndarray, frequency: np.ndarray) -> None:
        turn = np.exp(2j * np.pi * np.outer(frequency, times))
        self.c, self.s = turn.real.copy(), turn.imag.copy()
        square = np.einsum("kt,kt->k", turn, turn)  # the sums of c^2 - s^2 and 2 c s
        self.cc, self.ss = (len(times) + square.real) / 2, (len(times) - square.real) / 2
        self.cs = square.imag / 2

    def powers(self, series: np.ndarray) -> np.ndarray:
        """Lomb-Scargle power (n, K) of each series (T, n): of the best sine and cosine at each frequency."""
        cc, ss, cs = self.cc, self.ss, self.cs
        a, b = (self.c @ series).T, (self.s @ series).T
        determinant = cc * ss - cs * cs
        two = determinant > 1e-6 * (cc + ss) ** 2  # at half the sampling rate sine and cosine coincide
        power = (a * a * ss - 2 * a * b * cs + b * b * cc) / (2 * np.where(two, determinant, 1.0))
        return np.asarray(np.where(two, power, (a * a + b * b) / (2 * (cc + ss))))


def _background(log_frequency: np.ndarray, power: np.ndarray) -> np.ndarray:
    """The upper 95 % confidence limit of the mean power of a record without a cycle, at each frequency."""
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


@dataclass(frozen=True)
class Cycles:
    """The cycle of each arm: y_n(t) = levels_n + sum_j (cos(w_j t) a_jn + sin(w_j t) b_jn) + residuals.

    Attributes:
        periods: in units of the times.
        harmonics: their number, for each period.
        levels: (N,).
        profile: (2 J, N), a_j and b_j by turns, period by period.
        residuals: (T, N), NaN where a reward is missing.
    """

    periods: tuple[float, ...]
    harmonics: tuple[int, ...]
    levels: np.ndarray
    profile: np.ndarray
    residuals: np.ndarray


FIND = "find"


def harmonics(times: np.ndarray, orders: Iterable[tuple[float, int]]) -> np.ndarray:
    """A constant, and cosine and sine of J harmonics (period, number): the design (T, 1 + 2 J) of a regression."""
    angles = [2 * np.pi * h * (times % period / period) for period, h in orders]
    return np.stack([np.ones(len(times)), *(wave(angle) for angle in angles for wave in (np.cos, np.sin))], 1)


def _ridge(size: int) -> np.ndarray:
    return _RIDGE * np.diag([1e-9] + [1.0] * (size - 1))


def fit_cycles(
    rewards: np.ndarray, times: np.ndarray | None = None, periods: str | float | Sequence[float] | None = FIND
) -> Cycles | None:
    """Each arm's cycle in a record, by least squares; None if there is none.

    All periods have the same number of harmonics, 1 to 6, which minimises the BIC (Schwarz 1978) over all arms. No
    harmonic beyond the first is shorter than two median gaps. A period that was found is refined to the one with the
    least squares within the record's resolution, or to a whole number of median gaps if that fits nearly as well.

    Args:
        rewards: (T, N), NaN where missing.
        times: (T,) increasing; None: 1 - T, ..., 0.
        periods: a number or several, in units of the times; ``"find"``: those of ``find_periods``; None: no cycles.

    Cost: O(T N J) for each of some hundred fits, with missing rewards O(T N J^2). Raises ValueError for periods that
    are not finite, positive and different, times that do not increase, and cycles in fewer than two rows.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    T, seen = len(rewards), ~np.isnan(rewards)
    times = np.arange(1.0 - T, 1.0) if times is None else np.asarray(times, dtype=np.float64)
    ok = times.shape == (T,) and bool(np.isfinite(times).all() and (np.diff(times) > 0).all())
    validation.require(ok, "times", times, f"{T} increasing numbers, one for each row")
    lengths = checked_periods(periods, "periods")
    if periods == FIND:
        lengths = [one.length for one in find_periods(rewards, times)]
    if not lengths:
        return None
    validation.require(T > 1, "rewards", rewards, "at least two rows where there are cycles")
    span, gap = times[-1] - times[0], float(np.median(np.diff(times)))
    count, y = seen.sum(0), np.where(seen, rewards, 0.0)
    scale = 1e-12 * max(float(np.nanvar(rewards)), 1e-300)

    def fitted(lengths: Sequence[float], order: int) -> tuple[float, np.ndarray, np.ndarray]:
        """Minus twice the log-likelihood, up to a constant; coefficients (1 + 2 J, N); residuals (T, N)."""
        X = harmonics(times, [(p, h) for p in lengths for h in range(1, order + 1)])
        ridge = _ridge(X.shape[1])
        if seen.all():
            found = np.linalg.solve(X.T @ X + ridge, X.T @ y)
        else:
            gram = np.einsum("ti,tn,tj->nij", X, seen, X, optimize=True) + ridge
            found = np.linalg.solve(gram, (X.T @ y).T[..., None])[..., 0].T
        left = rewards - X @ found
        mean_square = (np.where(seen, left, 0.0) ** 2).sum(0) / np.maximum(count, 1)
        return float((count * np.log(np.maximum(mean_square, scale))).sum()), found, left

    most = max(1, min([_MOST_HARMONICS, *(int(one / (2 * gap) + 1e-9) for one in lengths)]))
    price = 2 * len(lengths) * np.log(np.maximum(count, 1)).sum()
    order = min(range(1, most + 1), key=lambda h: fitted(lengths, h)[0] + h * price)
    for k in range(len(lengths)) if periods == FIND else ():
        tries = (1 / (1 / lengths[k] + np.linspace(-0.5, 0.5, 41) / span)).tolist()
        whole = [gap * round(one / gap) for one in tries]
        fits = {one: fitted([*lengths[:k], one, *lengths[k + 1 :]], order)[0] for one in {*tries, *whole}}
        best, near = min(fits, key=fits.__getitem__), min(whole, key=fits.__getitem__)
        lengths[k] = near if fits[near] <= fits[best] + _WORSE else best
    _, found, left = fitted(lengths, order)
    return Cycles(tuple(lengths), (order,) * len(lengths), found[0], found[1:], left)


def checked_periods(periods: object, name: str = "cycles") -> list[float]:
    """The given periods as floats; an empty list for None and ``"find"``. Raises ValueError, which names the argument,
    for anything else."""
    if periods is None or (isinstance(periods, str) and periods == FIND):
        return []
    several = isinstance(periods, (list, tuple)) and len(periods) > 0
    lengths: list[Any] = list(periods) if several else [periods]  # type: ignore[call-overload]
    expected = f"a number > 0, several different ones, {FIND!r} or None"
    ok = all(validation.is_number(one) and np.isfinite(one) and one > 0 for one in lengths)
    validation.require(ok and len({*lengths}) == len(lengths), name, periods, expected)
    return [float(one) for one in lengths]
