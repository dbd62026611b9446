"""Cells of a table: text to numbers and to times, as they were meant or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch.problems.table_hints import hint_of_cell, hint_of_form, hint_of_time

MISSING = ("", "na", "nan", "n/a", "#n/a", "null", "none", "-", "--", "?")  # in lower case, blanks stripped
_POINT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?")
_GROUPED = {  # by decimal mark: groups of three between spaces, apostrophes, underscores or the other mark
    ".": re.compile(
        r"[+-]?[1-9]\d{0,2}(([,])\d{3})+(\.\d*)?|[+-]?[1-9]\d{0,2}(([ \u00a0\u202f'_’])\d{3})+(\.\d*)?"
    ),
    ",": re.compile(
        r"[+-]?[1-9]\d{0,2}(([.])\d{3})+(,\d*)?|[+-]?[1-9]\d{0,2}(([ \u00a0\u202f'_’])\d{3})+(,\d*)?"
    ),
}
_THOUSANDS = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}(\{mark}\d{{3}})+") for mark in ",."}
_NUMERIC = re.compile(r"[+-]?[\d.,]+([ \u00a0\u202f'_’]\d{3})*([.,]\d*)?([eE][+-]?\d+)?")
_WORDS = re.compile(r"[+-]?(inf|infinity)", re.IGNORECASE)
_MOST = 0.5
_COMPACT = {6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty or says that it holds nothing."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return np.ndim(cell) == 0 and bool(pd.isna(cell))


def decimal_mark(columns: Sequence[Sequence[Any]], points_may_group: bool = False) -> str | None:
    """The decimal mark of a table's text cells: "." or ",", or None where they may mean either.

    ``points_may_group``: whether 1.234 may be meant for 1234 where no cell tells, as in tables whose cells no comma
    separates, because it is their decimal mark.
    """
    seen: set[str] = set()
    for column in columns:
        for cell in {cell for cell in column if isinstance(cell, str)}:
            if _NUMERIC.fullmatch(as_written(cell)):
                seen |= _marks(as_written(cell))
    if {".", ","} <= seen:
        return None
    if seen & {".", ","}:
        return (seen & {".", ","}).pop()
    return None if "either" in seen or (points_may_group and "grouped" in seen) else "."


def as_written(cell: str) -> str:
    """A cell without blanks round it, its minus sign (U+2212) as programs write it."""
    return cell.strip().replace("\u2212", "-")


def _marks(cell: str) -> set[str]:
    """What a cell tells of the decimal mark: that it is one of the two, either, or, of "grouped", maybe a comma."""
    if all(_number(cell, mark) is None for mark in ".,"):  # a date, an address
        return set()
    if re.search(
        r"[ \u00a0\u202f'_’]", cell
    ):  # what separates thousands is seen: another mark is the decimal one
        return set(cell) & {".", ","}
    if "," not in cell:  # a point stands in what is usually written; a group of three may be thousands
        if "." not in cell:
            return set()
        if _THOUSANDS["."].fullmatch(cell) is None:
            return {"."}
        return {","} if cell.count(".") > 1 else {"grouped"}
    if "." in cell:
        return {"." if cell.rindex(".") > cell.rindex(",") else ","}
    if cell.count(",") > 1:
        return {"."}
    return {"either"} if _THOUSANDS[","].fullmatch(cell) else {","}


def numbers(name: str, cells: Any, mark: str = ".") -> np.ndarray:
    """A column as float64, NaN where a cell is missing; ValueError names the first cell that is no number."""
    array = np.asarray(cells)
    if array.dtype.kind in "fiu":
        return np.array(array, dtype=np.float64)
    found = np.full(len(array), np.nan)
    for row, cell in enumerate(array.tolist() if array.dtype.kind == "O" else array):
        if is_missing(cell):
            continue
        number = _number(cell, mark)
        if number is None:
            shown = bool(cell) if isinstance(cell, np.bool_) else cell
            raise ValueError(
                f"row {row + 1}, column {name!r} must be a number or empty, got {shown!r}{hint_of_cell(cell)}"
            )
        found[row] = number
    return found


def first_text(cells: Any, mark: str) -> tuple[int, str] | None:
    """Row from 0 and content of the first cell of text, in a column of it; None for any other column.

    In a column of text most of the cells that hold something hold words: neither numbers nor what may be meant for them
    (dates, currencies, true and false). One word that recurs among numbers may stand for a missing one.
    """
    array = np.asarray(cells)
    held = [(row, cell) for row, cell in enumerate(array.tolist()) if not is_missing(cell)]
    words = [
        (row, cell)
        for row, cell in held
        if isinstance(cell, str) and _number(cell, mark) is None and not hint_of_form(cell)
    ]
    recurs = len(words) < len(held) and len({cell for _, cell in words}) == 1
    return words[0] if len(words) > _MOST * len(held) and not recurs else None


def _number(cell: Any, mark: str) -> float | None:
    if not isinstance(cell, str):
        try:
            a_number = isinstance(cell, (Real, Decimal)) and not isinstance(cell, (bool, np.timedelta64))
            return float(cell) if a_number else None
        except (TypeError, ValueError, OverflowError):
            return None
    text = as_written(cell)
    if not text.isascii() and not any(c in text for c in "\u00a0\u202f’"):
        return None
    if (_POINT if mark == "." else _COMMA).fullmatch(text) or _WORDS.fullmatch(text):
        return float(text.replace(",", "."))
    if _GROUPED[mark].fullmatch(text):
        digits = re.sub(r"[ \u00a0\u202f'_’]", "", text).replace("." if mark == "," else ",", "")
        return float(digits.replace(",", "."))
    return None


def are_times(cells: Any) -> bool:
    """Whether a column of text or dates is timestamps, each of them."""
    array = np.asarray(cells)
    if array.dtype.kind == "M" or isinstance(getattr(cells, "dtype", None), pd.DatetimeTZDtype):
        return True
    if array.dtype.kind not in "OU" or not len(array):
        return False
    first = array.tolist()[0]
    if isinstance(first, str) and _number(first, ".") is not None:
        return False
    return not bool(_stamps(cells).isna().any())


def times(name: str, cells: Any, mark: str = ".") -> tuple[np.ndarray, str]:
    """A time column in its own unit, or in seconds, since 1970 for dates; and the unit."""
    array = np.asarray(cells)
    empty = [is_missing(cell) for cell in array.tolist()] if array.dtype.kind in "OU" else pd.isna(array)
    if np.any(empty):
        row = int(np.argmax(empty))
        raise ValueError(f"row {row + 1}, column {name!r} must hold a time, got an empty cell")
    if array.dtype.kind == "m":
        return pd.Series(array).dt.total_seconds().to_numpy(
            dtype=np.float64, copy=True
        ), "seconds, from durations"
    if array.dtype.kind != "M":
        try:
            found = numbers(name, array, mark)
        except ValueError:
            pass
        else:
            dates = _compact(found)
            return (found, "as given") if dates is None else (_seconds(dates), "seconds, from dates")
    stamps = _stamps(cells)
    if stamps.isna().any():
        wrong, numeric = (
            stamps.isna(),
            pd.Series([_number(cell, mark) is not None for cell in array.tolist()]),
        )
        if numeric.mean() > _MOST:  # a word among numbers, not a number among dates
            wrong = ~numeric
        row = int(wrong.to_numpy().argmax())
        cell = array.tolist()[row]
        raise ValueError(
            f"row {row + 1}, column {name!r} must be a number or an ISO 8601 timestamp, got {cell!r}"
            f"{hint_of_time(cell)}"
        )
    return _seconds(stamps), "seconds, from timestamps"


def _compact(values: np.ndarray) -> pd.Series | None:
    """Dates written as one number (202401, 20240131, 202401311200), if all values are."""
    lengths = {
        len(str(int(v))) if np.isfinite(v) and v == int(v) and v > 0 else 0 for v in (values[0], values[-1])
    }
    if len(lengths) != 1 or lengths.isdisjoint(_COMPACT):
        return None
    if not (np.isfinite(values).all() and (values == values.round()).all()):
        return None
    texts = pd.Series(values.astype(np.int64)).astype(str)
    stamps = pd.to_datetime(texts, format=_COMPACT[lengths.pop()], errors="coerce", utc=True)
    plausible = stamps.notna().all() and stamps.dt.year.between(1900, 2100).all()
    return stamps if plausible else None


def _stamps(cells: Any) -> pd.Series:
    return pd.to_datetime(pd.Series(list(cells)), errors="coerce", utc=True, format="ISO8601")


def _seconds(stamps: pd.Series) -> np.ndarray:
    return (stamps - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64, copy=True)
