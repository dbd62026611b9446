"""Cells that stand for nothing: those that are named, numbers that look as if they did, and tables of few others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch import validation
from bandits_torch.naming import some
from bandits_torch.problems.table_cells import MISSING

_TREATMENTS = ("mask", "unavailable", "forward-fill")
_EXPECTED = (
    "'mask', 'unavailable', 'forward-fill', or what missing cells hold: a number, a word, or several of them"
)
_FAR = 10.0  # ranges of a column's other rewards between them and a number that stands for nothing
_USUAL = {-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 999999.0}
_USUAL |= {-32768.0, 32767.0, -1e30, 1e30, -1e20, 1e20, -1e10, 1e10, -(2.0**31), 2.0**31 - 1}
_SAMPLE = 1000  # rows
_FEWEST_TIMES = 10  # with a reward, of which it can be told what is usual
_FEWEST = 3  # different rewards, of which a range can be told


@dataclass(frozen=True)
class Missing:
    """What is read as missing beside empty cells, and what becomes of it.

    ``treatment`` is one of those that ``read_table`` names. ``words`` are cells as they are written; ``numbers`` what
    they amount to.
    """

    treatment: str
    words: frozenset[str]
    numbers: tuple[float, ...]

    @staticmethod
    def of(asked: Any) -> Missing:
        """Of an argument ``missing``; ValueError for what is none."""
        several = (
            asked.split(",")
            if isinstance(asked, str)
            else asked
            if isinstance(asked, (list, tuple))
            else [asked]
        )
        given = [one.strip() if isinstance(one, str) else one for one in several]
        ok = all(
            isinstance(one, (str, int, float)) and not isinstance(one, bool) and one != "" for one in given
        )
        validation.require(ok and len(given) > 0, "missing", asked, _EXPECTED)
        words = [str(one) for one in given if one not in _TREATMENTS]
        treatments = [str(one) for one in given if one in _TREATMENTS] or [_TREATMENTS[0]]
        validation.require(len(treatments) == 1, "missing", asked, _EXPECTED)
        figures = tuple(float(one) for one in words if _is_number(one))
        return Missing(treatments[0], frozenset(words), figures)

    def in_text(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Columns whose text cells are empty where they hold one of the words, or say that they are what all missing
        cells are taken for; ValueError for a word in none."""
        words = self.words | ({self.treatment} - {_TREATMENTS[0]})
        if not words:
            return columns
        unseen = {word for word in self.words if not _is_number(word) and word.lower() not in MISSING}
        emptied: dict[str, Any] = {}
        for name, cells in columns.items():
            texts = pd.Series(list(cells), dtype=object) if np.asarray(cells).dtype.kind in "OU" else None
            if texts is not None:
                stripped = texts.map(lambda cell: cell.strip() if isinstance(cell, str) else None)
                unseen -= set(stripped)
                texts = texts.mask(stripped.isin(words), None)
            emptied[name] = cells if texts is None else texts
        validation.require(not unseen, "missing", ",".join(sorted(unseen)), f"{_EXPECTED} (no cell holds it)")
        return emptied

    def in_numbers(self, values: np.ndarray) -> np.ndarray:
        """The rewards, NaN where they are one of the numbers."""
        for number in self.numbers:
            values = np.where(values == number, np.nan, values)
        return values


def refuse_log(rewards: np.ndarray) -> None:
    """Refuse a table (T, N) that looks like a log of pulls, whose missing rewards are those of arms nobody pulled.

    That is one in which, at more than half of the times that have a reward, fewer than half of the arms have one, or
    only one does; of fewer than ten times that cannot be told. Whoever plays such a table is told of most arms that
    they cannot be pulled, and regret is measured against the few that were: it is 0 where that is one.
    """
    seen = (~np.isnan(rewards)).sum(1)
    seen, arms = seen[seen > 0], rewards.shape[1]
    few, alone = int((seen < max(2.0, arms / 2)).sum()), int((seen == 1).sum())
    if len(seen) < _FEWEST_TIMES or 2 * few <= len(seen):
        return
    most_alone = 2 * alone > len(seen)
    said = f"only one of the {arms} arms has" if most_alone else f"fewer than half of the {arms} arms have"
    raise ValueError(
        f"missing must be told, as the table looks like a log of pulls: at {alone if most_alone else few} of "
        f"{len(seen)} times {said} a reward. What the others would have paid then is not known, so that a policy that "
        "pulls them cannot be scored. Regret needs a table of what every arm paid at every time; "
        "cells missing here and there do no harm. missing='unavailable' if an arm without a reward could not be pulled "
        "then, missing='forward-fill' if its last reward still held"
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def suspects(names: Sequence[str], values: np.ndarray) -> list[str]:
    """A line for each number that may stand for missing rewards, as -9999 does: repeated, and far outside the rest.

    It is a column's least or greatest, held twice or more there, or one of those that are usual for it (999, -1e30),
    and lies further from the others than ten times (if usual, one time) their range.
    """
    found: dict[float, list[int]] = defaultdict(list)
    low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        margin, first = 0.1 * (high - low), values[:_SAMPLE]
        between = ((first > low + margin) & (first < high - margin)).any(
            axis=0
        )  # far from both ends: none is far out
    usual = np.isin(low, [*_USUAL]) | np.isin(high, [*_USUAL])
    for n in np.flatnonzero(~between | usual):
        for end in {low[n], high[n]} - {np.nan}:
            if end == end and _stands_out(values[:, n], end):
                found[float(end)].append(int(n))
    return [
        _line(number, [names[n] for n in held], values[:, held]) for number, held in sorted(found.items())
    ]


def _stands_out(column: np.ndarray, end: float) -> bool:
    rest = column[(column != end) & ~np.isnan(column)]
    other_end = float(-end) if float(-end) in _USUAL else None
    rest = rest[rest != other_end] if other_end is not None else rest
    if not len(rest):
        return False
    low, high, times = float(rest.min()), float(rest.max()), int((column == end).sum())
    gap, usual = max(low - end, end - high), float(end) in _USUAL
    if gap <= (high - low) * (1.0 if usual else _FAR) or gap <= 0:
        return False
    return (usual or times >= 2) and len(np.unique(rest[:_SAMPLE])) >= _FEWEST


def _line(number: float, names: list[str], values: np.ndarray) -> str:
    times = int((values == number).sum())
    return (
        f"far outside the other rewards: {number:.10g}, {times} time{'s' if times > 1 else ''} in {some(names, 3)}; "
        f"missing={number:.10g} if it stands for a missing reward"
    )
