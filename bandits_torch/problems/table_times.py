"""Which column of a table holds the times, and which would be mistaken for an arm."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from bandits_torch import validation
from bandits_torch.naming import close_name, some
from bandits_torch.problems.table_cells import are_times, times
from bandits_torch.problems.table_files import Columns

_TIME_NAMES = {"time", "times", "t", "date", "datetime", "timestamp", "timestamps", "when", "ts", "epoch"}
_FEW = 3  # rows; of fewer it cannot be said that they count
_MANY = 10  # rows; an arm that falls or grows in every one of them is a counter, or a clock
_FEW_COLUMNS = 3  # beside the times; more do not fit a row per reward
_RISES = 2  # of a column of whole numbers that never falls


def find_time(columns: Columns, asked: str | None, mark: str) -> str | None:
    """The name of the time column, "" for an index without a name; ValueError where two could be it."""
    if asked != "auto":
        validation.require(
            asked is None or asked in columns,
            "time_column",
            asked,
            f"one of the columns {some(columns)}{_guess(asked, columns)}",
        )
        return asked
    called = called_like_time(columns)
    dated = [name for name in columns if name not in called and are_times(columns[name])]
    found = called or dated
    if len(found) > 1:
        raise ValueError(
            f"time_column must be given, as {', '.join(map(repr, found))} may each hold the times"
        )
    first = next(iter(columns))
    if found and first == "" and found != [""]:
        del columns[""]  # an index beside the times
    elif not found and first == "":
        if not _increases(columns[""], mark):
            raise ValueError(
                "time_column must be given: the first column has no name and does not count; "
                "time_column=None leaves it out"
            )
        return ""
    return found[0] if found else None


def _guess(asked: object, columns: Columns) -> str:
    close = close_name(asked, columns) if isinstance(asked, str) else None
    return "" if close is None else f" (did you mean {close!r}?)"


def _increases(cells: Any, mark: str) -> bool:
    try:
        values, _ = times("", cells, mark)
    except ValueError:
        return False
    return bool((np.diff(values) > 0).all())


def refuse_counters(names: list[str], values: np.ndarray, time: str | None, asked_for: bool = False) -> None:
    """Refuse an arm that counts the rows, or that could be times nobody named: such an arm wins every pull.

    That is one that grows by 1, or in ten rows and more grows or falls every time; and without a column of times one
    that grows evenly, or of whole numbers that never falls.

    ``time``: the column of times, None for none; ``asked_for``: whether it was named as such.
    """
    if len(values) < _FEW:
        return
    timeless = time is None
    first = np.diff(values[:50], axis=0)
    for n in np.flatnonzero((first >= 0).all(axis=0) | (first < 0).all(axis=0)):
        name, column, step = names[n], values[:, n], np.diff(values[:, n])
        whole, never_falls = bool((column == np.round(column)).all()), bool((step >= 0).all())
        strict = len(values) >= _MANY and bool((step > 0).all() or (step < 0).all())
        rises = whole and never_falls and int((step > 0).sum()) >= _RISES
        even = step[0] > 0 and bool(np.allclose(step, step[0], rtol=1e-6, atol=0))
        if strict or (even and whole and step[0] == 1) or (timeless and (even or rises)):
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


def why_not_rising(times: np.ndarray, names: Collection[str]) -> str:
    """What to do about times that repeat or go back."""
    long = "long=True if a row is one reward; " if len(names) <= _FEW_COLUMNS else ""
    if bool((np.diff(times) < 0).any()):
        return (
            f"{long}sort the rows by time; local times go back when summer time ends: write them with their offset "
            "from UTC"
        )
    return f"{long}time_column= names another"


def called_like_time(names: Collection[str]) -> list[str]:
    """The names that say time."""
    return [name for name in names if name.lstrip("#_ ").rstrip().lower() in _TIME_NAMES]
