"""Missing rewards: cells that say so, numbers that may stand for nothing, and logs of pulls, where most are missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch import validation
from bandits_torch.naming import some
from bandits_torch.problems.table_cells import MISSING, is_numeric

_TREATMENTS = ("mask", "unavailable", "forward-fill")
_EXPECTED = (
    "'mask', 'unavailable', 'forward-fill', or what missing cells hold: a number, a word, or several of them"
)
_FAR = 10.0  # ranges of a column's other rewards between them and a number that stands for nothing
_USUAL = [-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 999999.0]
_USUAL += [-32768.0, 32767.0, -1e30, 1e30, -1e20, 1e20, -1e10, 1e10, -(2.0**31), 2.0**31 - 1]
_SAMPLE = 1000  # rows
_FEWEST_TIMES = 10  # with a reward; fewer do not show a log
_FEWEST = 3  # different rewards; fewer have no range


@dataclass(frozen=True)
class Missing:
    """The argument ``missing`` of ``read_table``: the treatment, and the cells (besides empty ones) that are missing.

    ``words`` are such cells as they are written; ``numbers`` are those of them that are numbers.
    """

    treatment: str
    words: frozenset[str]
    numbers: tuple[float, ...]

    @staticmethod
    def of(asked: Any) -> Missing:
        """From the argument; ValueError for anything that it does not take."""
        several = asked.split(",") if isinstance(asked, str) else asked
        several = several if isinstance(several, (list, tuple)) else [several]
        given = [one.strip() if isinstance(one, str) else one for one in several]
        ok = all((isinstance(one, str) and one != "") or validation.is_number(one) for one in given)
        treatments = [str(one) for one in given if one in _TREATMENTS] or [_TREATMENTS[0]]
        validation.require(ok and bool(given) and len(treatments) == 1, "missing", asked, _EXPECTED)
        words = [str(one) for one in given if one not in _TREATMENTS]
        return Missing(treatments[0], frozenset(words), tuple(float(one) for one in words if _is_number(one)))

    def in_text(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table without the cells of text that are missing; ValueError for a word that no cell holds.

        A cell may also name the treatment.
        """
        words = self.words | ({self.treatment} - {_TREATMENTS[0]})
        if not words:
            return frame
        unseen = {word for word in self.words if not _is_number(word) and word.lower() not in MISSING}
        frame = frame.copy(deep=False)
        for name in [name for name in frame.columns if not is_numeric(frame[name])]:
            texts = frame[name].map(lambda cell: cell.strip() if isinstance(cell, str) else None)
            unseen -= set(texts)
            frame[name] = frame[name].mask(texts.isin(words), None)
        validation.require(not unseen, "missing", ",".join(sorted(unseen)), f"{_EXPECTED} (no cell holds it)")
        return frame

    def in_numbers(self, rewards: np.ndarray) -> np.ndarray:
        """The rewards, NaN where they are one of the numbers."""
        return np.where(np.isin(rewards, self.numbers), np.nan, rewards) if self.numbers else rewards


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def refuse_log(rewards: np.ndarray) -> None:
    """Refuse a table (T, N) that looks like a log of pulls, whose missing rewards are those of arms nobody pulled.

    In such a table, at more than half of the times that have a reward, fewer than half of the arms have one, or only
    one does; tables of fewer than ten times are not judged. Whoever plays such a table finds that most arms cannot be
    pulled, and regret is measured against the few that were: it is 0 where that is one.
    """
    seen, arms = (~np.isnan(rewards)).sum(1), rewards.shape[1]
    seen = seen[seen > 0]
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


def suspects(names: Sequence[str], rewards: np.ndarray) -> list[str]:
    """A line for each number that may stand for missing rewards, as -9999 does: repeated, and far outside the rest.

    It is a column's least or greatest, held twice or more there, or one of those that are usual for it (999, -1e30),
    and lies further from the others than ten times (if usual, one time) their range.
    """
    found: dict[float, list[int]] = defaultdict(list)
    low, high = np.fmin.reduce(rewards), np.fmax.reduce(rewards)
    with np.errstate(over="ignore", invalid="ignore"):
        margin, first = (high - low) / _FAR, rewards[:_SAMPLE]
        spread = ((first > low + margin) & (first < high - margin)).any(axis=0)  # neither end is far outside
    doubted = np.flatnonzero(~spread | np.isin(low, _USUAL) | np.isin(high, _USUAL)).tolist()
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
