"""The upper confidence bound of Flynn & Reeb, arm by arm."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.t_batches import over_t_batches
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.theory.mixture_widths import DualMixtureWidth


class DualMixtureBound(AcquisitionFunction):
    """The upper bounds of ``DualMixtureWidth.bounds``, made at construction: X are indices of the arms of an ``ArmGP``.

    Source: Flynn & Reeb 2024 (arXiv 2403.12732). For your own index policies:
    ``IndexPolicy(model, lambda model: DualMixtureBound(model, bound))``. The bounds hold where the width says so. The
    width, as one number, is that of the worst arm, and larger.

    Args:
        model: an ``ArmGP`` that does not drift.
        bound: a ``DualMixtureWidth``.

    Cost: see there. Raises ValueError for a ``bound`` of another kind, and a ``model`` that it cannot be of.
    """

    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor

    def __init__(self, model: ArmGP, bound: DualMixtureWidth) -> None:
        super().__init__(model)
        validation.instance("bound", bound, DualMixtureWidth, "a DualMixtureWidth")
        self.register_buffer("upper", bound.bounds(model)[1])
        self.upper: Tensor

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Raises ValueError for pending points, which the theorem does not know."""
        none = X_pending is None
        validation.require(none, "X_pending", X_pending, "None: the bounds are of what has been observed")

    @over_t_batches(expected_q=1)
    def forward(self, X: Tensor) -> Tensor:
        """Upper bounds of X, ``t_batch x 1 x 1``."""
        index = X[..., 0, 0].long()
        shape = torch.broadcast_shapes(index.shape, self.upper.shape[:-1])
        upper = self.upper.expand(*shape, -1)
        return upper.gather(-1, index.expand(shape).unsqueeze(-1)).squeeze(-1)
