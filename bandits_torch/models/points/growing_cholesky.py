"""Observations and the Cholesky factor of their covariance, in buffers that grow and shrink in place; and how to
condition a Gaussian process on them: new rows of the factor, and predictions.

Notation: L L^T = K + lambda I for t observations, z = L^{-1} (y - m), V = L^{-1} k(x) for candidates x.
Then mean(x) = m(x) + V^T z and cov(x, x') = k(x, x') - V^T V' (Rasmussen & Williams 2006, algorithm 2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from gpytorch.settings import lazily_evaluate_kernels
from linear_operator import to_dense
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.models.arms.inputs import SMALLEST_RATIO, SMALLEST_SPREAD
from bandits_torch.models.cholesky import bordered, remove_row, solve_lower
from bandits_torch.models.online_model import ResizableState
from bandits_torch.state import writes


def fold(X: Tensor, factor_shape: tuple[int, ...]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Merge each batch dimension of X, ``t_batch x q x d``, in which the factors have size 1 or none, into the points.

    Otherwise PyTorch would copy the factors, ``factor_shape x t x t``, once per candidate.

    Returns the points, ``shape x m x d`` with ``shape`` as long as ``factor_shape`` and broadcasting to it; and the
    inverse map, from ``factor_shape x t x m`` to ``batch x t x q`` with ``batch`` broadcasting to the broadcast of
    ``t_batch`` and ``factor_shape``. Both return views if PyTorch allows.
    """
    k, (q, d) = len(factor_shape), X.shape[-2:]
    batch = (1,) * (k - (X.dim() - 2)) + tuple(X.shape[:-2])
    lead = len(batch) - k
    kept = [lead + i for i, size in enumerate(factor_shape) if size > 1]
    free = [i for i in range(len(batch)) if i not in kept]
    free_sizes = [batch[i] for i in free]
    points = X.reshape(*batch, q, d).permute(*kept, *free, len(batch), len(batch) + 1)
    shape = [batch[lead + i] if size > 1 else 1 for i, size in enumerate(factor_shape)]
    points = points.reshape(*shape, prod(free_sizes) * q, d)

    def unfold(V: Tensor) -> Tensor:
        V = V.reshape(*[size for size in factor_shape if size > 1], V.shape[-2], *free_sizes, q)
        axis = {dim: i for i, dim in enumerate(kept)} | {dim: len(kept) + 1 + i for i, dim in enumerate(free)}
        return V.permute(*[axis[i] for i in range(len(batch))], len(kept), V.dim() - 1)

    return points, unfold


@dataclass(frozen=True)
class GaussianPrior:
    """Prior covariance k, prior mean m and noise variance lambda, which broadcasts to the batch.

    k and m are evaluated in the dtype of the inputs and returned in the dtype of lambda.
    """

    kernel: Kernel
    prior_mean: Mean
    noise_variance: Tensor

    def mean(self, x: Tensor) -> Tensor:
        """m(x), point by point."""
        return self.prior_mean(x).to(self.noise_variance)

    def covariance(self, x1: Tensor, x2: Tensor) -> Tensor:
        """k(x1, x2) as a tensor, never lazy, so GPyTorch's settings have no effect."""
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        x1, x2 = (x.expand(*batch, *x.shape[-2:]) for x in (x1, x2))
        with lazily_evaluate_kernels(False):
            return to_dense(self.kernel(x1, x2)).to(self.noise_variance)

    def variance(self, x: Tensor) -> Tensor:
        """k(x, x), point by point."""
        # Without the kernel's batch shape, GPyTorch mistakes the diagonal of n points under n kernels for a matrix.
        batch = torch.broadcast_shapes(x.shape[:-2], self.kernel.batch_shape)
        x = x.expand(*batch, *x.shape[-2:])
        with lazily_evaluate_kernels(False):
            return to_dense(self.kernel(x, diag=True)).to(self.noise_variance)

    def check_spread(self, x: Tensor) -> float:
        """The smallest ratio of noise to prior variance at inputs X. Raises ValueError if rounding would destroy an
        observation. Not checked, and 1, on a GPU and for a stationary kernel, whose ratio is the same everywhere."""
        if self.kernel.is_stationary or not x.is_cpu or x.shape[-2] == 0:
            return 1.0
        with torch.no_grad():
            prior = self.variance(x)
        least, ratio = SMALLEST_SPREAD[prior.dtype], float((self.noise_variance.unsqueeze(-1) / prior).min())
        expected = (
            f"where noise_variance is at least {least:g} of the prior variance (it is {ratio:.1e} of it): a kernel "
            "whose variance grows needs a start near the first observation"
        )
        validation.require(not ratio < least, "X", x, expected)
        return ratio


def rows_to_add(
    prior: GaussianPrior, data: GrowingCholesky, X: Tensor, Y: Tensor, *more: Tensor | None
) -> Iterator[Rows]:
    """``new_rows`` for these arguments, as one block, or, if the noise is so small that rounding makes their joint
    matrix indefinite, row by row. The caller must append each to ``data`` before it takes the next."""
    try:
        yield new_rows(prior, data, X, Y, *more)
        return
    except torch.linalg.LinAlgError:
        if prior.check_spread(X) >= SMALLEST_RATIO[Y.dtype]:
            raise  # the kernel is not positive semi-definite
    for k in range(X.shape[-2]):  # this cannot fail: L_ii^2 is at least the noise
        one = slice(k, k + 1)
        own = (None if part is None else part[..., one] for part in more)
        yield new_rows(prior, data, X[..., one, :], Y[..., one], *own)


def new_rows(
    prior: GaussianPrior,
    data: GrowingCholesky,
    X: Tensor,
    Y: Tensor,
    held: Tensor | None = None,
    variances: Tensor | None = None,
) -> Rows:
    """The rows that observations X, ``batch x n x d``, and Y, ``batch x n``, add to the factor. O(n t^2 + n^3).

    [[L, 0], [V^T, D]] is the factor of [[L L^T, B], [B^T, C]] with V = L^{-1} B and D D^T = C - V^T V.

    Args:
        held: booleans, ``batch x n``; where it is False the row is null. None: all are True.
        variances: noise variances, ``batch x n``, instead of lambda.
    """
    old, noise = data.rows(), prior.noise_variance[..., None, None]
    if variances is not None:
        noise = variances.unsqueeze(-1)
    one = torch.eye(X.shape[-2], dtype=Y.dtype, device=Y.device)
    held = torch.ones(1, dtype=torch.bool, device=X.device) if held is None else held
    V = _whiten(prior, data, X) * held.unsqueeze(-2)
    schur = prior.covariance(X, X) + noise * one - V.mT @ V
    both = held.unsqueeze(-1) & held.unsqueeze(-2)
    if X.shape[-2] == 1:
        # C - V^T V is lambda plus the posterior covariance. Rounding must not make it less than lambda.
        D = torch.where(both, torch.maximum(schur, noise).sqrt(), one)
    else:
        D = torch.linalg.cholesky(torch.where(both, schur, one))
    residual = torch.where(held, Y - prior.mean(X), 0.0)
    explained = (V.mT @ old.whitened.unsqueeze(-1)).squeeze(-1)
    z = torch.linalg.solve_triangular(D, (residual - explained).unsqueeze(-1), upper=False).squeeze(-1)
    return Rows(X, Y, V, D.mT, z, held)


def predict(prior: GaussianPrior, data: GrowingCholesky, X: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior mean at X, ``batch x q``, and covariance, ``batch x q x q``, or variance, ``batch x 1``, if q = 1.

    One evaluation of the kernel and one triangular solve serve all points of X.
    """
    mean, marginal = prior.mean(X), X.shape[-2] == 1
    spread = prior.variance(X) if marginal else prior.covariance(X, X)
    if data.size == 0:
        if marginal and X.requires_grad:  # so that the gradient is 0, not missing, if neither depends on X
            nothing = 0.0 * X.sum(-1).to(mean)
            return mean + nothing, spread + nothing
        return mean, spread
    V = _whiten(prior, data, X)
    mean = mean + (V * data.rows().whitened.unsqueeze(-1)).sum(-2)
    if not marginal:
        return mean, spread - V.mT @ V
    # Below machine epsilon times the prior variance the difference is only a rounding error.
    return mean, torch.maximum(spread - V.square().sum(-2), torch.finfo(spread.dtype).eps * spread)


def _whiten(prior: GaussianPrior, data: GrowingCholesky, X: Tensor) -> Tensor:
    """V = L^{-1} k(X), ``batch x t x n``, with k set to 0 in null rows."""
    old = data.rows()
    points, unfold = fold(X, data.factor_shape)
    cross = prior.covariance(old.inputs, points)
    return unfold(data.solve(cross * old.held.unsqueeze(-1) if data.ragged else cross))


FROM = 512  # with fewer rows than this, copying the factor whenever it changes costs little
_STEP = 64  # new rows from one copy of the factor to the next
_SMALLEST_CAPACITY = 32
_FULL = 0.75  # buffers are doubled if a larger part than this is in use after compaction


class PaddedFactor:
    """A contiguous copy of L^T, padded to [[L^T, 0], [0, I]], whose size is the next multiple of 64 above t.

    PyTorch's triangular solve copies a view of a larger matrix, t^2 numbers; here a new row costs O(t). The size
    depends on t alone, so results do not depend on the past.

    Methods take L^T as ``upper``, ``batch x c x c``, a buffer whose first ``size`` rows and columns are in use.
    """

    def __init__(self, upper: Tensor) -> None:
        self.solid = upper.new_zeros(*upper.shape[:-2], 0, 0)

    def take(self, upper: Tensor, size: int) -> None:
        """Copy the factor, unless the copy is up to date. Reuses the memory if the size is the same. O(t^2)."""
        if self.holds(upper, size):
            return
        shape = (*upper.shape[:-2], _padded(size), _padded(size))
        if self.solid.shape != shape or self.solid.dtype != upper.dtype or self.solid.device != upper.device:
            self.solid = upper.new_empty(shape)
        self.solid[..., size:] = 0.0
        self.solid[..., size:, :size] = 0.0
        self.solid.diagonal(dim1=-2, dim2=-1)[..., size:] = 1.0
        self.solid[..., :size, :size] = upper[..., :size, :size]
        self._record(upper, size)

    def holds(self, upper: Tensor, size: int) -> bool:
        """Whether the copy is up to date: made of these rows of this buffer, unchanged since."""
        same = self.solid.shape[-1] > 0 and self._upper is upper
        return same and self._version == writes(upper) and self._size == size

    def append(self, upper: Tensor, size: int) -> None:
        """Copy the rows added since the last copy, if they fit. O(t) each."""
        if _padded(size) == self.solid.shape[-1]:
            old = self._size
            self.solid[..., :size, old:size] = upper[..., :size, old:size]
            self._record(upper, size)

    def _record(self, upper: Tensor, size: int) -> None:
        self._upper, self._version, self._size = upper, writes(upper), size

    def solve(self, right: Tensor) -> Tensor:
        """L^{-1} right, ``batch x t x n``. O(t^2) per column."""
        wide = right.new_zeros(*right.shape[:-2], self.solid.shape[-1], right.shape[-1])
        wide[..., : self._size, :] = right
        return solve_lower(self.solid.mT, wide)[..., : self._size, :]


def _padded(size: int) -> int:
    return _STEP * (size // _STEP + 1)


def pays(upper: Tensor, size: int) -> bool:
    """Whether a ``PaddedFactor`` makes solves with this many rows faster; never while gradients are recorded."""
    return size >= FROM and not torch.is_grad_enabled() and not upper.is_inference()


@dataclass
class Rows:
    """n new observations after t old ones: their part of the data and of the factor."""

    inputs: Tensor  # batch x n x d
    targets: Tensor  # batch x n
    columns: Tensor  # batch x t x n, the new columns of L^T above the corner
    corner: Tensor  # batch x n x n, the new diagonal block of L^T
    whitened: Tensor  # batch x n
    held: Tensor  # batch x n, False for null rows: the member does not have this observation


class GrowingCholesky(ResizableState):
    """The t observations of each member of a batch, and L with L L^T = K + lambda I.

    Members can hold different observations. An observation that a member does not hold is a null row of its factor
    (1 on the diagonal, 0 elsewhere): shapes stay rectangular, and null rows do not affect the others.

    Inputs, factor and ``held`` have ``factor_shape``. This is ``batch_shape`` with 1 in the dimensions along which
    members share inputs and kernel (fantasies of one design): their work is done once.

    Buffers (capacity c >= t): ``inputs`` (c x d, in float64 if they are ``exact``), ``upper`` = L^T (c x c, zero below
    the diagonal) and ``held`` (c) over ``factor_shape``; ``targets`` and ``whitened`` = L^{-1}(targets - prior mean),
    both (c), over ``batch_shape``.

    Attributes:
        size: t, the number of rows.
        ragged: whether members may hold different rows. If True, it is checked again (which waits for the device)
            whenever the rows are compacted: after max(16, t / 4) removals, or when the buffers are full.
        own_noise: whether some rows were added with their own noise variances, which only the factor stores.
    """

    inputs: Tensor
    upper: Tensor
    held: Tensor
    targets: Tensor
    whitened: Tensor
    _PLAIN = ("size", "ragged", "_drops", "own_noise")

    def __init__(
        self,
        input_dim: int,
        batch_shape: torch.Size,
        factor_shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device | str | None,
        exact: bool = False,
    ) -> None:
        super().__init__()
        zeros, self.exact = torch.zeros(1, dtype=dtype, device=device), exact
        inputs = zeros.new_zeros(*factor_shape, 0, input_dim, dtype=torch.float64 if exact else dtype)
        self.register_buffer("inputs", inputs)
        self.register_buffer("upper", zeros.new_zeros(*factor_shape, 0, 0))
        self.register_buffer("held", torch.zeros(*factor_shape, 0, dtype=torch.bool, device=device))
        self.register_buffer("targets", zeros.new_zeros(*batch_shape, 0))
        self.register_buffer("whitened", zeros.new_zeros(*batch_shape, 0))
        self.size, self.ragged, self._drops, self.own_noise = 0, False, 0, False

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Older states have no ``own_noise``."""
        super().set_extra_state({"own_noise": False} | state)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of members."""
        return self.whitened.shape[:-1]

    @property
    def factor_shape(self) -> torch.Size:
        """Shape of the batch of factors, as long as ``batch_shape``."""
        return self.upper.shape[:-2]

    @property
    def capacity(self) -> int:
        """How many rows fit without growing."""
        return self.whitened.shape[-1]

    def rows(self) -> Rows:
        """All rows as views of the buffers; ``columns`` is empty."""
        t = self.size
        empty, upper = self.upper[..., :0, :t], self.upper[..., :t, :t]
        targets, whitened = self.targets[..., :t], self.whitened[..., :t]
        return Rows(self.inputs[..., :t, :], targets, empty, upper, whitened, self.held[..., :t])

    def of(self, member: int) -> Rows:
        """The ``rows`` that one member holds, by its number in the flattened batch."""
        rows, batch = self.rows(), self.batch_shape
        parts = (getattr(rows, field.name) for field in fields(rows))
        wide = (part.expand(*batch, *part.shape[len(batch) :]) for part in parts)
        own = Rows(*(part.reshape(batch.numel(), *part.shape[len(batch) :])[member] for part in wide))
        if not self.ragged:
            return own
        at = own.held.nonzero().flatten()
        corner = own.corner[at][:, at]  # null rows do not affect the others
        return Rows(
            own.inputs[at], own.targets[at], own.columns[:, at], corner, own.whitened[at], own.held[at]
        )

    def solid(self) -> Tensor:
        """L^T, contiguous and cached until the buffer changes: every solve with a view would copy it."""
        upper, t = self.upper, self.size
        if t == self.capacity or upper.requires_grad or upper.is_inference():
            return upper[..., :t, :t]
        kept = self._solid
        if kept is None or kept[0] is not upper or kept[1:3] != (writes(upper), t):
            self._solid = kept = (upper, writes(upper), t, upper[..., :t, :t].contiguous())
        return kept[3]

    def solve(self, right: Tensor) -> Tensor:
        """L^{-1} right, ``factor_shape x t x n``. O(t^2) per column."""
        if not pays(self.upper, self.size):
            return solve_lower(self.solid().mT, right)
        if self._padded is None:
            self._padded = PaddedFactor(self.upper)
        self._padded.take(self.upper, self.size)
        return self._padded.solve(right)

    _solid: tuple[Tensor, object, int, Tensor] | None = None
    _padded: PaddedFactor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without caches and without a graph: PyTorch refuses to deep-copy tensors with one."""
        state = {name: value for name, value in vars(self).items() if name not in ("_solid", "_padded")}
        buffers = {name: buffer.detach() for name, buffer in self.named_buffers(recurse=False)}
        return state | {"_buffers": buffers} | buffers

    def widen(self, shape: torch.Size) -> None:
        """Store separate factors along the dimensions of ``shape`` that are larger than 1."""
        shape = torch.broadcast_shapes(self.factor_shape, shape)
        if shape != self.factor_shape:
            k = len(shape)
            for name in ("inputs", "upper", "held"):
                buffer = getattr(self, name)
                setattr(self, name, buffer.expand(*shape, *buffer.shape[k:]).contiguous())

    def make_room(self, n: int) -> None:
        """Make n rows fit: compact if members differ, then double the buffers if more than 3/4 would be in use."""
        if self.size + n <= self.capacity:
            return
        if self.ragged:
            self.compact()
        if self.size + n > _FULL * self.capacity:
            self._replace(self.rows(), max(_SMALLEST_CAPACITY, 2 * self.capacity, self.size + n))

    def append(self, new: Rows) -> None:
        """Write new rows after the old ones. Call ``make_room`` first. O(t n)."""
        s, e = self.size, self.size + new.targets.shape[-1]
        padded = self._padded if self._padded and self._padded.holds(self.upper, s) else None
        self.inputs[..., s:e, :] = new.inputs
        self.targets[..., s:e] = new.targets
        self.upper[..., :s, s:e] = new.columns
        self.upper[..., s:e, s:e] = new.corner
        self.whitened[..., s:e] = new.whitened
        self.held[..., s:e] = new.held
        self.size = e
        if padded is not None:
            padded.append(self.upper, e)

    def join(self, new: Rows) -> None:
        """Like ``append``, but into new tensors, which keeps autograd's graph; widens as needed. O(t^2)."""
        old, t, n = self.rows(), self.size, new.targets.shape[-1]
        batch, d = self.batch_shape, self.inputs.shape[-1]
        factor = torch.broadcast_shapes(self.factor_shape, new.columns.shape[:-2], new.corner.shape[:-2])
        self.upper = bordered(
            old.corner.expand(*factor, t, t),
            new.columns.expand(*factor, t, n),
            old.corner.new_zeros(*factor, n, t),
            new.corner.expand(*factor, n, n),
        )
        self.inputs = torch.cat([old.inputs.expand(*factor, t, d), new.inputs.expand(*factor, n, d)], -2)
        self.held = torch.cat([old.held.expand(*factor, t), new.held.expand(*factor, n)], -1)
        self.targets = torch.cat([old.targets, new.targets.expand(*batch, n)], -1)
        self.whitened = torch.cat([old.whitened, new.whitened.expand(*batch, n)], -1)
        self.size = t + n

    def drop_oldest(self, where: Tensor | None = None) -> None:
        """Remove the oldest row of each member (with ``where`` True) that has one. O(t^2)."""
        t = self.size
        if where is not None or self.ragged:
            if t:
                self.drop_row(self.rows().held.to(torch.uint8).argmax(-1), where)  # argmax: the first True
            return
        if t > 1:
            self.whitened[..., : t - 1] = remove_row(
                self.upper[..., 1:t, 1:t],
                self.upper[..., 0, 1:t],
                self.whitened[..., 1:t],
                self.whitened[..., :1],
                out=self.upper[..., : t - 1, : t - 1],
            )
            self.inputs[..., : t - 1, :] = self.inputs[..., 1:t, :].clone()
            self.targets[..., : t - 1] = self.targets[..., 1:t].clone()
        self.size = t - 1

    def drop_row(self, row: Tensor, where: Tensor | None = None) -> None:
        """Remove one row of each member, given its index in ``rows()``, if the member holds it: it becomes a null row,
        by ``remove_row`` with l the part of L's column below it. O(t^2)."""
        self.widen(row.shape if where is None else torch.broadcast_shapes(row.shape, where.shape))
        old, row = self.rows(), row.expand(self.factor_shape).unsqueeze(-1)
        goes = (torch.arange(self.size, device=row.device) == row) & old.held
        if where is not None:
            goes = goes & where.unsqueeze(-1)
        column = old.corner.gather(-2, row.unsqueeze(-1).expand_as(old.corner[..., :1, :])).squeeze(-2)
        column = torch.where(goes.any(-1, keepdim=True) & ~goes, column, 0.0)
        rest = old.corner.masked_fill(goes.unsqueeze(-1) | goes.unsqueeze(-2), 0.0)
        rest.diagonal(dim1=-2, dim2=-1).add_(goes)
        first = torch.where(goes, old.whitened, 0.0).sum(-1, keepdim=True)
        stay = torch.where(goes, 0.0, old.whitened)
        old.whitened.copy_(remove_row(rest, column, stay, first, out=old.corner))
        old.held.logical_and_(~goes)
        self.ragged = True
        self._drops += 1
        if self._drops >= max(16, self.size // 4):
            self.compact()

    def clear(self, where: Tensor | None = None) -> None:
        """Remove all rows of all members (with ``where`` True). O(1), or O(t^2) with ``where``."""
        if where is None:
            self.size, self.ragged, self._drops, self.own_noise = 0, False, 0, False
            return
        self.widen(where.shape)
        old, goes = self.rows(), where.unsqueeze(-1)
        null = torch.eye(self.size, dtype=old.corner.dtype, device=old.corner.device)
        old.corner.copy_(torch.where(goes.unsqueeze(-1), null, old.corner))
        old.whitened.copy_(torch.where(goes, 0.0, old.whitened))
        old.held.logical_and_(~goes)
        self.ragged = True

    def compact(self) -> None:
        """Move the rows that each member holds to the front, and remove rows that no member holds. Exact, because null
        rows are independent of all others. Waits for the device."""
        old = self.rows()
        counts = old.held.sum(-1)
        size, same = (int(counts.max()), bool(counts.min() == counts.max())) if self.size else (0, True)
        order = torch.argsort((~old.held).to(torch.uint8), dim=-1, stable=True)[..., :size]
        upper = old.corner.gather(-2, order.unsqueeze(-1).expand(*order.shape, self.size))
        upper = upper.gather(-1, order.unsqueeze(-2).expand(*order.shape, size))
        inputs = old.inputs.gather(-2, order.unsqueeze(-1).expand(*order.shape, old.inputs.shape[-1]))
        members = order.expand(*self.batch_shape, size)
        targets, whitened = old.targets.gather(-1, members), old.whitened.gather(-1, members)
        self.size, self.ragged, self._drops = size, not same, 0
        held = old.held.gather(-1, order)
        self._replace(Rows(inputs, targets, upper[..., :0, :], upper, whitened, held), self.capacity)

    def expanded(self, batch_shape: torch.Size) -> GrowingCholesky:
        """A copy of shape ``batch_shape``, to which the current shape broadcasts; shares no memory."""
        padding = (1,) * (len(batch_shape) - len(self.batch_shape))
        copy = GrowingCholesky(0, torch.Size(), torch.Size(), self.upper.dtype, self.upper.device, self.exact)
        old, t = self.rows(), self.size
        for name, part in (("inputs", old.inputs), ("upper", old.corner), ("held", old.held)):
            setattr(copy, name, part.reshape(*padding, *part.shape).clone())
        copy.targets = old.targets.expand(*batch_shape, t).clone()
        copy.whitened = old.whitened.expand(*batch_shape, t).clone()
        copy.set_extra_state(self.get_extra_state())
        return copy

    def _replace(self, rows: Rows, capacity: int) -> None:
        """Make new buffers of this capacity that begin with these rows."""
        more = capacity - self.size
        self.inputs = pad(rows.inputs, (0, 0, 0, more))
        self.upper = pad(rows.corner, (0, more, 0, more))
        for name in ("held", "targets", "whitened"):
            setattr(self, name, pad(getattr(rows, name), (0, more)))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GrowingCholesky:
        """``model.to(float32)`` leaves ``exact`` inputs in float64."""
        inputs = self.inputs
        super()._apply(fn, recurse)
        if self.exact:
            self.inputs = inputs.to(self.inputs.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load buffers of any length. Raises ValueError for any other batch shape or number of input columns."""
        expected = (*self.batch_shape, self.inputs.shape[-1])
        complete = {prefix + "whitened", prefix + "inputs"} <= state_dict.keys()
        validation.require(complete, "state_dict", sorted(state_dict), "the state of such a model")
        theirs = (*state_dict[prefix + "whitened"].shape[:-1], state_dict[prefix + "inputs"].shape[-1])
        name = "(*batch_shape, input_dim) of state_dict"
        validation.require(expected == theirs, name, theirs, f"{expected}, the model's")
        super()._load_from_state_dict(state_dict, prefix, *args)
