"""Reads columns of a table as numbers or times: decimal marks, words for missing cells, dates, and the time column.

A column is a ``pandas.Series`` of numbers, or of objects (text, as a rule).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch import validation
from bandits_torch.naming import close_name, some

MISSING = ("", "na", "nan", "n/a", "#n/a", "null", "none", "-", "--", "?")  # in lower case, without blanks
_BLANKS = " \u00a0\u202f'_’"  # between groups of three digits
_INFINITE = re.compile(r"[+-]?(inf|infinity)", re.IGNORECASE)
# A cell that may be meant for a number or a date: a digit first, but for signs, currency or the name of a month.
_MEANT = re.compile(r"(?is)[^\w#]*([^\W\d_]{1,3} )?\d.*|true|false|yes|no|ja|nein|wahr|falsch")
_ADVICE = "write numbers as -1234.5 without a unit, true as 1, dates as 2024-01-31, durations as seconds"
LATEST_YEAR = 2100
_TIME_NAMES = {"time", "times", "t", "date", "datetime", "timestamp", "timestamps", "when", "ts", "epoch"}
_FIRST = 50  # cells that are read before all are
_COMPACT = {6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


def is_numeric(cells: pd.Series) -> bool:
    """Whether pandas holds the column as real numbers."""
    return cells.dtype.kind in "iuf"


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty or holds a word for a missing value."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return np.ndim(cell) == 0 and bool(pd.isna(cell))


def empty_row(cells: pd.Series) -> int | None:
    """The first row without a value, counted from 1; None if there is none."""
    empty = (cells.isna() if is_numeric(cells) else cells.map(is_missing)).to_numpy()
    return int(empty.argmax()) + 1 if empty.any() else None


@functools.cache
def _number_form(mark: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of numbers with this decimal mark: plain, and in groups of three digits."""
    other = "," if mark == "." else "."
    plain = rf"[+-]?(\d+\{mark}?\d*|\{mark}\d+)([eE][+-]?\d+)?"
    grouped = rf"[+-]?[1-9]\d{{0,2}}([{_BLANKS}{other}])\d{{3}}(\1\d{{3}})*(\{mark}\d*)?"
    return re.compile(plain, re.ASCII), re.compile(grouped, re.ASCII)


def number(cell: Any, mark: str) -> float | None:
    """The number in a cell, None if it holds no number."""
    if not isinstance(cell, str):
        try:
            return float(cell) if isinstance(cell, (Real, Decimal)) and not isinstance(cell, bool) else None
        except (TypeError, ValueError, OverflowError):
            return None
    text = cell.strip().replace("\u2212", "-")  # the minus sign of print
    plain, grouped = _number_form(mark)
    if plain.fullmatch(text) or _INFINITE.fullmatch(text):
        return float(text.replace(",", "."))
    found = grouped.fullmatch(text)
    return None if found is None else float(text.replace(found[1], "").replace(",", "."))


def numbers(name: str, cells: pd.Series, mark: str = ".") -> np.ndarray:
    """A column as float64, NaN where a cell is missing. Raises ValueError that names the first cell without a
    number."""
    if is_numeric(cells):
        return cells.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    found = [np.nan if is_missing(cell) else number(cell, mark) for cell in cells]
    if None in found:
        row = found.index(None)
        cell = cells.iloc[row]
        word = is_word(cell)
        advice = (
            f"missing={cell.strip()!r} if such a cell holds nothing; "
            if word
            else f"{_ADVICE}; time_column= names the times, decimal= the mark, "
        )
        raise ValueError(
            f"row {row + 1}, column {name!r} must be a number or empty, got {cell!r} ({advice}rewards= names the "
            "columns that are arms)"
        )
    return np.array(found, dtype=np.float64)


def is_word(cell: Any) -> bool:
    """Whether a cell is text that is not meant as a number or a date."""
    return isinstance(cell, str) and not _MEANT.fullmatch(cell.strip())


def words(cells: pd.Series) -> pd.Series:
    """The words in a column of text, by row; an empty series for any other column.

    In a column of text more than half of the cells that are not empty are words. One word that recurs among numbers
    may stand for a missing one.
    """
    held = cells[[not is_missing(cell) for cell in cells]]
    found = held[[is_word(cell) for cell in held]]
    recurs = len(found) < len(held) and found.nunique() == 1
    return found if 2 * len(found) > len(held) and not recurs else found[:0]


# --- decimal marks ---


def decimal_mark(cells: Iterable[Any], points_may_group: bool = False) -> str | None:
    """The decimal mark of text cells: "." or ",", or None where they may mean either.

    A cell that reads as a number with one mark only settles it. One that reads as two different numbers, as 1,234 does,
    leaves it open unless another cell settles it. ``points_may_group``: whether that also holds for 1.234, as in tables
    where the comma does not separate cells and may be the decimal mark; otherwise the point is the decimal mark.
    """
    sure, doubtful = _marks(cells)
    if sure:
        return sure.pop() if len(sure) == 1 else None
    return None if "," in doubtful or (doubtful and points_may_group) else "."


def sure_mark(cells: Iterable[Any]) -> str | None:
    """The decimal mark that a cell settles, None if none does or two contradict each other."""
    sure, _ = _marks(cells)
    return sure.pop() if len(sure) == 1 else None


def _marks(cells: Iterable[Any]) -> tuple[set[str], set[str]]:
    """The marks that some cell needs, and the marks in cells that read as another number with the other mark."""
    sure, doubtful = set(), set()
    for cell in {cell for cell in cells if isinstance(cell, str)}:
        with_point, with_comma = number(cell, "."), number(cell, ",")
        if with_point is None or with_comma is None:
            sure |= {"."} if with_point is not None else {","} if with_comma is not None else set()
        elif with_point != with_comma:
            doubtful |= {"," if "," in cell else "."}
    return sure, doubtful


# --- times ---


def called_like_time(names: Iterable[str]) -> list[str]:
    """The column whose name says time, if there is one. Raises ValueError if there are several."""
    return _at_most_one([name for name in names if name.lstrip("#_ ").rstrip().lower() in _TIME_NAMES])


def _at_most_one(found: list[str]) -> list[str]:
    if len(found) > 1:
        raise ValueError(f"time_column must be given, as {', '.join(map(repr, found))} may hold the times")
    return found


def find_time(frame: pd.DataFrame, asked: str | None, mark: str) -> str | None:
    """The name of the time column, "" for an index without a name. Raises ValueError if two columns could be it."""
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
    return _timestamps(cells) is not None


def _timestamps(cells: pd.Series) -> pd.Series | None:
    """The timestamps of a column of text or dates, None if a cell holds none."""
    if is_numeric(cells) or not len(cells) or number(cells.iloc[0], ".") is not None:
        return None
    if _stamps(cells.iloc[:_FIRST]).isna().any():
        return None
    stamps = _stamps(cells)
    return None if stamps.isna().any() else stamps


def seconds(name: str, cells: pd.Series, mark: str = ".") -> tuple[np.ndarray, str]:
    """The times of a column, as given or in seconds (for dates since 1970, in UTC if they have a zone), and their unit
    in words."""
    known = _timestamps(cells)
    if known is not None:
        zone = ", in UTC" if pd.Timestamp(cells.iloc[0]).tz is not None else ""
        return _since_1970(known), f"seconds, from timestamps{zone}"
    row = empty_row(cells)
    if row is not None:
        raise ValueError(f"row {row}, column {name!r} must hold a time, got an empty cell")
    if not is_numeric(cells) and all(isinstance(cell, pd.Timedelta) for cell in cells):
        return np.array([cell.total_seconds() for cell in cells]), "seconds, from durations"
    try:
        found = numbers(name, cells, mark)
    except ValueError:
        stamps, kind = _stamps(cells), "timestamps"
    else:
        dates = _compact(found)
        if dates is None:
            return found, "as given"
        stamps, kind = dates, "dates"
    wrong = stamps.isna().to_numpy()
    if wrong.any():
        numeric = np.array([number(cell, mark) is not None for cell in cells])
        row = int((~numeric if numeric.mean() > 0.5 else wrong).argmax())  # the word among numbers
        raise ValueError(
            f"row {row + 1}, column {name!r} must be a number or an ISO 8601 timestamp, got {cells.iloc[row]!r} "
            f"({_ADVICE}; time_column= names the times)"
        )
    return _since_1970(stamps), f"seconds, from {kind}"


def _since_1970(stamps: pd.Series) -> np.ndarray:
    return (
        (stamps - pd.Timestamp("1970-01-01", tz="UTC"))
        .dt.total_seconds()
        .to_numpy(dtype=np.float64, copy=True)
    )


def _compact(values: np.ndarray) -> pd.Series | None:
    """Dates written as one number (202401, 20240131, 202401311200), if all values are."""
    if not np.isfinite(values).all() or (values < 1).any() or (values != values.round()).any():
        return None
    texts = pd.Series(values).map("{:.0f}".format)
    lengths = set(texts.str.len())
    if len(lengths) > 1 or lengths.isdisjoint(_COMPACT):
        return None
    stamps = pd.to_datetime(texts, format=_COMPACT[lengths.pop()], errors="coerce", utc=True)
    return stamps if stamps.dt.year.between(1900, LATEST_YEAR).all() else None


def _stamps(cells: Any) -> pd.Series:
    return pd.to_datetime(cells, errors="coerce", utc=True, format="ISO8601")
