"""Detects columns that are not rewards: fields of a date, row counters, logs of pulls, marks of missing cells."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bandits_torch.naming import some
from bandits_torch.problems.table_cells import LATEST_YEAR

_CALENDAR = {
    *("second", "minute", "hour", "day", "weekday", "weekend", "week", "month", "quarter", "year"),
    *("dayofmonth", "dayofweek", "dow", "dayofyear", "doy", "weekofyear", "holiday"),
    *("stunde", "wochentag", "monat", "jahr"),
}
LOGGED = {"arm", "action", "variant", "choice"}  # columns of a log of pulls that say which arm was pulled
_NAMING = LOGGED | {"id", "item"}
_FEWEST_COUNTED = 3  # rows; of fewer a counter cannot be told from rewards
_STRICT_ROWS = 10  # an arm that falls or grows in every one of so many rows is a counter, or a clock
_FEWEST_DATED = 4  # rows; in fewer a column agrees with a field of the date by chance
_BINARY_ROWS = 10  # the same for two values, as a weekend has
_FAR = 10.0  # ranges of a column's other rewards between them and a number that stands for nothing
_USUAL = [-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 999999.0]
_USUAL += [-32768.0, 32767.0, -1e30, 1e30, -1e20, 1e20, -1e10, 1e10, -(2.0**31), 2.0**31 - 1]
_SAMPLE = 1000  # rows
_FEWEST_TIMES = 10  # with a reward; fewer do not show a log
_FEWEST = 3  # different rewards; fewer have no range


def refuse_calendar(names: list[str], values: np.ndarray, dates: np.ndarray | None) -> None:
    """Refuse columns that follow from the times, or that are named like a field of a date and hold integers in its
    range.

    ``dates``: the times in seconds since 1970 if they are dates, else None.
    """
    found = [name for name, column in zip(names, values.T, strict=True) if _called_so(name, column)]
    if dates is not None and len(values) >= _FEWEST_DATED:
        fields: list[np.ndarray] = []  # of all rows: they are needed where the first rows agree with one
        for k, first in enumerate(_fields(dates[:_SAMPLE])):
            for n in np.flatnonzero((values[:_SAMPLE] == first[:, None]).all(axis=0)):
                fields = fields or _fields(dates)
                kinds = len(np.unique(fields[k]))
                if kinds > 2 or (kinds == 2 and len(values) >= _BINARY_ROWS):
                    found += [names[n]] if (values[:, n] == fields[k]).all() else []
    if found:
        found = list(dict.fromkeys(found))
        raise ValueError(
            f"rewards must be given, as {', '.join(map(repr, found))} may tell the time rather than be an arm: "
            f"ignore={','.join(found)} leaves it out; if it is an arm, rewards= names it with the others"
        )


def refuse_names_of_arms(names: list[str], values: np.ndarray) -> None:
    """Refuse columns of integers that are called an id, or an arm, unless all are: they say which arm it was, or which
    user."""
    found = [
        name
        for name, column in zip(names, values.T, strict=True)
        if re.split(r"[\W_]|(?<=[a-z])(?=[A-Z])", name.strip())[-1].lower() in _NAMING
        and _whole(column[~np.isnan(column)])
    ]
    if 0 < len(found) < len(names):
        raise ValueError(
            f"rewards must be given, as {', '.join(map(repr, found))} may name something rather than be an arm: "
            f"ignore={','.join(found)} leaves it out; in a log of pulls, arm={found[0]} of `look` and `value` says "
            "which arm was pulled; if it is an arm, rewards= names it with the others"
        )


def _called_so(name: str, column: np.ndarray) -> bool:
    plain = name.strip().lower().replace(" ", "").replace("-", "").replace("_", "")
    if plain.removeprefix("is") not in _CALENDAR:
        return False
    held = column[~np.isnan(column)]
    if not len(held):
        return False
    within = held.min() >= 0 and held.max() <= (LATEST_YEAR if plain in ("year", "jahr") else 366)
    return bool(within) and _whole(held)


def _whole(numbers: np.ndarray) -> bool:
    return bool((numbers == numbers.round()).all())


def _fields(dates: np.ndarray) -> list[np.ndarray]:
    times = pd.Series(np.floor(dates).astype("datetime64[s]")).dt
    weekday = times.day_of_week
    fields = [
        times.second, times.minute, times.hour, times.day, times.month, times.quarter, times.year, times.day_of_year,
        times.isocalendar().week, weekday, weekday + 1, (weekday + 1) % 7, weekday >= 5, weekday < 5,
        100 * times.year + times.month,
    ]  # fmt: skip
    return [field.to_numpy(dtype=np.float64) for field in fields]


def refuse_counters(names: list[str], values: np.ndarray, time: str | None, asked_for: bool = False) -> None:
    """Refuse an arm that counts the rows, or that could be the times: such an arm wins every pull.

    A counter grows by 1 each row, or, in ten rows or more, always grows or always falls. Without a time column, a
    column that grows evenly, or holds integers that never fall, is also refused.

    ``time``: the column of times, None for none; ``asked_for``: whether the user named it.
    """
    if len(values) < _FEWEST_COUNTED:
        return
    first = np.diff(values[:50], axis=0)
    for n in np.flatnonzero((first >= 0).all(axis=0) | (first < 0).all(axis=0)):
        name, column, step = names[n], values[:, n], np.diff(values[:, n])
        whole = _whole(column)
        strict = len(values) >= _STRICT_ROWS and bool((step > 0).all() or (step < 0).all())
        rises = whole and bool((step >= 0).all()) and int((step > 0).sum()) >= 2
        even = step[0] > 0 and bool(np.allclose(step, step[0], rtol=1e-6, atol=0))
        if strict or (even and whole and step[0] == 1) or (time is None and (even or rises)):
            counts = f"column {name!r} counts, or only grows or falls from row to row"
            if asked_for:
                raise ValueError(
                    f"rewards must be given, as {counts} beside the times {time!r}: rewards= names the columns that "
                    "are arms"
                )
            raise ValueError(
                f"time_column must be given: {counts}, so that it may be the times: time_column={name!r} if so; "
                "rewards= with the arms' names, or time_column=None, if it is an arm"
            )


def refuse_log(rewards: np.ndarray) -> None:
    """Refuse a table (T, N) that looks like a log of pulls, whose missing rewards are those of arms nobody pulled.

    In such a table, at more than half of the times that have a reward, fewer than half of the arms have one, or only
    one does. Tables with fewer than ten times are not checked. If such a table were played, most arms could not be
    pulled, and regret would be measured against the few that were: it would be 0 if that is one.
    """
    seen, arms = (~np.isnan(rewards)).sum(1), rewards.shape[1]
    seen = seen[seen > 0]
    few, alone = int((seen < max(2.0, arms / 2)).sum()), int((seen == 1).sum())
    if len(seen) < _FEWEST_TIMES or 2 * few <= len(seen):
        return
    most_alone = 2 * alone > len(seen)
    said = f"only one of the {arms} arms has" if most_alone else f"fewer than half of the {arms} arms have"
    raise ValueError(
        f"missing must be given, as the table looks like a log of pulls: at {alone if most_alone else few} of "
        f"{len(seen)} times {said} a reward, and what the others would have paid is not known; missing='unavailable' "
        "if an arm without a reward could not be pulled then, missing='forward-fill' if its last reward still held; "
        "`bandits-torch value` takes a log"
    )


def suspects(names: Sequence[str], rewards: np.ndarray) -> list[str]:
    """A line for each number that may stand for missing rewards, such as -9999: repeated, and far outside the rest.

    Such a number is a column's smallest or largest value. Either it occurs at least twice in the column and lies
    further from the others than ten times their range, or it is a usual mark (999, -1e30) and lies further than their
    range.
    """
    found: dict[float, list[int]] = defaultdict(list)
    low, high = np.fmin.reduce(rewards), np.fmax.reduce(rewards)
    with np.errstate(over="ignore", invalid="ignore"):
        margin, first = (high - low) / _FAR, rewards[:_SAMPLE]
        spread = ((first > low + margin) & (first < high - margin)).any(axis=0)  # neither end is far outside
    doubted = [
        int(n)
        for n in np.flatnonzero(~spread | np.isin(low, _USUAL) | np.isin(high, _USUAL))
        if not ((rewards[:, n] == low[n]) | (rewards[:, n] == high[n]) | np.isnan(rewards[:, n])).all()
    ]  # two values have no range beside an end
    names, rewards = [names[n] for n in doubted], rewards[:, doubted]
    for end in (low[doubted], high[doubted]):
        usual, both = np.isin(end, _USUAL), np.isin(-end, _USUAL)
        held = rewards == end
        others = np.where(held | (both & (rewards == -end)), np.nan, rewards)
        low, high = np.fmin.reduce(others), np.fmax.reduce(others)
        with np.errstate(over="ignore", invalid="ignore"):
            gap, span = np.maximum(low - end, end - high), high - low
            far = (gap > 0) & (gap > span * np.where(usual, 1.0, _FAR)) & (usual | (held.sum(0) >= 2))
        for n in np.flatnonzero(far):
            first = others[~np.isnan(others[:, n]), n][:_SAMPLE]
            if len(np.unique(first)) >= _FEWEST:
                found[float(end[n])].append(int(n))
    lines = []
    for number, columns in sorted(found.items()):
        times = int((rewards[:, columns] == number).sum())
        lines.append(
            f"far outside the other rewards: {number:.10g}, {times} time{'s' if times > 1 else ''} in "
            f"{some([names[n] for n in columns], 3)}; missing={number:.10g} if it stands for a missing reward"
        )
    return lines
