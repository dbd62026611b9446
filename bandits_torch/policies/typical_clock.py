"""A policy's clock: time as it is, or counted in typical gaps between observations, whatever its unit."""

from __future__ import annotations

import statistics
from typing import Any

from bandits_torch import validation
from bandits_torch.state import HasState

_GAPS = 64  # the latest gaps between observations, of which the typical one is the median


class TypicalClock(HasState):
    """The time since the first observation, each stretch in the median of the 64 gaps between observations before it.

    So rates are per observation, and the same whether time is counted in seconds or in days. What is past counts as
    now. ``typical`` False: the time as it is given.
    """

    _gaps: list[float]
    _latest: float | None
    _now: float

    def __init__(self, typical: bool = True) -> None:
        self.typical = typical
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        return {"_gaps": [], "_latest": None, "_now": 0.0}

    def at(self, time: float) -> float:
        """``time`` on this clock; ValueError unless it is a finite number."""
        validation.finite_number("time", time)
        if self._latest is not None and time <= self._latest:
            return self._now
        if not self.typical:
            return float(time)
        if self._latest is None:
            return self._now
        gap = time - self._latest
        return self._now + gap / (statistics.median(self._gaps) if self._gaps else gap)

    def check_not_past(self, time: float) -> None:
        """ValueError for a time before the latest observation, of which nothing is known."""
        latest = self._latest
        expected = f"at or after the latest observation, {latest}"
        validation.require(latest is None or time >= latest, "time", time, expected)

    def tick(self, time: float) -> float:
        """An observation is made at ``time``; that on this clock."""
        self._now = self.at(time)
        if self._latest is not None and time > self._latest:
            self._gaps = [*self._gaps[1 - _GAPS :], time - self._latest]
        self._latest = time if self._latest is None else max(time, self._latest)
        return self._now
