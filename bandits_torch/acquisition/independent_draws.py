"""Batches of q points by Thompson sampling: one draw of the posterior for each point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch.acquisition.t_batches import over_t_batches


class IndependentDraws(AcquisitionFunction, ABC):
    """Evaluates point i of a batch on draw i of the posterior; the draws are independent.

    With m pending points (``set_X_pending``, m x d) the next point is evaluated on draw m. The q points that BoTorch
    chooses sequentially then maximise q independent draws, as in parallel Thompson sampling
    (Kandasamy et al. 2018, Parallelised Bayesian optimisation via Thompson sampling, Algorithm 1). X with q > 1 points
    has the sum of their values, as with BoTorch's ``PathwiseThompsonSampling``.

    A draw is made from the posterior at its first use, and then kept.

    Attributes:
        is_draw: True: a policy's choices with others pending are draws from the posterior as it is.
    """

    is_draw = True
    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor

    @abstractmethod
    def _value(self, k: int, X: Tensor) -> Tensor:
        """Values ``t_batch`` of draw k at X, ``t_batch x 1 x d``."""

    @over_t_batches()
    def forward(self, X: Tensor) -> Tensor:
        """Values of X, ``t_batch x q x d``: the draws' at their points, summed."""
        first = 0 if self.X_pending is None else self.X_pending.shape[-2]
        value = self._value(first, X[..., :1, :])
        for i in range(1, X.shape[-2]):
            value = value + self._value(first + i, X[..., i : i + 1, :])
        return value
