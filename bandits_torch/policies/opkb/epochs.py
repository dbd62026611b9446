"""Where a replicate of a block policy stands since its last restart."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from bandits_torch import validation


@dataclass
class Interval:
    """Steps [start, end) of an epoch in which the strategy of one index is scheduled.

    ``before`` holds the epoch's reward sums (J, N) and counts (N,) when it started.
    """

    index: int
    start: int
    end: int
    before: tuple[Tensor, Tensor] | None = None


@dataclass
class Epoch:
    """State of one replicate since its last restart.

    Attributes:
        clock: steps made.
        block: j.
        pending, active: intervals to come and under way; the active one of smallest index is played.
        cumulative: reward sums by strategy (J, N) and length of C(k), for each block k that is over.
        matrices: M(P^(m)) of the strategies m = 0, ..., j, (j + 1, N, N), in the features of block j.
        phi: the features of block j, read while it begins.
    """

    clock: int = 0
    block: int = -1
    pending: list[Interval] = field(default_factory=list)
    active: list[Interval] = field(default_factory=list)
    cumulative: list[tuple[Tensor, int]] = field(default_factory=list)
    matrices: Tensor | None = None
    phi: Tensor | None = None

    def next_event(self) -> int:
        """The clock at which an interval starts or ends next."""
        return min([i.end for i in self.active] + [i.start for i in self.pending])

    def plain(self) -> dict[str, Any]:
        """The epoch as tensors and plain values, but for ``phi``: the next block has features of its own."""
        plain = copy.deepcopy({name: value for name, value in vars(self).items() if name != "phi"})
        for name in ("pending", "active"):
            plain[name] = [vars(interval) for interval in plain[name]]
        return plain

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Epoch:
        """The epoch that gave ``plain``; ValueError for what no epoch gives between two steps."""
        values = copy.deepcopy(dict(plain))
        for name in ("pending", "active"):
            values[name] = [Interval(**interval) for interval in values[name]]
        validation.tensor("matrices", values["matrices"])
        for interval in [*values["pending"], *values["active"]]:
            for name in ("index", "start", "end"):
                validation.natural(name, getattr(interval, name))
        under_way = [interval.before for interval in values["active"]]
        for sums, steps in values["cumulative"]:
            validation.tensor("cumulative", sums)
            validation.positive_integer("cumulative", steps)
        known = bool(under_way) and all(isinstance(before, tuple) for before in under_way)
        validation.require(
            known, "active", len(under_way), "intervals with the sums of their start, at least one"
        )
        return Epoch(**values)
