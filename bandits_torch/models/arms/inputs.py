"""Checks and conversions of the arguments of models over arms: settings, arm indices, times, batches."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel

# Smallest noise variance lambda, relative to the prior variance k. K + lambda I is exact to eps k, and its inverse to
# eps k / lambda: a ratio of 1e-16 (float32: 1e-7) leaves no digit, and repeated pulls of an arm cost more of them.
SMALLEST_RATIO = {torch.float64: 1e-10, torch.float32: 1e-5}
# The same for a prior variance that grows with time or place, in ``OnlineGP``. Below this ratio K + lambda I is K up to
# rounding, and repeated pulls make it singular.
SMALLEST_SPREAD = {torch.float64: 1e-15, torch.float32: 5e-7}


def features_of(arms: Tensor | int, dtype: torch.dtype | None, device: torch.device | str | None) -> Tensor:
    """Arms as ``(*batch, N, d)`` features; for a number N, the indices 0, ..., N - 1."""
    if isinstance(arms, int):
        validation.positive_integer("arms", arms)
        return torch.arange(arms, dtype=dtype or torch.float64, device=device).unsqueeze(-1)
    validation.tensor("arms", arms)
    validation.shape_is("arms", arms, arms.dim() >= 2 and arms.shape[-2] >= 1, "(*batch, N, d) with N >= 1")
    dtype = dtype or (arms.dtype if arms.is_floating_point() else torch.float64)
    # Squares of distances must also be finite.
    return validation.rewards("arms", arms.detach().to(dtype=dtype, device=device, copy=True))


def split(X: Tensor, num_arms: int, drifts: bool, fewest: int = 1) -> tuple[Tensor, Tensor | None]:
    """Indices (int64) and times (None without drift) of inputs X, ``batch x q x 1``, under drift ``x 2``."""
    width = 2 if drifts else 1
    columns = "[arm index, time]" if drifts else "[arm index]"
    validation.tensor("X", X)
    ok = X.dim() >= 2 and X.shape[-1] == width and X.shape[-2] >= fewest
    validation.shape_is("X", X, ok, f"batch_shape x q x {width} with q >= {fewest}: {columns}")
    validation.finite_tensor("X", X)
    index = X[..., 0].long()
    ok = bool(((index == X[..., 0]) & (index >= 0) & (index < num_arms)).all())
    validation.require(ok, "X[..., 0]", X[..., 0], f"arm indices 0 to {num_arms - 1}")
    return index, X[..., 1] if drifts else None


def arms_and_rewards(
    X: Tensor, Y: Tensor, num_arms: int, drifts: bool, batch_shape: torch.Size, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Arms (b, n), rewards (b, n) and times ``batch x n`` (None without drift) of a block of observations. X:
    ``batch x n x 1`` (under drift ``x 2``), Y: ``batch x n x 1``; dtype: of the model."""
    index, times = split(X, num_arms, drifts, fewest=0)
    validation.tensor("Y", Y)
    validation.shape_is("Y", Y, Y.dim() >= 2 and Y.shape[-1] == 1, "batch_shape x n x 1")
    n = X.shape[-2]
    validation.shape_is("Y", Y, Y.shape[-2] == n, f"batch_shape x {n} x 1, as X has")
    validation.rewards("Y", Y, dtype)
    return flat("X", index, batch_shape, n), flat("Y", Y.detach().squeeze(-1), batch_shape, n), times


def moments(times: Tensor | None, n: int, in_order: bool = True) -> list[float]:
    """The n times of a block of observations, 0 without drift. Raises ValueError unless they are the same in every
    member and, if ``in_order``, do not decrease."""
    if times is None:
        return [0.0] * n
    first = times.reshape(-1)[:n]
    validation.require(
        bool((times == first).all()), "X[..., 1]", times, "the same times in every batch member"
    )
    listed = first.tolist()
    ordered = not in_order or all(a <= b for a, b in itertools.pairwise(listed))
    validation.require(ordered, "X[..., 1]", times, "times that do not decrease")
    return listed


def flat(name: str, value: Tensor, batch_shape: torch.Size, *tail: int) -> Tensor:
    """``value``, which must broadcast to ``(*batch_shape, *tail)``, with a flat batch: (b, *tail)."""
    try:
        return value.expand((*batch_shape, *tail)).reshape((batch_shape.numel(), *tail))
    except RuntimeError as error:
        expected = f"a batch that broadcasts to {tuple(batch_shape)}"
        raise ValueError(f"{name} must have {expected}, got shape {tuple(value.shape)}") from error


def flat_mask(where: Tensor, batch_shape: torch.Size) -> Tensor:
    """``where``, booleans that must broadcast to ``batch_shape``, as (b,)."""
    boolean = isinstance(where, Tensor) and where.dtype == torch.bool
    validation.require(boolean, "where", where, "a boolean tensor")
    return flat("where", where, batch_shape)


def points_of(X: Tensor, batch_shape: torch.Size) -> torch.Size:
    """The shape that the batches of X and of the model broadcast to, ``(..., *batch_shape)``."""
    members = len(batch_shape)
    try:
        out = torch.broadcast_shapes(X.shape[:-2], batch_shape)
    except RuntimeError:
        out = torch.Size([-1] * members)
    # X must not widen a batch dimension of size 1 if there are several members, which would be mixed up.
    ok = out[len(out) - members :] == batch_shape or batch_shape.numel() == 1
    validation.shape_is(
        "X", X, ok and -1 not in out, f"t_batch x q x d, t_batch broadcasting to (..., *{tuple(batch_shape)})"
    )
    return out


def kernel_over(arms: Tensor, kernel: Kernel | Tensor) -> Kernel:
    """A copy of the kernel, with dtype and device of the arms; for a covariance matrix, a kernel over indices.

    It is a copy because a model changes its kernel when it loads a state or learns hyperparameters.
    """
    if isinstance(kernel, Tensor):
        return ArmCovarianceKernel(kernel.to(arms))
    validation.instance("kernel", kernel, Kernel, "a gpytorch.kernels.Kernel or a tensor")
    return copy.deepcopy(kernel).to(arms)


@contextmanager
def takes_columns(kernel: Kernel, count: int) -> Iterator[None]:
    """Within the block the kernel is evaluated at inputs of ``count`` columns. Raises ValueError if that fails, and for
    a kernel of several outputs."""
    x, kind = torch.zeros(1, count), type(kernel).__name__
    one = kernel.num_outputs_per_input(x, x) == 1
    validation.require(one, "kernel", kind, "a kernel of one output for each input")
    try:
        with torch.no_grad():
            yield
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"kernel must take inputs of {count} columns, got a {kind}: {error}") from error


def noise_over(arms: Tensor, noise_variance: float | Tensor) -> Tensor:
    """Noise variance > 0. It is a copy, because ``load_state_dict`` writes into buffers."""
    noise = validation.numbers("noise_variance", noise_variance, arms).clone()
    ok = bool((torch.isfinite(noise) & (noise > 0)).all())
    validation.require(ok, "noise_variance", noise, "finite and > 0")
    return noise


def check_ratio(noise_variance: Tensor, prior_variance: Tensor) -> None:
    """Raises ValueError if the noise variance, (*batch), is not finite, or if it is in some member, for its dtype, too
    small relative to the largest prior variance there, of (*prior_batch, N) that broadcasts with (*batch, 1)."""
    validation.finite_tensor("noise_variance", noise_variance)
    least = SMALLEST_RATIO.get(noise_variance.dtype, 1e-5)
    largest = prior_variance.amax(-1).clamp_min(torch.finfo(prior_variance.dtype).tiny)
    ratio = float((noise_variance / largest).min())
    expected = f"at least {least:g} of the largest prior variance in {noise_variance.dtype} (it is {ratio:.1e} of it)"
    validation.require(ratio >= least * (1 - 1e-6), "noise_variance", noise_variance, expected)


def prior_mean_over(arms: Tensor, prior_mean: float | Tensor) -> Tensor:
    """A copy of the prior mean, finite, () or (*batch, N)."""
    mean = validation.numbers("prior_mean", prior_mean, arms).clone()
    validation.rewards("prior_mean", mean)
    num_arms = arms.shape[-2]
    if mean.dim():
        validation.shape_is("prior_mean", mean, mean.shape[-1] == num_arms, f"(*batch, {num_arms})")
    return mean
