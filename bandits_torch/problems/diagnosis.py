"""Describes a table of rewards in numbers and sentences: values, noise, drift, jumps, cycles, possible gain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import stats
from torch import Tensor

from bandits_torch import validation
from bandits_torch.naming import counted, digits_of, some, written
from bandits_torch.problems.jumps import MOST, Jump, Levels, find_jumps
from bandits_torch.problems.periods import ROWS, Period, Record, Waves, harmonics
from bandits_torch.problems.smoothing import best_smoothed, mean_of_held
from bandits_torch.problems.tables import RewardTable

_FEWEST, _BLOCKS = 40, 20  # rows that noise, correlation and gain need; blocks of their intervals
_SHORTEST_BLOCK = 10  # rows, of the interval of the noise
_ROWS = 10_000  # last rows for the possible gain; rows sampled for cycles, noise and correlation
_SHARED_ROWS, _SHIFTS, _FLIPS, _CHANGES = 2000, 99, 999, 8  # of ``_sharing``: rows, tables, fewest means
_HARMONICS, _SHORTEST = 3, 2.5  # of a cycle that is subtracted: their number; the shortest, in gaps
_SURE, _HEAVY = 0.01, 0.01  # significance level; share of outliers that is reported
_MOST_OF_ONE_ARM = 4  # cycles of single arms that are listed
_LARGEST_RATIO, _RATIO_ERROR = 24.5, 0.003  # of a cycle to 1/n of it: limit of n, relative error
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Diagnosis:
    """The result of ``diagnose``; ``str`` gives it in sentences. None: cannot be determined.

    Attributes:
        rows, arms: T and N.
        values: ``"0/1"``, ``"counts"``, ``"numbers"`` or ``"none"``.
        missing: share of the rewards, in [0, 1].
        unit: unit of the times: ``"rows"``, ``"seconds"``, or ``"times"`` for numbers in an unknown unit.
        gap: median time between neighbouring rows.
        irregular: share of gaps that differ from it by more than a tenth.
        noise: standard deviation, over all arms, of the part of rewards that neighbouring rows do not share.
        noise_interval: its approximate 90 % interval.
        outliers: share of rewards far from their neighbours: .001 with normal noise, .01 and more with heavy tails.
            They count as noise, not as jumps.
        correlation: mean correlation between arms.
        shared: whether arms have more in common than chance explains.
        periods: common cycles of the arms, in units of the times.
        own_periods: cycles of single arms, by name.
        drift: standard deviation of the change in 100 gaps, without cycles and jumps, of the level of a typical arm
            among those that drift; 0: no significant drift.
        drifting: the names of arms whose drift is significant alone; empty if only all arms together show it.
        jumps: jumps of arms' levels, with rows counted from 0 and arms by index.
        jump_times: for each jump, the printed times of ``before`` and ``after``.
        jump_arms: for each jump, the names of its arms.
        random: mean reward of a random arm among those with a reward, in the table's unit.
        best_arm: name and mean reward per row of the arm that earns most in hindsight; a row without its reward counts
            with the mean of the others.
        best_fixed: mean reward per row of the best arm of the last 10 000 rows, computed likewise.
        best_moving: estimated mean reward per row of the last 10 000 rows, if in each row the arm is pulled that is
            best by the other rows (``smoothing.best_smoothed``).
        moving_interval: 90 % interval of the mean of what these arms paid minus ``best_fixed``. ``best_moving`` minus
            ``best_fixed`` need not be its middle.
        bandwidth: width of the smoothing, in units of the times; None: all rows have the same weight.
    """

    rows: int
    arms: int
    values: str
    missing: float
    unit: str
    gap: float
    irregular: float
    noise: float | None
    noise_interval: tuple[float, float] | None
    outliers: float | None
    correlation: float | None
    shared: bool | None
    periods: tuple[Period, ...]
    own_periods: dict[str, Period]
    drift: float | None
    drifting: tuple[str, ...]
    jumps: tuple[Jump, ...] | None
    jump_times: tuple[tuple[str, str], ...]
    jump_arms: tuple[tuple[str, ...], ...]
    random: float | None
    best_arm: tuple[str, float] | None
    best_fixed: float | None
    best_moving: float | None
    moving_interval: tuple[float, float] | None
    bandwidth: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def span(self, length: float | Period) -> str:
        """A length of time in words; the length of a cycle is rounded as by ``Period.rounded``."""
        exact = length.length if isinstance(length, Period) else length
        name, size = ("row" if self.unit == "rows" else "unit"), 1
        if self.unit == "seconds":
            name, size = unit_of(exact)
        value = length.rounded(self.record, size) if isinstance(length, Period) else exact / size
        return counted(value, name) + (" of time" if name == "unit" else "")

    @property
    def record(self) -> float:
        """Typical length of the record that is searched for cycles, in units of the times."""
        return min(self.rows, ROWS) * self.gap

    def __str__(self) -> str:
        return "\n".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        yield f"A full table: {counted(self.rows, 'row')}, {self.arms} arms, rewards are {self.values}."
        if self.missing:
            share = _written_share(self.missing)
            yield f"Missing: {share}. An arm without a reward cannot be pulled in that row."
        if self.irregular > 0:
            yield (
                f"Times are irregular: {_written_share(self.irregular)} of the gaps differ from "
                f"{self.span(self.gap)}, the median, by more than a tenth."
            )
        if self.noise is None or self.noise_interval is None:
            needed = f"{_FEWEST} rows are needed where an arm has a reward, and also before and after"
            yield f"Noise: unknown; {needed}."
        else:
            low, high = self.noise_interval
            yield (
                f"Noise: standard deviation {written(self.noise, 3)} (90 % interval: {written(low, 3)} to "
                f"{written(high, 3)}). "
                "Changes that last a single row count as noise."
            )
        if self.outliers is not None and self.outliers >= _HEAVY:
            yield (
                f"Outliers: {self.outliers:.1%} of the rewards lie far from their neighbours (0.1% in normal noise): "
                "the noise has heavy tails. An outlier is not called a jump."
            )
        if self.correlation is not None:
            shares = "more than chance explains" if self.shared else "chance can explain that"
            yield f"Rewards of two arms have a mean correlation of {self.correlation:.2f}: {shares}."
        elif self.arms > 1:
            yield f"Correlation between arms: unknown; {_FEWEST} rows with two arms that vary are needed."
        yield from (self._of_cycles(), self._of_drift(), self._of_jumps())
        best = None if self.best_arm is None else self.best_arm[1]
        means = (self.random, best, self.best_fixed, self.best_moving)
        digits = digits_of([mean for mean in means if mean is not None], 4)
        if self.random is not None and self.best_arm is not None:
            name, best = self.best_arm
            at_random = " (drawn at random where it has no reward)" if self.missing else ""
            yield (
                f"Over all rows, drawing arms at random earns {written(self.random, digits)} a row, the best single "
                f"arm in hindsight, {name}, {written(best, digits)}{at_random}."
            )
        if self.best_moving is not None and self.best_fixed is not None and self.moving_interval is not None:
            low, high = self.moving_interval
            last = f"In the last {_ROWS:,} rows, p".replace(",", " ", 1) if self.rows > _ROWS else "P"
            gain = "no gain from following the change is certain"
            if low > 0:
                gain = f"following the change gains {written(low, 3)} to {written(high, 3)} a row"
            yield (
                f"{last}ulling in each row the arm that is best by the smoothed rewards of the other rows earns "
                f"{written(self.best_moving, digits)} a row; always pulling the best single arm earns "
                f"{written(self.best_fixed, digits)}: {gain}."
            )

    def _of_cycles(self) -> str:
        sentences = []
        for one in self.periods:
            sure = f"= {one.p_value:.1g}" if one.p_value > 1e-16 else "< 1e-16"
            sentences += [f"{self.span(one)} (p {sure}{self._part_of_another(one)})"]
        for name, one in self.own_periods.items():
            sentences += [f"{self.span(one)} in {name} alone{self._part_of_another(one)}"]
        if sentences:
            every = (*self.periods, *self.own_periods.values())
            edges = any(map(self._part_of_another, every))
            shape = (
                " A period of 1/n of a cycle describes the shape of that cycle, such as edges."
                if edges
                else ""
            )
            more = len(self.own_periods) - _MOST_OF_ONE_ARM
            if more > 0:
                rest = "a cycle of 1 more arm" if more == 1 else f"cycles of {more} more arms"
                sentences[-more:] = [f"{rest} alone"]
            return f"Cycles: {'; '.join(sentences)}.{shape}"
        if self.rows < _FEWEST:
            return "Cycles: unknown, because the record is too short."
        length = "" if self.unit == "rows" else f" ({self.span(self.record)})"
        last = f" in the last {ROWS} rows{length}; earlier rows are not searched" if self.rows > ROWS else ""
        return f"Cycles: none that drift does not explain{last}."

    def _part_of_another(self, one: Period) -> str:
        """``", 1/n of"`` a longer common cycle, or an empty string."""
        for other in self.periods:
            ratio = other.length / one.length
            if 1.5 < ratio < _LARGEST_RATIO and abs(ratio / round(ratio) - 1) < _RATIO_ERROR:
                return f", 1/{round(ratio)} of {self.span(other)}"
        return ""

    def _of_drift(self) -> str:
        if self.drift is None:
            return "Drift: unknown, because the record is too short."
        if self.drift == 0:
            return "Drift: not significant; apart from jumps and cycles, levels are constant."
        rows = "100 rows" if self.unit == "rows" else f"100 rows ({self.span(100 * self.gap)})"
        which = rest = ""
        if 0 < len(self.drifting) < self.arms:
            which = f" of {counted(len(self.drifting), 'arm')} ({some(self.drifting, 3)})"
            rest = "; that of the others is not significant"
        return f"Drift: levels{which} change by about {written(self.drift, 3)} (standard deviation) in {rows}{rest}."

    def _of_jumps(self) -> str:
        if self.jumps is None:
            return "Jumps: unknown, because the record is too short."
        if not self.jumps:
            return "Jumps: none that drift and noise do not explain."
        sentences = []
        for (before, after), arms in zip(self.jump_times, self.jump_arms, strict=True):
            which = f" ({some(arms, 3)})" if arms else ""
            sentences += [f"between {before} and {after}{which}"]
        if len(sentences) == MOST:
            return f"Jumps: {MOST} or more, the clearest {'; '.join(sentences)}."
        return f"Jumps: {'; '.join(sentences)}."


def unit_of(seconds: float) -> tuple[str, int]:
    """Name of the largest unit in which so many seconds are about 1 or more, and its length in seconds."""
    return next(((name, size) for name, size in _UNITS if seconds >= 0.95 * size), _UNITS[-1])


def kind_of_values(rewards: Tensor) -> str:
    """``"0/1"``, ``"counts"`` (integers >= 0), ``"numbers"``, or ``"none"`` if all are missing (NaN)."""
    values = rewards[~rewards.isnan()]
    if len(values) == 0:
        return "none"
    if float(values.min()) < 0 or bool((values != values.round()).any()):
        return "numbers"
    return "0/1" if float(values.max()) <= 1 else "counts"


def two_more_rare(rewards: np.ndarray) -> float:
    """What two more rare rewards would add to the variance of a sum of rewards; 0 unless more than half of the rewards
    are one number: the others are then rare. If all are 0, or all 1, the other of the two is the rare one.

    Without a rare reward the sample variance is 0, which says little. With the correction, the interval
    k +- 1.645 sqrt(k + 2) of a Poisson count k lies below its mean in at most 10.4 % of cases, and above in at most
    5 %, whatever the mean.
    """
    values, counts = np.unique(rewards, return_counts=True)
    usual = values[counts.argmax()]
    rare = rewards[rewards != usual]
    if len(rare) == 0:
        return 2.0 if usual in (0.0, 1.0) else 0.0
    return float(2 * np.square(rare - usual).mean()) if 2 * len(rare) < len(rewards) else 0.0


def diagnose(table: RewardTable | Tensor) -> Diagnosis:
    """Describe a table of rewards.

    Cycles come first (``find_periods``, then ``Record.own_periods``). A regression on up to three harmonics of each, at
    the length that fits all rows best, removes them, on either side of a jump with coefficients of their own if an arm
    would seem to drift otherwise. ``find_jumps`` divides the rest into jumps, drift and noise. The variance of the
    noise is the mean square of y_{t-1} - 2 y_t + y_{t+1} over each arm's neighbouring rows, divided by 6, minus a third
    of the drift's variance; straight lines do not affect it. Its interval is Student's t over 20 blocks of rows, or
    fewer of ten rows each, for the logarithm of the standard deviation. In simulations it contained the noise of 85 to
    92 % of records of 42 to 400 rows.

    Arms count as ``shared`` if one of two tests, each at the level .01, is significant. The first tests common levels:
    the mean correlation against 999 tables with the signs of random arms changed; it needs eight arms. The second tests
    common changes, from row to row and between means of 2, 4, ... rows: their correlations against 99 tables whose arms
    are shifted in time. (Independent drift alone makes levels correlate.) Noise that is large in all arms at the same
    times also counts as shared.

    Args:
        table: a ``RewardTable``, or (T, N) rewards, NaN where missing.

    Cost: O(T N + N^2), and at most some 10^7 operations for the cycles of each arm. Raises ValueError if ``table`` is
    not a table.
    """
    if not isinstance(table, RewardTable):
        table = RewardTable(validation.tensor("table", table))
    rewards = table.rewards.numpy()
    T, N = rewards.shape
    times = np.arange(T, dtype=np.float64) if table.times is None else table.times.numpy()
    unit = "rows" if table.times is None else "seconds" if table.in_seconds else "times"
    gaps = np.diff(times)
    gap = float(np.median(gaps)) if T > 1 else 1.0
    values = kind_of_values(table.rewards)
    record = Record.of(rewards, times)
    periods = () if record is None else tuple(record.common_periods())
    own = {} if record is None else record.own_periods(periods)
    periods = tuple(replace(one, length=_over_all_rows(one.length, rewards, times)) for one in periods)
    plain, fitted, levels = _levels(rewards, times, periods, own, values)
    drift, drifting, jumps, wander = None, np.zeros(N, dtype=bool), None, 0.0
    if levels is not None:
        held = (~np.isnan(rewards)).sum(0)
        drifting = levels.drifts & (levels.p_drift < _SURE)
        typical = levels.drift[drifting if drifting.any() else levels.noise > 0]
        clear = levels.p_drift < _SURE and len(typical) > 0
        drift = float((100 * float(np.median(typical))) ** 0.5) if clear else 0.0
        jumps, wander = levels.jumps, float(np.average(np.minimum(levels.drift, levels.noise), weights=held))
    noise, interval = _noise(plain, fitted, wander)
    correlation, shared = _sharing(rewards)
    random, best_arm = None, None
    if values != "none":
        filled = _filled(rewards)
        random, means = float(filled.mean()), filled.mean(0)
        best_arm = (table.arm_names[means.argmax()], float(means.max()))
    return Diagnosis(
        rows=T,
        arms=N,
        values=values,
        missing=float(np.isnan(rewards).mean()),
        unit=unit,
        gap=gap,
        irregular=float((np.abs(gaps / gap - 1) > 0.1).mean()) if T > 1 else 0.0,
        noise=noise,
        noise_interval=interval,
        outliers=None if levels is None else levels.outliers,
        correlation=correlation,
        shared=shared,
        periods=periods,
        own_periods={table.arm_names[n]: one for n, one in own.items()},
        drift=drift,
        drifting=tuple(name for name, one in zip(table.arm_names, drifting, strict=True) if one),
        jumps=jumps,
        jump_times=tuple((_when(table, one.before), _when(table, one.after)) for one in jumps or ()),
        jump_arms=tuple(tuple(table.arm_names[n] for n in one.arms) for one in jumps or ()),
        random=random,
        best_arm=best_arm,
        **_gain(rewards[-_ROWS:], times[-_ROWS:]),
    )


def _written_share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else "less than 0.1%"


def _when(table: RewardTable, row: int) -> str:
    if table.times is None:
        return f"row {row + 1}"
    return table.when(row) if table.in_seconds else f"time {table.when(row)}"


def _levels(
    rewards: np.ndarray, times: np.ndarray, periods: tuple[Period, ...], own: dict[int, Period], values: str
) -> tuple[np.ndarray, float, Levels | None]:
    """Rewards without cycles, the average number of coefficients fitted to an arm with rewards, and ``find_jumps``.

    Where a cycle grows with the level, as that of sales does, one cycle for the whole record leaves a part of it on
    either side of a jump, which looks like drift. So the cycles of arms that seem to drift are fitted anew on either
    side of the row where their mean changes most, and again within these parts, as long as that halves the drift of an
    arm and shows another jump.
    """
    designs = _designs(rewards, times, periods, own)
    longest = max((one.length for one in (*periods, *own.values())), default=0.0)
    two = int(np.ceil(2 * longest / float(np.median(np.diff(times))))) if designs else 0  # cycles, in rows

    def found(cuts: Mapping[int, tuple[int, ...]]) -> tuple[np.ndarray, float, Levels | None]:
        plain, fitted = _without_cycles(rewards, designs, cuts)
        levels = None if values == "none" else find_jumps(plain, times, bounded=values == "0/1")
        return plain, fitted, levels

    cuts: dict[int, tuple[int, ...]] = dict.fromkeys(designs, ())
    plain, fitted, levels = found(cuts)
    for _ in range(MOST):
        if levels is None or levels.p_drift >= _SURE:
            break
        drifting = designs.keys() & {*np.flatnonzero(levels.drift)}
        fewest = {n: max(two, 2 * designs[n].shape[1]) for n in drifting}
        more = cuts | {n: _with_another_cut(plain[:, n], cuts[n], fewest[n]) for n in drifting}
        if more == cuts:
            break
        again = found(more)
        helped = {n for n in drifting if again[2] is not None and again[2].drift[n] < levels.drift[n] / 2}
        if not helped:
            break
        if helped != drifting:
            more = cuts | {n: more[n] for n in helped}
            again = found(more)
        if again[2] is None or len(again[2].jumps) <= len(levels.jumps):
            break
        cuts = more
        plain, fitted, levels = again
    return plain, fitted, levels


def _with_another_cut(plain: np.ndarray, cuts: tuple[int, ...], fewest: int) -> tuple[int, ...]:
    """The ``cuts`` of an arm (T,), and the row where its mean changes most, by the sum of squares that this explains;
    unchanged if there are fewer than so many rewards on a side of that row, up to the next cut."""
    most, row = 0.0, None
    for start, end in itertools.pairwise([0, *cuts, len(plain)]):
        held = start + np.flatnonzero(~np.isnan(plain[start:end]))
        if len(held) < 2 * fewest:
            continue
        before = np.arange(1, len(held))
        sums = np.cumsum(plain[held] - plain[held].mean())[:-1]
        explained = sums**2 * (1 / before + 1 / (len(held) - before))
        at = int(explained.argmax()) + 1
        if explained[at - 1] > most:
            most = float(explained[at - 1])
            row = int(held[at]) if fewest <= at <= len(held) - fewest else None
    return cuts if row is None else tuple(sorted((*cuts, row)))


def _designs(
    rewards: np.ndarray, times: np.ndarray, periods: tuple[Period, ...], own: dict[int, Period]
) -> dict[int, np.ndarray]:
    """A constant and the harmonics of each arm's cycles, (T, size), of the arms that have cycles, by index."""
    shortest = _SHORTEST * float(np.median(np.diff(times))) if len(times) > 1 else 0.0

    def design_of(lengths: Iterable[float]) -> np.ndarray:
        orders = [(one, k) for one in lengths for k in range(1, _HARMONICS + 1) if one / k >= shortest]
        return harmonics(times - times[0], orders)

    common = design_of([one.length for one in periods])
    designs = dict.fromkeys(range(rewards.shape[1]), common)
    for n, one in own.items():
        length = _over_all_rows(one.length, rewards[:, n : n + 1], times)
        designs[n] = np.concatenate([common, design_of([length])[:, 1:]], 1)
    return {n: design for n, design in designs.items() if design.shape[1] > 1}


def _without_cycles(
    rewards: np.ndarray, designs: Mapping[int, np.ndarray], cuts: Mapping[int, tuple[int, ...]]
) -> tuple[np.ndarray, float]:
    """Rewards minus the cycles of their ``designs``, fitted between the ``cuts`` of each arm; and the average number of
    coefficients fitted to an arm with rewards."""
    rows, plain, fitted = _sampled(len(rewards)).ravel(), rewards.copy("K"), 0
    for n, design in designs.items():
        for start, end in itertools.pairwise([0, *cuts[n], len(rewards)]):
            part = rows[(rows >= start) & (rows < end)]
            held = part[~np.isnan(rewards[part, n])]
            X, size = design[held], design.shape[1]
            if len(held) >= 2 * size:
                weights = np.linalg.lstsq(X.T @ X, X.T @ rewards[held, n], rcond=None)[0]
                plain[start:end, n] -= design[start:end, 1:] @ weights[1:]
                fitted += size
    return plain, fitted / max(1, int((~np.isnan(rewards)).any(0).sum()))


def _over_all_rows(length: float, rewards: np.ndarray, times: np.ndarray) -> float:
    """The length of a cycle found in the last ``ROWS`` rows, refined on these, then on four times as many, and so on,
    because a small error adds up over a long record."""
    rows = 0
    while rows < len(times):
        rows = min(max(ROWS, 4 * rows), len(times))
        part = len(times) - rows + _sampled(rows).ravel()
        at, span = times[part] - times[-rows], times[-1] - times[-rows]
        series = np.nan_to_num(rewards[part] - mean_of_held(rewards[part]))
        series /= np.where((spread := series.std(0)) > 0, spread, 1.0)
        for reach in (1.0, 0.1):
            near = 1 / length + reach * np.linspace(-1, 1, 21) / span
            length = float(1 / near[Waves(at, near).powers(series).sum(0).argmax()])
    return length


def _sampled(rows: int) -> np.ndarray:
    """All rows, (1, T), or 10 000 rows of a longer record in 20 blocks spread over it, (20, 500)."""
    if rows <= _ROWS:
        return np.arange(rows)[None]
    length = _ROWS // _BLOCKS
    starts = np.linspace(0, rows - length, _BLOCKS).round().astype(int)
    return starts[:, None] + np.arange(length)


def _noise(plain: np.ndarray, fitted: float, drift: float) -> tuple[float | None, tuple[float, float] | None]:
    """Standard deviation of the noise, with its 90 % interval."""
    near = plain[_sampled(len(plain))]
    bends = np.square(near[:, :-2] - 2 * near[:, 1:-1] + near[:, 2:]).reshape(-1, plain.shape[1]) / 6
    seen = ~np.isnan(bends)
    has_bend = seen.any(1)
    if has_bend.sum() < _FEWEST:
        return None, None
    bends, seen = np.where(seen, bends, 0.0)[has_bend], seen[has_bend]
    variance = float(bends.sum() / seen.sum()) * len(plain) / max(1.0, len(plain) - fitted)
    noise = max(variance - drift / 3, 0.25 * variance) ** 0.5
    if noise == 0:
        return 0.0, (0.0, 0.0)
    count = min(_BLOCKS, len(bends) // _SHORTEST_BLOCK)
    parts = zip(np.array_split(bends, count), np.array_split(seen, count), strict=True)
    blocks = np.array([block.sum() / held.sum() for block, held in parts])
    # Squared bends of rows one and two apart have correlations 4/9 and 1/36, so means of neighbouring blocks are alike.
    # Blocks of n rows then vary less than independent ones that would give the mean its variance.
    alike = 1 - 18 / (35 * len(bends) / count)
    deviation = float((blocks / blocks.mean()).std(ddof=1)) / (count * alike) ** 0.5
    half = float(stats.t.ppf(0.95, count - 1)) * deviation / 2
    return noise, (noise * float(np.exp(-half)), noise * float(np.exp(half)))


def _filled(rewards: np.ndarray) -> np.ndarray:
    """The rows with a reward; an arm without one has the mean of the others, which is what drawing at random earns."""
    rewards = rewards[~np.isnan(rewards).all(1)]
    return np.where(np.isnan(rewards), mean_of_held(rewards, 1)[:, None], rewards)


def _sharing(rewards: np.ndarray) -> tuple[float | None, bool | None]:
    """Mean correlation between arms in rows where both have a reward, and whether they share more than by chance."""
    rewards = rewards[_sampled(len(rewards)).ravel()]
    count = (~np.isnan(rewards)).sum(0)
    rewards = rewards[:, count >= _FEWEST]
    if not rewards.size:
        return None, None
    spread = np.nanstd(rewards, 0)
    varies = spread > 1e-12 * np.fmax.reduce(np.abs(rewards), 0)
    standard = (rewards[:, varies] - np.nanmean(rewards[:, varies], 0)) / spread[varies]
    held = (~np.isnan(standard)).sum(1)
    if (held >= 2).sum() < _FEWEST:
        return None, None
    filled = np.nan_to_num(standard)  # a missing reward counts as its arm's mean
    products = filled.T @ filled
    mean = float((products.sum() - products.trace()) / (held * (held - 1)).sum())
    g = np.random.default_rng(0)
    signs = g.choice([-1.0, 1.0], (_FLIPS, len(products)))
    flipped = ((signs @ products) * signs).sum(1) >= products.sum() * (1 - 1e-9)
    return mean, bool(flipped.mean() < _SURE) or _change_together(standard[-_SHARED_ROWS:], g)


def _change_together(rewards: np.ndarray, g: np.random.Generator) -> bool:
    """Whether the changes of arms, between means of 1, 2, 4, ... rows, correlate more than after shifts in time.

    The statistic is the cube root of the sum of squared correlations, which is nearly normal (Wilson & Hilferty 1931),
    standardised over the shifts; its maximum over the numbers of rows counts.
    """
    rows, arms = rewards.shape
    shifts = g.integers(0, rows, (1 + _SHIFTS, arms))
    shifts[0] = 0
    clearest = np.full(len(shifts), -np.inf)
    for size in (2**k for k in range(rows.bit_length()) if rows // 2**k > _CHANGES):
        blocks = rewards[rows % size :].reshape(-1, size, arms)
        changes = np.diff(mean_of_held(blocks, 1), axis=0)
        changes = np.nan_to_num(changes - mean_of_held(changes)).T
        length = np.linalg.norm(changes, axis=1, keepdims=True)
        changes /= np.where(length > 0, length, 1.0)
        at = np.arange(changes.shape[1])
        moved = (np.take_along_axis(changes, (at - by[:, None] // size) % len(at), 1) for by in shifts)
        alike = np.cbrt([max(0.0, np.square(one @ one.T).sum() - arms) for one in moved])
        clearest = np.maximum(clearest, (alike - alike.mean()) / (alike.std() or 1.0))
    return bool((clearest[1:] < clearest[0]).all())


def _gain(rewards: np.ndarray, times: np.ndarray) -> dict[str, Any]:
    """``best_fixed``, ``best_moving``, ``moving_interval`` and ``bandwidth`` of a ``Diagnosis``."""
    filled, seen = _filled(rewards), ~np.isnan(rewards).all(1)
    rewards, times = rewards[seen], times[seen]
    if len(rewards) < _FEWEST:
        return dict.fromkeys(("best_fixed", "best_moving", "moving_interval", "bandwidth"))
    worth, arm, bandwidth = best_smoothed(rewards, times)
    fixed = filled[:, filled.sum(0).argmax()]
    more = filled[np.arange(len(rewards)), arm] - fixed  # rewards that did not enter the choice of their arm
    blocks = np.array([block.mean() for block in np.array_split(more, _BLOCKS)])
    half = float(stats.t.ppf(0.95, _BLOCKS - 1) * blocks.std(ddof=1)) / _BLOCKS**0.5
    return {
        "best_fixed": float(fixed.mean()),
        "best_moving": float(worth.mean()),
        "moving_interval": (float(more.mean()) - half, float(more.mean()) + half),
        "bandwidth": bandwidth if np.isfinite(bandwidth) else None,
    }
