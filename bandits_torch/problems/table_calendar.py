"""Columns of a table that say when, not what: hours, weekdays and months beside the times."""

from __future__ import annotations

import numpy as np
import pandas as pd

_NAMED = {  # by name: least and greatest
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 24),
    "day": (0, 366),
    "day_of_month": (1, 31),
    "weekday": (0, 7),
    "day_of_week": (0, 7),
    "dow": (0, 7),
    "day_of_year": (1, 366),
    "doy": (1, 366),
    "week": (0, 53),
    "week_of_year": (0, 53),
    "month": (1, 12),
    "quarter": (1, 4),
    "year": (1900, 2100),
    "weekend": (0, 1),
    "holiday": (0, 1),
    "stunde": (0, 24),
    "wochentag": (0, 7),
    "monat": (1, 12),
    "jahr": (1900, 2100),
}
_BINARY_ROWS = 10  # of two values fewer rows agree with a weekend by chance
_FEWEST = 4  # rows


def calendar_columns(names: list[str], values: np.ndarray, seconds: np.ndarray | None) -> list[str]:
    """The columns that follow from the times, or are called so and hold whole numbers in their range.

    ``seconds``: the times since 1970 if they are dates, else None.
    """
    found = [name for n, name in enumerate(names) if _called_so(name, values[:, n])]
    if seconds is None or len(values) < _FEWEST:
        return found
    for fields in _fields(pd.Series(pd.to_datetime(seconds, unit="s"))):
        if len(np.unique(fields)) < 2:
            continue
        same = np.flatnonzero((values[:_FEWEST] == fields[:_FEWEST, None]).all(axis=0))
        binary = len(np.unique(fields)) == 2 and len(values) < _BINARY_ROWS
        found += [names[int(n)] for n in same if not binary and np.array_equal(values[:, n], fields)]
    return list(dict.fromkeys(found))


def _called_so(name: str, column: np.ndarray) -> bool:
    plain = name.strip().lower().replace(" ", "_").replace("-", "_").removeprefix("is_")
    span = _NAMED.get(plain) or _NAMED.get(plain.replace("of", "_of_"))
    held = column[~np.isnan(column)]
    if span is None or not len(held):
        return False
    return bool((held == np.round(held)).all() and held.min() >= span[0] and held.max() <= span[1])


def _fields(times: pd.Series) -> list[np.ndarray]:
    stamps = times.dt
    weekday, week = stamps.day_of_week, stamps.isocalendar().week
    fields = [
        stamps.second, stamps.minute, stamps.hour, stamps.day, stamps.month, stamps.quarter, stamps.year,
        stamps.day_of_year, week, weekday, weekday + 1, (weekday + 1) % 7, (weekday >= 5).astype(int),
        (weekday < 5).astype(int), 100 * stamps.year + stamps.month,
    ]  # fmt: skip
    return [field.to_numpy(dtype=np.float64) for field in fields]
