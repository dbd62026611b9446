"""Quickest change detection on standardised residuals, arm by arm, with a guaranteed average run length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.state import HasState

_SHIFTS = (0.5, 1.0, 2.0, 4.0, 8.0)


class ShiryaevRoberts(HasState):
    """Sum of Shiryaev-Roberts statistics over arms and over shifts of several sizes.

    Before a change, a correct model's standardised residuals z_t = (y_t - mu(x_t)) / sqrt(sigma^2(x_t)
    + lambda) are independent N(0, 1), for any choice of arms. For arm x and shift a (both signs)

        R_x,a <- (R_x,a + 1/G) exp(a z_t - a^2 / 2)    when x is pulled, unchanged otherwise,

    with G shifts. The factor has mean 1, so sum R - t is a martingale and the time of the first alarm,
    sum R >= A, is at least A on average (Pollak 1985; for sums of such e-detectors Shin, Ramdas & Rinaldo 2024).
    A shift of s standard deviations is detected after about 2 ln(A G)/s^2 pulls of the arm.

    Args:
        num_arms, replicates: N, S.
        run_length: A, mean number of steps between false alarms, at least.
        shifts: sizes a > 0 in standard deviations of the residual; in both directions.
        like: a tensor whose dtype and device the statistics take.

    Cost O(S G) a step, and a sum over (S, N, G).
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int,
        run_length: float = 1e5,
        shifts: Sequence[float] = _SHIFTS,
        like: Tensor | None = None,
    ) -> None:
        self.run_length = validation.positive("run_length", run_length)
        validation.require(len(shifts) > 0, "shifts", shifts, "at least one size")
        sizes = [validation.positive("shifts", size) for size in shifts]
        base = torch.zeros((), dtype=torch.float64) if like is None else like
        self._shifts = torch.tensor(
            [*sizes, *(-size for size in sizes)], dtype=base.dtype, device=base.device
        )
        self._rows, self._shape = torch.arange(replicates, device=base.device), (replicates, num_arms)
        self._begin()

    _statistics: Tensor  # (S, N, G)

    def _fresh(self) -> dict[str, Any]:
        return {"_statistics": self._shifts.new_zeros(*self._shape, len(self._shifts))}

    @property
    def total(self) -> Tensor:
        """sum R of each replicate, (S,)."""
        return self._statistics.sum((-2, -1))

    def update(self, arm: Tensor, residual: Tensor) -> Tensor:
        """Take in the standardised residuals (S,) at the arms (S,); which replicates sound the alarm, (S,)."""
        ratio = torch.exp(self._shifts * residual.unsqueeze(-1) - 0.5 * self._shifts.square())
        old = self._statistics[self._rows, arm]
        self._statistics[self._rows, arm] = (old + 1 / len(self._shifts)) * ratio
        return self.total >= self.run_length
