"""Batches of q points by Thompson sampling: one draw of the posterior for each point."""

from __future__ import annotations

from abc import ABC, abstractmethod

from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor


class IndependentDraws(AcquisitionFunction, ABC):
    """Point i of a batch is valued by draw i of the posterior; the draws are independent of each other.

    With m pending points (``set_X_pending``, m x d) the next point is valued by draw m: so the q points that BoTorch
    chooses one after the other are the maximisers of q independent draws, as parallel Thompson sampling has it
    (Kandasamy et al. 2018, Parallelised Bayesian optimisation via Thompson sampling, Algorithm 1). X with q > 1 points
    has the sum of their values, as with BoTorch's ``PathwiseThompsonSampling``.

    A draw is made when it is first needed, from what the model knows then, and kept: asked again, it is the same.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model=model)
        self.X_pending = None  # type: ignore[assignment]

    @abstractmethod
    def _value(self, k: int, X: Tensor) -> Tensor:
        """Values ``t_batch`` of draw k at X, ``t_batch x 1 x d``."""

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values of X, ``t_batch x q x d``: the draws' at their points, summed."""
        first = 0 if self.X_pending is None else self.X_pending.shape[-2]
        value = self._value(first, X[..., :1, :])
        for i in range(1, X.shape[-2]):
            value = value + self._value(first + i, X[..., i : i + 1, :])
        return value
