"""Cholesky factors: computed with jitter or from independent rows, solved with, and updated when a row is removed."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

_BLOCK = 16  # rows multiplied by one small matrix; 8 to 32 took the same time at t = 500, 1000 and 2000
_PANEL = 256  # rows handled at a time: they fit in a cache, and the zeros on their left are skipped


def safe_cholesky(matrices: Tensor, jitter: float = 0.0, scale: Tensor | None = None) -> Tensor:
    """Lower Cholesky factor of each positive semi-definite matrix, with ``jitter * scale`` added to its diagonal.

    A matrix whose factorisation fails is tried again with ten times the jitter, at least the machine epsilon; others in
    the batch keep theirs. ``scale`` is by default the largest entry of the diagonal. Waits for the device. Raises
    RuntimeError if a matrix still fails after twelve attempts.

    linear_operator's ``psd_safe_cholesky`` is not suitable: it adds one number to every matrix, whatever its scale.
    """
    if matrices.shape[-1] == 0:
        return matrices
    relative, machine = matrices.new_full(matrices.shape[:-2], jitter), torch.finfo(matrices.dtype)
    for attempt in range(12):
        jittered = matrices
        if attempt or jitter:
            if scale is None:
                scale = matrices.diagonal(dim1=-2, dim2=-1).amax(-1).clamp_min(machine.tiny)
            added = (relative * scale).unsqueeze(-1).expand(matrices.shape[:-1])
            jittered = matrices + torch.diag_embed(added)
        factor, failed = torch.linalg.cholesky_ex(jittered)
        if not bool(failed.any()):
            return factor
        relative = torch.where(failed > 0, (10 * relative).clamp_min(machine.eps), relative)
    raise RuntimeError("the covariance is not positive semi-definite, even with jitter")


def batched_cholesky(matrices: Tensor) -> Tensor:
    """``safe_cholesky`` with a first jitter of 1e-12 (float32: 1e-6) of the largest variance."""
    return safe_cholesky(matrices, 1e-12 if matrices.dtype == torch.float64 else 1e-6)


def independent(matrix: Tensor, least: float) -> tuple[list[int], Tensor]:
    """Indices of rows of a positive semi-definite matrix that are linearly independent, and their Cholesky factor.

    A row counts as dependent if its variance given the rows kept so far is at most ``least``, which must be far above
    the rounding errors of the matrix. No jitter is added: it would act as noise. Waits for the device.
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not bool(failed) and bool((factor.diagonal().square() > least).all()):
        return list(range(len(matrix))), factor
    matrix, device = matrix.cpu(), matrix.device
    remaining, columns = matrix.diagonal().clone(), torch.zeros_like(matrix)
    kept: list[int] = []
    for j in range(len(matrix)):
        if remaining[j] > least:
            done = columns[: len(kept)]
            column = (matrix[j] - done[:, j] @ done) / remaining[j].sqrt()
            columns[len(kept)] = column
            remaining -= column.square()
            kept.append(j)
    return kept, columns[: len(kept), kept].mT.tril().contiguous().to(device)


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """lower^{-1} right, O(t^2) per column. A factor stored as its transpose, passed as ``upper.mT``, is not copied."""
    return torch.linalg.solve_triangular(lower, right, upper=False)


def bordered(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """[[a, b], [c, d]], matrices or batches of them."""
    return torch.cat([torch.cat([a, b], -1), torch.cat([c, d], -1)], -2)


def remove_row(upper: Tensor, row: Tensor, whitened: Tensor, first: Tensor, out: Tensor) -> Tensor:
    """Remove an observation: write the factor of the later ones to ``out``, and return their whitened residuals.

    Let [[a, 0], [l, M]] be the factor of the removed observation and the later ones, which have the covariance
    A = M M^T + l l^T. With p = M^{-1} l, A = M (I + p p^T) M^T. Its factor is M C, with C the Cholesky factor of
    I + p p^T. The inverse of I + p p^T, and of each leading block, is I - p p^T / (1 + p^T p). This gives C in closed
    form: with b_j = 1 + sum_{k <= j} p_k^2 and b_{-1} = 1,

        C_jj = d_j = sqrt(b_j / b_{j-1}),    C_ij = p_i q_j for i > j,    q_j = p_j / sqrt(b_j b_{j-1}),
        (M C)_ij = M_ij d_j + q_j sum_{k > j} M_ik p_k.

    The sum over k > j is split into blocks of columns. Inside a block it is a product with a small triangular matrix;
    across blocks it is a cumulative sum of one number per row and block. No variance is subtracted: the step is as
    stable as adding l l^T to M M^T. Of the residuals [a z_0, l z_0 + M z] the second part remains,
    l z_0 + M z = M C z'. So z' = C^{-1} v with v = z + p z_0:

        z'_i = (v_i - p_i / b_{i-1} sum_{k < i} p_k v_k) / d_i.

    Args:
        upper: M^T, ``batch x t x t``, zero below the diagonal, t >= 1.
        row: l, ``batch x t``.
        whitened: z, ``batch' x t`` (``batch'`` broadcasts with ``batch``).
        first: z_0, ``batch' x 1``.
        out: receives (M C)^T, ``batch x t x t``, zero below the diagonal. Its memory may overlap that of ``upper`` if
            it begins above and to the left of it.

    Returns z'. Cost: O(t^2), one triangular solve and two passes over the factor.
    """
    p = solve_lower(upper.mT, row.unsqueeze(-1)).squeeze(-1)
    b = 1.0 + p.square().cumsum(-1)
    before = pad(b[..., :-1], (1, 0), value=1.0)
    diagonal, q = (b / before).sqrt(), p / (b * before).sqrt()
    _write_new_factor(upper, p, q, diagonal, out)
    v = whitened + p * first
    earlier = pad((p * v).cumsum(-1)[..., :-1], (1, 0))
    return (v - p * earlier / before) / diagonal


def _write_new_factor(upper: Tensor, p: Tensor, q: Tensor, diagonal: Tensor, out: Tensor) -> None:
    """out = C^T M^T, one panel of rows at a time from the top, so ``out`` may overlap ``upper``."""
    t = upper.shape[-1]
    whole = t // _BLOCK * _BLOCK
    edges = sorted({*range(0, whole, _PANEL), whole, t})
    panels = [slice(start, stop) for start, stop in pairwise(edges)]
    # For each panel: p^T times the rows below it, in the panel's columns. Those rows are zero left of their panel.
    below = [upper.new_zeros(*p.shape[:-1], 1, 0)]
    for panel in reversed(panels):
        last = pad(below[-1], (panel.stop - panel.start, 0))
        below[-1] = last
        below.append(last + p[..., None, panel] @ upper[..., panel, panel.start :])
    for panel in panels:
        below.pop()
        rows = upper[..., panel, panel.start :]
        size = rows.shape[-2] % _BLOCK or _BLOCK
        blocks = rows.unflatten(-2, (-1, size))
        of_p, of_q, of_d = (v[..., panel].unflatten(-1, (-1, size)) for v in (p, q, diagonal))
        corner = torch.triu(of_q.unsqueeze(-1) * of_p.unsqueeze(-2), 1) + torch.diag_embed(of_d)
        # One product for both, because PyTorch copies the rows of a batch for each product.
        both = torch.cat([corner, of_p.unsqueeze(-2)], -2) @ blocks
        product, sums = both[..., :-1, :], both[..., -1:, :]
        sums = sums.flip(-3).cumsum(-3).flip(-3) - sums + below[-1].unsqueeze(-3)
        out[..., panel, panel.start :] = torch.addcmul(product, of_q.unsqueeze(-1), sums).flatten(-3, -2)
