"""An acquisition function over a box whose ends are expected to be worse than its middle."""

from __future__ import annotations

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor


class LoweredEnds(AcquisitionFunction):
    """a(x, t) - c mean_j (2 z_j - 1)^2, z the point x in the unit cube of the box.

    Who gives a range expects the best within it. An upper confidence bound alone begins at the corners, of which least
    is known, and in d dimensions there are 2^d of them (Siivola et al. 2018 and Oh, Gavves & Welling 2018 name the
    fault; this remedy is a plainer one, ours).

    Args:
        acquisition: a, over [x, time].
        bounds: (2, d), the box.
        loss: c >= 0, in the units of a, what a corner is expected to lose.

    Called with X as a. Source: the quadratic prior mean is ours.
    """

    def __init__(self, acquisition: AcquisitionFunction, bounds: Tensor, loss: float) -> None:
        super().__init__(model=acquisition.model)
        self.acquisition, self.loss = acquisition, loss
        low, high = bounds
        self._middle, self._half = (low + high) / 2, torch.where(high > low, (high - low) / 2, 1.0)

    def forward(self, X: Tensor) -> Tensor:
        """Values of a at X, lowered."""
        off = (X[..., 0, :-1] - self._middle) / self._half
        return self.acquisition(X) - self.loss * off.square().mean(-1)
