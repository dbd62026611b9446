"""The units in which the optimisation-based policies count rewards: section 2 of Hong et al. asks for |y| <= 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bandits_torch.policies.opkb.constants import WARM_UP
from bandits_torch.state import HasState


class RewardUnits(HasState):
    """Rewards y become (y - centre) / scale, for each replicate.

    Told: centre 0 and a given scale. Learnt (``"warm-up"``): block 0 of an epoch plays the optimal design whatever the
    rewards are, so it is the warm-up and costs nothing. When it ends, the centre is the mean of all rewards since
    the last reset, the scale their largest distance from it; both stay until the next epoch. Later rewards may exceed
    what was seen, so |y| <= 1 holds of the past alone.

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
