"""What a cell that cannot be read was perhaps meant for, as the end of a message."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np

_DAYS_FIRST = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4}|\d{2})(\D.*)?")
_MONTH = re.compile(r"(?i)\b(jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-z]*\b")
_DURATION = re.compile(
    r"(?i)[+-]?(\d+ days?\b.*|(\d+ days?,? )?\d{1,3}:\d{2}(:\d{2}(\.\d+)?)?|P\d*.*T?\d+[HMSDW])"
)
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?")
_NUMBER = r"[+\-\u2212]?\d[\d.,' \u00a0\u202f]*([eE][+-]?\d+)?"
_WORDS = {"true", "false", "yes", "no", "ja", "nein", "wahr", "falsch"}


def hint_of_cell(cell: Any) -> str:
    """What to do about a cell that is no number."""
    if hint_of_form(cell) or not isinstance(cell, str):
        return hint_of_form(cell)
    return (
        f" (missing={cell.strip()!r} if such a cell holds nothing; rewards= names the columns that are arms)"
    )


def hint_of_form(cell: Any) -> str:
    """What to do about a cell of a known form that is no number; nothing for other text."""
    if isinstance(cell, (bool, np.bool_)) or (isinstance(cell, str) and cell.strip().lower() in _WORDS):
        return " (write what is true or false as 1 and 0)"
    if isinstance(cell, (complex, np.complexfloating)):
        return " (a reward is a real number: take its absolute value, or its real part)"
    if isinstance(cell, (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)):
        return " (time_column= names the times, rewards= the columns that are arms)"
    if not isinstance(cell, str):
        return " (a cell is one number)" if np.ndim(cell) or isinstance(cell, (dict, list)) else ""
    text = cell.strip()
    if any(form.fullmatch(text) for form in (_DATE, _DAYS_FIRST, _DURATION)) or _dated(text):
        form = "" if _DATE.fullmatch(text) else f"{hint_of_time(cell)[2:-1]}; "
        return f" ({form}time_column= names the times, rewards= the columns that are arms)"
    if not text.isascii() and any(c.isdecimal() and not c.isascii() for c in text):
        return " (write digits as 0 to 9)"
    if re.fullmatch(rf"\({_NUMBER}\)", text):
        return " (write a negative number with a minus)"
    if "#" not in text and re.fullmatch(rf"([^\w\s.,+\-]+ ?|[^\W\d_]+ )?{_NUMBER} ?([^\d\s]+)?", text):
        return " (write the number alone, without unit, currency or sign of per cent; decimal= tells its decimal mark)"
    return ""


def hint_of_time(cell: Any) -> str:
    """What to do about a cell that is no time."""
    text = cell.strip() if isinstance(cell, str) else ""
    found = _DAYS_FIRST.fullmatch(text)
    if found is not None:
        first, second = int(found[1]), int(found[2])
        told = "" if max(first, second) > 12 else ": a day and a month cannot be told apart here"
        return f" (write dates as 2024-01-31{told})"
    if _dated(text):
        return " (write dates as 2024-01-31, months as numbers)"
    if _DURATION.fullmatch(text):
        return " (write durations as a number, of seconds, say, and times of day with their date)"
    return " (write dates as 2024-01-31)" if _DATE.fullmatch(text) else ""


def _dated(text: str) -> bool:
    return _MONTH.search(text) is not None and re.search(r"\d", text) is not None
