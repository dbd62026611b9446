"""Many candidates, one batch of training data: from t-batches to one wide matrix of points and back."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch import Tensor


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
