"""UCB after a first arm that is drawn uniformly."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.theory.widths import Width


class UniformFirst(UpperConfidenceBound):
    """mu + width sigma; before a replicate's first observation a random number for each arm, so that any may be best.

    The first line of Figure 1, Calandriello et al. (2019). X are indices of the arms of an ``ArmModel``.

    Args:
        model, width: as for ``UpperConfidenceBound``.
        first: independent numbers of one law, ``model.batch_shape x N``; None once all replicates have observations.
    """

    def __init__(self, model: ArmModel, width: float | Tensor | Width, first: Tensor | None = None) -> None:
        super().__init__(model, width)
        self._random = first
        self._is_new = None if first is None else model.num_observations == 0

    @classmethod
    def at_step(cls, model: ArmModel, step: StepContext) -> UniformFirst:
        """Random numbers are drawn while a replicate has none of its observations."""
        width = 0.0 if step.width is None else step.width
        return cls(model, width, step.base_samples() if bool((model.num_observations == 0).any()) else None)

    def forward(self, X: Tensor) -> Tensor:
        """The index of X, ``t_batch x 1 x 1`` arms."""
        index = super().forward(X)
        if self._random is None or self._is_new is None:
            return index
        arm = X[..., 0, 0].long().expand(index.shape)
        chance = self._random.expand(
            *index.shape[: index.dim() - self._random.dim() + 1], *self._random.shape
        )
        return torch.where(self._is_new, chance.gather(-1, arm.unsqueeze(-1)).squeeze(-1), index)
