"""The algebra of conditioning a Gaussian process: new rows of the factor, all rows, and predictions.

Notation: L L^T = K + lambda I over the t observations held, z = L^{-1} (y - m), V = L^{-1} k(x) for
candidates x. Then mean(x) = m(x) + V^T z and cov(x, x') = k(x, x') - V^T V'
(Rasmussen & Williams 2006, algorithm 2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from gpytorch.settings import lazily_evaluate_kernels
from linear_operator import to_dense
from torch import Tensor

from bandits_torch.models.cholesky import solve_lower
from bandits_torch.models.points.growing_cholesky import GrowingCholesky, Rows


def fold(X: Tensor, factor_shape: tuple[int, ...]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Move every batch dimension of X that the factors do not have into the points.

    ``t_batch x q x d`` candidates against factors of shape ``factor_shape x t x t`` would copy each factor
    once per candidate. The factors see ``factor_shape x (candidates q) x d`` points instead.

    Args:
        X: ``t_batch x q x d``; ``t_batch`` broadcasts with ``factor_shape``.
        factor_shape: batch shape of the factors.

    Returns:
        The points, ``shape x m x d`` with ``shape`` as long as ``factor_shape`` and broadcasting to it; and
        the way back, from ``factor_shape x t x m`` to ``batch x t x q`` with ``batch`` broadcasting to the
        broadcast of ``t_batch`` and ``factor_shape``. Both are views where PyTorch allows.
    """
    k, (q, d) = len(factor_shape), X.shape[-2:]
    batch = (1,) * (k - (X.dim() - 2)) + tuple(X.shape[:-2])
    lead = len(batch) - k
    kept = [lead + i for i, size in enumerate(factor_shape) if size > 1]
    free = [i for i in range(len(batch)) if i not in kept]
    free_sizes = [batch[i] for i in free]
    points = X.reshape(*batch, q, d).permute(*kept, *free, len(batch), len(batch) + 1)
    own = [batch[lead + i] if size > 1 else 1 for i, size in enumerate(factor_shape)]
    points = points.reshape(*own, prod(free_sizes) * q, d)

    def unfold(V: Tensor) -> Tensor:
        V = V.reshape(*[size for size in factor_shape if size > 1], V.shape[-2], *free_sizes, q)
        axis = {dim: i for i, dim in enumerate(kept)} | {dim: len(kept) + 1 + i for i, dim in enumerate(free)}
        return V.permute(*[axis[i] for i in range(len(batch))], len(kept), V.dim() - 1)

    return points, unfold


@dataclass(frozen=True)
class GaussianPrior:
    """The prior: k, m and lambda (which broadcasts to the batch).

    k and m are evaluated in the dtype of the inputs, and given in that of lambda.
    """

    kernel: Kernel
    prior_mean: Mean
    noise_variance: Tensor

    def mean(self, x: Tensor) -> Tensor:
        """m(x), point by point."""
        return self.prior_mean(x).to(self.noise_variance)

    def covariance(self, x1: Tensor, x2: Tensor) -> Tensor:
        """k(x1, x2) as a tensor, evaluated at once, so that GPyTorch's settings have no effect."""
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        x1, x2 = (x.expand(*batch, *x.shape[-2:]) for x in (x1, x2))
        with lazily_evaluate_kernels(False):
            return to_dense(self.kernel(x1, x2)).to(self.noise_variance)

    def variance(self, x: Tensor) -> Tensor:
        """k(x, x), point by point."""
        with lazily_evaluate_kernels(False):
            return to_dense(self.kernel(x, diag=True)).to(self.noise_variance)


def new_rows(
    prior: GaussianPrior,
    data: GrowingCholesky,
    X: Tensor,
    Y: Tensor,
    where: Tensor | None,
    variances: Tensor | None = None,
) -> Rows:
    """The rows that n observations add; null rows for members with ``where`` False. O(n t^2 + n^3).

    [[L, 0], [V^T, D]] is the factor of [[L L^T, B], [B^T, C]] with V = L^{-1} B and D D^T = C - V^T V.

    Args:
        X: ``batch x n x d``, Y: ``batch x n``, where: ``batch``.
        variances: ``batch x n``, of the noise on these, in place of lambda.
    """
    old, noise = data.rows(), prior.noise_variance[..., None, None]
    if variances is not None:
        noise = variances.unsqueeze(-1)
    one = torch.eye(X.shape[-2], dtype=Y.dtype, device=Y.device)
    held = torch.ones(1, dtype=torch.bool, device=X.device) if where is None else where.unsqueeze(-1)
    V = _whiten(prior, data, X) * held.unsqueeze(-1)
    left = prior.covariance(X, X) + noise * one - V.mT @ V
    # C - V^T V = lambda + posterior variance, so lambda bounds what rounding may do to a single one.
    single = X.shape[-2] == 1
    D = torch.maximum(left, noise).sqrt() if single else torch.linalg.cholesky(left)
    D = torch.where(held.unsqueeze(-1), D, one)
    residual = torch.where(held, Y - prior.mean(X), 0.0)
    explained = (V.mT @ old.whitened.unsqueeze(-1)).squeeze(-1)
    z = torch.linalg.solve_triangular(D, (residual - explained).unsqueeze(-1), upper=False).squeeze(-1)
    return Rows(X, Y, V, D.mT, z, held)


def factor_anew(prior: GaussianPrior, data: GrowingCholesky) -> tuple[Tensor, Tensor]:
    """(L^T, z) of all observations held, computed from the data alone. O(t^3)."""
    old = data.rows()
    one = torch.eye(data.size, dtype=old.corner.dtype, device=old.corner.device)
    both = old.held.unsqueeze(-1) & old.held.unsqueeze(-2)
    covariance = prior.covariance(old.inputs, old.inputs) + prior.noise_variance[..., None, None] * one
    upper = torch.linalg.cholesky(torch.where(both, covariance, one)).mT
    residual = torch.where(old.held, old.targets - prior.mean(old.inputs), 0.0)
    return upper, solve_lower(upper.mT, residual.unsqueeze(-1)).squeeze(-1)


def predict(prior: GaussianPrior, data: GrowingCholesky, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, ``batch x q``, and variance, ``batch x 1`` (q = 1), or covariance, ``batch x q x q``, at X.

    The kernel sees the training inputs once for all of X, and one triangular solve serves all points.
    """
    mean, marginal = prior.mean(X), X.shape[-2] == 1
    spread = prior.variance(X) if marginal else prior.covariance(X, X)
    if data.size == 0:
        return mean, spread
    V = _whiten(prior, data, X)
    mean = mean + (V * data.rows().whitened.unsqueeze(-1)).sum(-2)
    if not marginal:
        return mean, spread - V.mT @ V
    # What rounding leaves below machine precision of the prior variance is no information.
    return mean, torch.maximum(spread - V.square().sum(-2), torch.finfo(spread.dtype).eps * spread)


def _whiten(prior: GaussianPrior, data: GrowingCholesky, X: Tensor) -> Tensor:
    """V = L^{-1} k(X) with k set to 0 in rows that a member does not hold, ``batch x t x n``."""
    old = data.rows()
    points, unfold = fold(X, data.factor_shape)
    cross = prior.covariance(old.inputs, points)
    return unfold(data.solve(cross * old.held.unsqueeze(-1) if data.ragged else cross))
