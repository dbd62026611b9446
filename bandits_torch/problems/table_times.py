"""The times of a table: the column that holds them, their values, and columns that are not arms because they are fields
of a date or count the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch import validation
from bandits_torch.naming import close_name, some
from bandits_torch.problems.table_cells import hint_of_time, is_missing, is_numeric, number, numbers

_TIME_NAMES = {"time", "times", "t", "date", "datetime", "timestamp", "timestamps", "when", "ts", "epoch"}
_COMPACT = {6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_FEW_COLUMNS = 3  # besides the times; more do not fit a row per reward
_CALENDAR = {
    *("second", "minute", "hour", "day", "weekday", "weekend", "week", "month", "quarter", "year"),
    *("dayofmonth", "dayofweek", "dow", "dayofyear", "doy", "weekofyear", "holiday"),
    *("stunde", "wochentag", "monat", "jahr"),
}
_LATEST_YEAR = 2100
_FEWEST_COUNTED = 3  # rows; of fewer a counter cannot be told from rewards
_STRICT_ROWS = 10  # an arm that falls or grows in every one of so many rows is a counter, or a clock
_FEWEST_DATED = 4  # rows; in fewer a column agrees with a field of the date by chance
_BINARY_ROWS = 10  # the same for two values, as a weekend has


def called_like_time(names: Iterable[str]) -> list[str]:
    """The name that says time, if there is one; ValueError if several do."""
    return _at_most_one([name for name in names if name.lstrip("#_ ").rstrip().lower() in _TIME_NAMES])


def _at_most_one(found: list[str]) -> list[str]:
    if len(found) > 1:
        raise ValueError(
            f"time_column must be given, as {', '.join(map(repr, found))} may each hold the times"
        )
    return found


def find_time(frame: pd.DataFrame, asked: str | None, mark: str) -> str | None:
    """The name of the time column, "" for an index without a name; ValueError where two could be it."""
    names = list(frame.columns)
    if asked != "auto":
        close = close_name(asked, names) if isinstance(asked, str) else None
        guess = "" if close is None else f" (did you mean {close!r}?)"
        known = asked is None or asked in names
        validation.require(known, "time_column", asked, f"one of the columns {some(names)}{guess}")
        return asked
    found = called_like_time(names) or _at_most_one([name for name in names if are_times(frame[name])])
    if found:
        return found[0]
    if names[0] != "":
        return None
    try:
        counts = bool((np.diff(seconds("", frame[""], mark)[0]) > 0).all())
    except ValueError:
        counts = False
    if not counts:
        raise ValueError(
            "time_column must be given: the first column has no name and does not count; "
            "time_column=None leaves it out"
        )
    return ""


def are_times(cells: pd.Series) -> bool:
    """Whether a column of text or dates holds timestamps only."""
    if is_numeric(cells) or not len(cells) or number(cells.iloc[0], ".") is not None:
        return False
    return bool(_stamps(cells).notna().all())


def seconds(name: str, cells: pd.Series, mark: str = ".") -> tuple[np.ndarray, str]:
    """The times of a column, as given or in seconds (since 1970 for dates), and their unit in words."""
    empty = cells.isna() if is_numeric(cells) else cells.map(is_missing)
    if empty.any():
        row = int(empty.to_numpy().argmax())
        raise ValueError(f"row {row + 1}, column {name!r} must hold a time, got an empty cell")
    if not is_numeric(cells) and all(isinstance(cell, pd.Timedelta) for cell in cells):
        return np.array([cell.total_seconds() for cell in cells]), "seconds, from durations"
    try:
        found = numbers(name, cells, mark)
    except ValueError:
        pass
    else:
        dates = _compact(found)
        return (found, "as given") if dates is None else (_since_1970(dates), "seconds, from dates")
    stamps = _stamps(cells)
    wrong = stamps.isna().to_numpy()
    if wrong.any():
        numeric = np.array([number(cell, mark) is not None for cell in cells])
        row = int((~numeric if numeric.mean() > 0.5 else wrong).argmax())  # the word among numbers
        raise ValueError(
            f"row {row + 1}, column {name!r} must be a number or an ISO 8601 timestamp, got {cells.iloc[row]!r}"
            f"{hint_of_time(cells.iloc[row])}"
        )
    return _since_1970(stamps), "seconds, from timestamps"


def _compact(values: np.ndarray) -> pd.Series | None:
    """Dates written as one number (202401, 20240131, 202401311200), if all values are."""
    if not np.isfinite(values).all() or (values < 1).any() or (values != values.round()).any():
        return None
    texts = pd.Series(values).map("{:.0f}".format)
    lengths = set(texts.str.len())
    if len(lengths) > 1 or lengths.isdisjoint(_COMPACT):
        return None
    stamps = pd.to_datetime(texts, format=_COMPACT[lengths.pop()], errors="coerce", utc=True)
    return stamps if stamps.dt.year.between(1900, _LATEST_YEAR).all() else None


def _stamps(cells: Any) -> pd.Series:
    return pd.to_datetime(cells, errors="coerce", utc=True, format="ISO8601")


def _since_1970(stamps: pd.Series) -> np.ndarray:
    return (stamps - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64, copy=True)


def refuse_calendar(names: list[str], values: np.ndarray, dates: np.ndarray | None) -> None:
    """Refuse columns that follow from the times, or are called like a field of a date and hold whole numbers in range.

    ``dates``: the times in seconds since 1970 if they are dates, else None.
    """
    found = [name for name, column in zip(names, values.T, strict=True) if _called_so(name, column)]
    if dates is not None and len(values) >= _FEWEST_DATED:
        for field in _fields(pd.to_datetime(pd.Series(dates), unit="s").dt):
            kinds = len(np.unique(field))
            if kinds > 2 or (kinds == 2 and len(field) >= _BINARY_ROWS):
                found += [names[n] for n in np.flatnonzero((values == field[:, None]).all(axis=0))]
    if found:
        found = list(dict.fromkeys(found))
        raise ValueError(
            f"rewards must be given, as {', '.join(map(repr, found))} may tell the time rather than be an arm: "
            f"ignore={','.join(found)} leaves it out; if it is an arm, rewards= names it with the others"
        )


def _called_so(name: str, column: np.ndarray) -> bool:
    plain = name.strip().lower().replace(" ", "").replace("-", "").replace("_", "")
    if plain.removeprefix("is") not in _CALENDAR:
        return False
    held = column[~np.isnan(column)]
    if not len(held):
        return False
    within = held.min() >= 0 and held.max() <= (_LATEST_YEAR if plain in ("year", "jahr") else 366)
    return bool(within and (held == held.round()).all())


def _fields(times: Any) -> list[np.ndarray]:
    weekday = times.day_of_week
    fields = [
        times.second, times.minute, times.hour, times.day, times.month, times.quarter, times.year, times.day_of_year,
        times.isocalendar().week, weekday, weekday + 1, (weekday + 1) % 7, weekday >= 5, weekday < 5,
        100 * times.year + times.month,
    ]  # fmt: skip
    return [field.to_numpy(dtype=np.float64) for field in fields]


def refuse_counters(names: list[str], values: np.ndarray, time: str | None, asked_for: bool = False) -> None:
    """Refuse an arm that counts the rows, or that could be the times: such an arm wins every pull.

    It grows by 1, or in ten rows and more grows or falls every time; without a column of times also if it grows evenly,
    or holds whole numbers that never fall.

    ``time``: the column of times, None for none; ``asked_for``: whether the user named it.
    """
    if len(values) < _FEWEST_COUNTED:
        return
    first = np.diff(values[:50], axis=0)
    for n in np.flatnonzero((first >= 0).all(axis=0) | (first < 0).all(axis=0)):
        name, column, step = names[n], values[:, n], np.diff(values[:, n])
        whole = bool((column == column.round()).all())
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


def why_not_rising(times: np.ndarray, names: Collection[str]) -> str:
    """Advice about times that repeat or go back."""
    long = "long=True if a row is one reward; " if len(names) <= _FEW_COLUMNS else ""
    if (np.diff(times) < 0).any():
        return (
            f"{long}sort the rows by time; local times go back when summer time ends: write them with their offset "
            "from UTC"
        )
    return f"{long}time_column= names another"
