"""Where a replicate of a block policy stands since its last restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bandits_torch import validation
from bandits_torch.state import HasState


@dataclass
class Interval:
    """Steps [start, end) of an epoch in which the strategy of one index is scheduled.

    ``before`` holds the epoch's reward sums (J, N) and counts (N,) when it started.
    """

    index: int
    start: int
    end: int
    before: tuple[Tensor, Tensor] | None = None


class Epoch(HasState):
    """State of one replicate since its last restart.

    Attributes:
        clock: steps made.
        block: j.
        pending, active: intervals to come and under way; the active one of smallest index is played.
        cumulative: reward sums by strategy (J, N) and length of C(k), for each block k that is over.
        matrices: M(P^(m)) of the strategies m = 0, ..., j, (j + 1, N, N), in the features of block j.
        phi: the features of block j, read while it begins; no part of the state, as the next block has its own.
    """

    clock: int
    block: int
    pending: list[Interval]
    active: list[Interval]
    cumulative: list[tuple[Tensor, int]]
    matrices: Tensor | None
    phi: Tensor | None = None

    def __init__(self) -> None:
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        lists: dict[str, Any] = {name: [] for name in ("pending", "active", "cumulative")}
        return lists | {"clock": 0, "block": -1, "matrices": None}

    def next_event(self) -> int:
        """The clock at which an interval starts or ends next."""
        return min([i.end for i in self.active] + [i.start for i in self.pending])

    def state_changed(self) -> None:
        """Intervals are intervals again."""
        for name in ("pending", "active"):
            each = getattr(self, name)
            setattr(self, name, [one if isinstance(one, Interval) else Interval(**one) for one in each])

    def _check_has(self, state: Any, where: str) -> None:
        """And that it is what an epoch gives between two steps."""
        super()._check_has(state, where)
        validation.tensor("matrices", state["matrices"])
        for interval in [*state["pending"], *state["active"]]:
            for name in ("index", "start", "end"):
                validation.natural(name, interval[name])
        under_way = [Interval(**interval).before for interval in state["active"]]
        for sums, steps in state["cumulative"]:
            validation.tensor("cumulative", sums)
            validation.positive_integer("cumulative", steps)
        known = bool(under_way) and all(isinstance(before, tuple) for before in under_way)
        validation.require(
            known, "active", len(under_way), "intervals with the sums of their start, at least one"
        )
