"""Cholesky factors: of matrices that are barely positive semi-definite, solved with, and bordered."""

from __future__ import annotations

import torch
from torch import Tensor


def safe_cholesky(matrix: Tensor, jitter: float = 0.0, scale: Tensor | None = None) -> Tensor:
    """Lower Cholesky factor of a positive semi-definite matrix plus ``jitter`` times its scale.

    Ten times more jitter where it takes that; ``scale``: by default the largest entry of the diagonal. Waits
    for the device.
    """
    if matrix.shape[-1] == 0:
        return matrix
    for _ in range(12):
        lifted = matrix
        if jitter:
            lifted = matrix.clone()
            lifted.diagonal().add_(jitter * (matrix.diagonal().amax() if scale is None else scale))
        factor, failed = torch.linalg.cholesky_ex(lifted)
        if not bool(failed):
            return factor
        jitter = max(10 * jitter, torch.finfo(matrix.dtype).eps)
    raise RuntimeError("the kernel's covariance is not positive semi-definite, even up to jitter")


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """lower^{-1} right."""
    return torch.linalg.solve_triangular(lower, right, upper=False)


def bordered(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """[[a, b], [c, d]]."""
    return torch.cat([torch.cat([a, b], 1), torch.cat([c, d], 1)])
