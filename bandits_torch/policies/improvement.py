"""Incumbents of expected and of probable improvement: the largest posterior mean, or the largest reward."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Observation


class RewardImprovementPolicy(IndexPolicy):
    """argmax of ``acquisition(model, best_f=)``, best_f the largest reward learned so far in each replicate.

    The largest of noisy rewards lies above the largest value of the function, and rises as long as the policy plays:
    the policy keeps exploring where one whose incumbent is the largest posterior mean settles. Before the first reward
    best_f is the largest prior mean.

    Args:
        model, acquisition, options: as for ``IndexPolicy``; best_f has shape (S, 1), BoTorch's of one output.

    Source: f(x+) of Kushner 1964 and Mockus 1975, which have no noise, with rewards in place of values.
    """

    _largest: Tensor | None  # (S,), -inf in a replicate that was reset

    def learn_checked(self, observation: Observation) -> None:
        """Learn, and keep the largest reward."""
        super().learn_checked(observation)
        reward = observation.reward.to(self.model.noise_variance)
        self._largest = reward.clone() if self._largest is None else torch.maximum(self._largest, reward)

    def _acquisition_now(self, time: float) -> AcquisitionFunction:
        return self.acquisition(self.model, best_f=self._incumbent())

    def _incumbent(self) -> Tensor:
        model = cast(ArmGP | OnlineGP, self.model)
        if self._largest is None:
            return largest_mean(model)
        largest = self._largest.unsqueeze(-1)
        empty = (self._clock == 0) if isinstance(self._clock, Tensor) else None
        return largest if empty is None else torch.where(empty.unsqueeze(-1), largest_mean(model), largest)

    def _fresh(self) -> dict[str, Any]:
        return super()._fresh() | {"_largest": None}

    def _restarted(self, where: Tensor | None) -> None:
        super()._restarted(where)
        if where is not None and self._largest is not None:
            self._largest = self._largest.masked_fill(where, -torch.inf)


def largest_mean(model: ArmGP | OnlineGP) -> Tensor:
    """Largest posterior mean of any arm or observed point; ``batch_shape x 1``, BoTorch's shape of one output.

    The prior mean without observations.
    """
    if isinstance(model, ArmGP):
        return model.marginals()[0].amax(-1, keepdim=True)
    rows = model.data.rows()
    if not model.data.size:
        zeros = model.data.inputs.new_zeros(*model.batch_shape, 1, model.input_dim)
        return model.prior_mean(zeros).to(model.noise_variance)
    inputs = rows.inputs.expand(*model.batch_shape, *rows.inputs.shape[-2:])
    posterior = cast(GPyTorchPosterior, model.posterior(inputs.movedim(-2, 0).unsqueeze(-2)))
    mean = posterior.mean[..., 0, 0].movedim(0, -1)
    empty = ~rows.held.any(-1, keepdim=True)
    return mean.masked_fill(~rows.held & ~empty, -torch.inf).amax(-1, keepdim=True)
