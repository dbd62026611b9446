"""Where rewards are counted from and in what: an origin and a unit, settled by the median of the first rewards."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.state import HasState

_FAR = 8.0  # median deviations from the median: about 5.4 standard deviations of normal numbers


class RewardFrame(Described, HasState):
    """Rewards as y' = (y - o) / u, with an origin o and a unit u of their own in every replicate.

    The origin is the first reward, and the unit the least power of two above the first difference from it that is not 0
    (1 until then), so that numbers within are near 1 whatever the unit of rewards, and the same, bit for bit, when
    rewards are multiplied by a power of two. After K rewards ``settle`` sets both anew: the origin to their median, the
    unit by their largest deviation.

    Args:
        like: dtype and device.
        replicates: S.

    Attributes:
        origin: (S,) o, NaN before the first reward.
        unit: (S,) u, NaN before the first difference.
    """

    origin: Tensor
    unit: Tensor

    def __init__(self, like: Tensor, replicates: int = 1) -> None:
        self.replicates = validation.positive_integer("replicates", replicates)
        self._like = like.new_empty(0)
        self._begin()

    @property
    def offset(self) -> Tensor:
        """o, (S, 1); 0 before the first reward."""
        return self.origin.nan_to_num().unsqueeze(-1)

    @property
    def factor(self) -> Tensor:
        """u, (S, 1); 1 before the first difference."""
        return self.unit.nan_to_num(nan=1.0).unsqueeze(-1)

    def meet(self, reward: Tensor) -> None:
        """Take the first reward, (S,), as origin, and the first difference as unit."""
        self.origin = torch.where(self.origin.isnan(), reward, self.origin)
        new = _power_of_two((reward - self.origin).abs())
        self.unit = torch.where(self.unit.isnan(), new, self.unit)

    def settle(self, rewards: Tensor, where: Tensor) -> Tensor:
        """Take the median (the lower of two) of rewards (S, K) as origin in the replicates with ``where`` (S,) True.

        Returns the rewards in the new frame, those further from the median than 8 times the median deviation brought to
        that distance, (S, K). No bound where more than half of the rewards are equal. NaN: no reward.
        """
        origin = rewards.nanmedian(-1, keepdim=True).values
        deviation = (rewards - origin).abs()
        usual = deviation.nanmedian(-1, keepdim=True).values
        bound = torch.where(usual > 0, _FAR * usual, torch.inf)
        near = (rewards - origin).clamp(-bound, bound)
        unit = _power_of_two(near.abs().nan_to_num().amax(-1))
        self.origin = torch.where(where, origin.squeeze(-1), self.origin)
        self.unit = torch.where(where, torch.where(unit.isnan(), self.unit, unit), self.unit)
        return near / self.factor

    def reset(self, where: Tensor | None = None) -> None:
        """Nothing is known; with ``where`` all stays: what other replicates learned rests on it."""
        if where is None:
            super().reset()

    def _fresh(self) -> dict[str, Tensor]:
        unknown = self._like.new_full((self.replicates,), torch.nan)
        return {"origin": unknown, "unit": unknown.clone()}


def _power_of_two(size: Tensor) -> Tensor:
    """The least power of two above ``size`` >= 0; NaN where it is 0."""
    mantissa, _ = torch.frexp(size)
    return size / mantissa
