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


def independent(matrix: Tensor, least: float) -> tuple[list[int], Tensor]:
    """Rows of a positive semi-definite matrix that are not within the span of those before, and their Cholesky factor.

    Within: but for ``least``, which must be far above the rounding errors of the matrix. No jitter, which would count
    as noise where there is next to none. Waits for the device.
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not bool(failed) and bool((factor.diagonal().square() > least).all()):
        return list(range(len(matrix))), factor
    matrix, device = matrix.cpu(), matrix.device
    left, columns = matrix.diagonal().clone(), torch.zeros_like(matrix)
    kept: list[int] = []
    for j in range(len(matrix)):
        if left[j] > least:
            done = columns[: len(kept)]
            column = (matrix[j] - done[:, j] @ done) / left[j].sqrt()
            columns[len(kept)] = column
            left -= column.square()
            kept.append(j)
    return kept, columns[: len(kept), kept].mT.tril().contiguous().to(device)


def batched_cholesky(matrices: Tensor) -> Tensor:
    """Lower Cholesky factor of each positive semi-definite matrix, with as little jitter as that one takes.

    From 1e-12 (float32: 1e-6) of its largest variance upwards. Waits for the device.
    """
    scale = matrices.diagonal(dim1=-2, dim2=-1).amax(-1).clamp_min(torch.finfo(matrices.dtype).tiny)
    jitter = scale * (1e-12 if matrices.dtype == torch.float64 else 1e-6)
    for _ in range(8):
        lifted = matrices + torch.diag_embed(jitter.unsqueeze(-1).expand(matrices.shape[:-1]))
        factor, failed = torch.linalg.cholesky_ex(lifted)
        if not bool(failed.any()):
            return factor
        jitter = torch.where(failed > 0, 10 * jitter, jitter)
    raise RuntimeError("the posterior covariance is not positive semi-definite, even up to jitter")


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """lower^{-1} right."""
    return torch.linalg.solve_triangular(lower, right, upper=False)


def bordered(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """[[a, b], [c, d]]."""
    return torch.cat([torch.cat([a, b], 1), torch.cat([c, d], 1)])
