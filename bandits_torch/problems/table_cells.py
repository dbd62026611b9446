"""Cells of a table as numbers: their decimal mark, words for missing cells, and advice about cells that are no numbers.

Cells are columns of a ``DataFrame``: of numbers, or of objects (text, as a rule).
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Iterable
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

MISSING = ("", "na", "nan", "n/a", "#n/a", "null", "none", "-", "--", "?")  # in lower case, without blanks
_BLANKS = " \u00a0\u202f'_’"  # between groups of three digits
_INFINITE = re.compile(r"[+-]?(inf|infinity)", re.IGNORECASE)
_MOST = 0.5  # of a column's cells: more make it a column of text


def is_numeric(cells: pd.Series) -> bool:
    """Whether pandas holds the column as real numbers."""
    return cells.dtype.kind in "iuf"


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty or says that it holds nothing."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return np.ndim(cell) == 0 and bool(pd.isna(cell))


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
    """A column as float64, NaN where a cell is missing; ValueError names the first cell that is no number."""
    if is_numeric(cells):
        return cells.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    found = [np.nan if is_missing(cell) else number(cell, mark) for cell in cells]
    if None in found:
        row = found.index(None)
        cell = cells.iloc[row]
        raise ValueError(
            f"row {row + 1}, column {name!r} must be a number or empty, got {cell!r}{hint_of_cell(cell)}"
        )
    return np.array(found, dtype=np.float64)


def decimal_mark(cells: Iterable[Any], points_may_group: bool = False) -> str | None:
    """The decimal mark of text cells: "." or ",", or None where they may mean either.

    A cell that reads as a number with one mark only settles it. One that reads as two different numbers, as 1,234 does,
    leaves it open unless another cell settles it. ``points_may_group``: whether that holds for 1.234 too, as in tables
    whose cells no comma separates, because it is their decimal mark; else the point is taken for the decimal mark.
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


def words(cells: pd.Series, mark: str) -> pd.Series:
    """The words in a column of text, by row; an empty series for any other column.

    In a column of text most of the cells that are not empty hold words: neither numbers nor what may be meant for
    numbers (dates, currencies, true and false). One word that recurs among numbers may stand for a missing one.
    """
    held = cells[[not is_missing(cell) for cell in cells]]
    found = held[
        [isinstance(one, str) and number(one, mark) is None and not hint_of_form(one) for one in held]
    ]
    recurs = len(found) < len(held) and found.nunique() == 1
    return found if len(found) > _MOST * len(held) and not recurs else found[:0]


# --- advice about a cell that cannot be read, as the end of a message ---

_DAYS_FIRST = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4}|\d{2})(\D.*)?")
_MONTH = re.compile(
    r"(?i)(?=.*\d).*\b(jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-z]*\b.*"
)
_DURATION = re.compile(
    r"(?i)[+-]?(\d+ days?\b.*|(\d+ days?,? )?\d{1,3}:\d{2}(:\d{2}(\.\d+)?)?|P\d*.*T?\d+[HMSDW])"
)
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?")
_DIGITS = r"[+\-\u2212]?\d[\d.,' \u00a0\u202f]*([eE][+-]?\d+)?"
_LOGICAL = {"true", "false", "yes", "no", "ja", "nein", "wahr", "falsch"}
_COLUMNS = "time_column= names the times, rewards= the columns that are arms"


def hint_of_cell(cell: Any) -> str:
    """What to do about a cell that is no number."""
    hint = hint_of_form(cell)
    if hint or not isinstance(cell, str):
        return hint
    return (
        f" (missing={cell.strip()!r} if such a cell holds nothing; rewards= names the columns that are arms)"
    )


def hint_of_form(cell: Any) -> str:
    """What to do about a cell of a known form that is no number; nothing for other text."""
    if isinstance(cell, (datetime.date, datetime.timedelta)):
        return f" ({_COLUMNS})"
    if isinstance(cell, complex):
        return " (a reward is a real number: take its absolute value, or its real part)"
    if np.ndim(cell) or isinstance(cell, dict):
        return " (a cell is one number)"
    text = str(cell).strip()
    if text.lower() in _LOGICAL:
        return " (write what is true or false as 1 and 0)"
    if _DATE.fullmatch(text):
        return f" ({_COLUMNS})"
    if hint_of_time(text):
        return f"{hint_of_time(text)[:-1]}; {_COLUMNS})"
    if any(c.isdecimal() and not c.isascii() for c in text):
        return " (write digits as 0 to 9)"
    if re.fullmatch(rf"\({_DIGITS}\)", text):
        return " (write a negative number with a minus)"
    if "#" not in text and re.fullmatch(rf"([^\w\s.,+\-]+ ?|[^\W\d_]+ )?{_DIGITS} ?([^\d\s]+)?", text):
        return " (write the number alone, without unit, currency or per cent sign; decimal= sets its decimal mark)"
    return ""


def hint_of_time(cell: Any) -> str:
    """What to do about a cell that is no time."""
    text = str(cell).strip()
    found = _DAYS_FIRST.fullmatch(text)
    if found is not None:
        ambiguous = max(int(found[1]), int(found[2])) <= 12
        return f" (write dates as 2024-01-31{': a day and a month cannot be told apart here' if ambiguous else ''})"
    if _MONTH.fullmatch(text):
        return " (write dates as 2024-01-31, months as numbers)"
    if _DURATION.fullmatch(text):
        return " (write durations as a number, of seconds, say, and times of day with their date)"
    return " (write dates as 2024-01-31)" if _DATE.fullmatch(text) else ""
