"""Cholesky factors: of matrices that are barely positive semi-definite, solved with, and bordered."""

from __future__ import annotations

import torch
from torch import Tensor


def safe_cholesky(matrices: Tensor, jitter: float = 0.0, scale: Tensor | None = None) -> Tensor:
    """Lower Cholesky factor of each positive semi-definite matrix plus ``jitter`` times its scale.

    Ten times more jitter where a matrix takes that, the others left alone; ``scale``: by default the largest entry of
    the diagonal. Waits for the device.

    Not linear_operator's ``psd_safe_cholesky``, whose jitter is one number for the whole batch, whatever the scale: a
    covariance of variances 1e-12 gets 1e-8, ten thousand times its own. It also warns each time.
    """
    if matrices.shape[-1] == 0:
        return matrices
    share, limits = matrices.new_full(matrices.shape[:-2], jitter), torch.finfo(matrices.dtype)
    for tried in range(12):
        lifted = matrices
        if tried or jitter:
            if scale is None:
                scale = matrices.diagonal(dim1=-2, dim2=-1).amax(-1).clamp_min(limits.tiny)
            added = (share * scale).unsqueeze(-1).expand(matrices.shape[:-1])
            lifted = matrices + torch.diag_embed(added)
        factor, failed = torch.linalg.cholesky_ex(lifted)
        if not bool(failed.any()):
            return factor
        share = torch.where(failed > 0, (10 * share).clamp_min(limits.eps), share)
    raise RuntimeError("the covariance is not positive semi-definite, even up to jitter")


def batched_cholesky(matrices: Tensor) -> Tensor:
    """``safe_cholesky`` of posterior covariances, with jitter from 1e-12 (float32: 1e-6) of the largest variance up."""
    return safe_cholesky(matrices, 1e-12 if matrices.dtype == torch.float64 else 1e-6)


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


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """lower^{-1} right."""
    return torch.linalg.solve_triangular(lower, right, upper=False)


def bordered(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """[[a, b], [c, d]], matrices or batches of them."""
    return torch.cat([torch.cat([a, b], -1), torch.cat([c, d], -1)], -2)
