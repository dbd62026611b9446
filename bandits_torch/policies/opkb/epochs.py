"""The state of a replicate of a block policy since its last restart, and the units in which it counts rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.opkb.constants import WARM_UP
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
        """Make intervals of the mappings in a loaded state."""
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


class RewardUnits(HasState):
    """Rewards y become (y - centre) / scale, for each replicate.

    With a number as scale, the centre is 0. Learnt (``"warm-up"``): block 0 of an epoch plays the optimal design
    whatever the rewards are, so it is the warm-up and costs nothing. When it ends, the centre is the mean of all
    rewards since the last reset, the scale their largest distance from it; both stay until the next epoch. Later
    rewards may exceed what was seen, so |y| <= 1 holds only for the past.

    Args:
        scale: a number > 0, or ``"warm-up"``.
        like: (S,) zeros of the dtype and device wanted.
    """

    def __init__(self, scale: float | str, like: Tensor) -> None:
        self.learns = scale == WARM_UP
        self._first_scale = torch.ones_like(like) if self.learns else torch.full_like(like, float(scale))
        self._begin()

    centre: Tensor
    scale: Tensor
    total: Tensor  # of all rewards, as the next three
    count: Tensor
    lowest: Tensor
    highest: Tensor

    def _fresh(self) -> dict[str, Any]:
        scale = self._first_scale
        zeros = {name: torch.zeros_like(scale) for name in ("centre", "total", "count")}
        ends = {"lowest": torch.full_like(scale, torch.inf), "highest": torch.full_like(scale, -torch.inf)}
        return zeros | {"scale": scale.clone()} | ends

    def of(self, reward: Tensor) -> Tensor:
        """The rewards (S,) in these units."""
        if self.learns:
            self.total, self.count = self.total + reward, self.count + 1
            self.lowest, self.highest = self.lowest.minimum(reward), self.highest.maximum(reward)
        return (reward - self.centre) / self.scale

    def raw(self, s: int) -> None:
        """Replicate s begins an epoch: its rewards are kept as they come."""
        if self.learns:
            self.centre[s], self.scale[s] = 0.0, 1.0

    def learn(self, s: int, sums: Tensor, counts: Tensor) -> Tensor:
        """Block 0 of replicate s is over: its reward sums (N,) in the units learnt, from ``counts`` (N,)."""
        if not self.learns:
            return sums
        centre = self.total[s] / self.count[s]
        spread = torch.maximum(self.highest[s] - centre, centre - self.lowest[s])
        self.centre[s], self.scale[s] = centre, torch.where(spread > 0, spread, 1.0)
        return (sums - centre * counts) / self.scale[s]
