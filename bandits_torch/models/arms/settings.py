"""Arguments that models over a finite set of arms share: checked, and brought to the arms' dtype and device."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.broadcasting import broadcast


def kernel_over(arms: Tensor, kernel: Kernel | Tensor) -> Kernel:
    """A copy of the kernel in the arms' dtype and on their device; for a covariance matrix a kernel over indices.

    A copy, since a model writes into its kernel where it loads a state or learns, and others may hold the one given.
    """
    if isinstance(kernel, Tensor):
        return ArmCovarianceKernel(kernel.to(arms))
    validation.instance("kernel", kernel, Kernel, "a gpytorch.kernels.Kernel or a tensor")
    return copy.deepcopy(kernel).to(arms)


@contextmanager
def takes_columns(kernel: Kernel, count: int) -> Iterator[None]:
    """Within the block a kernel is evaluated at a few inputs of so many columns: ValueError where it cannot be."""
    try:
        with torch.no_grad():
            yield
    except (RuntimeError, IndexError) as error:
        kind = type(kernel).__name__
        raise ValueError(f"kernel must take inputs of {count} columns, got a {kind}: {error}") from error


def noise_over(arms: Tensor, noise_variance: float | Tensor) -> Tensor:
    """Noise variance > 0, a copy: ``load_state_dict`` writes into buffers, and must not write into the caller's."""
    noise = validation.numbers("noise_variance", noise_variance, arms).clone()
    ok = bool((torch.isfinite(noise) & (noise > 0)).all())
    validation.require(ok, "noise_variance", noise, "finite and > 0")
    return noise


# A covariance K + lambda I is known to eps k, of which its inverse makes eps k / lambda: of a posterior in float64
# nothing is left at 1e-16, in float32 at 1e-7, and repeated pulls of an arm take their part of that too.
SMALLEST_RATIO = {torch.float64: 1e-10, torch.float32: 1e-5}


# Of a prior variance that grows with time or place: where it is less, nothing is left of an observation, since repeated
# pulls at the noise differ in figures that K + lambda I does not have.
SMALLEST_SPREAD = {torch.float64: 1e-15, torch.float32: 5e-7}


def check_ratio(noise_variance: Tensor, prior_variance: Tensor) -> None:
    """ValueError where the noise variance, (*batch), is too small a part of the prior variance (q, N) for its dtype."""
    least = SMALLEST_RATIO.get(noise_variance.dtype, 1e-5)
    ratio = float(noise_variance.min()) / max(
        float(prior_variance.max()), torch.finfo(prior_variance.dtype).tiny
    )
    expected = f"at least {least:g} of the largest prior variance in {noise_variance.dtype} (it is {ratio:.1e} of it)"
    validation.require(ratio >= least * (1 - 1e-6), "noise_variance", noise_variance, expected)


def prior_mean_over(arms: Tensor, prior_mean: float | Tensor) -> Tensor:
    """Finite prior mean, () or (*batch, N), a copy."""
    mean = validation.numbers("prior_mean", prior_mean, arms).clone()
    validation.rewards("prior_mean", mean)
    num_arms = arms.shape[-2]
    if mean.dim():
        validation.shape_is("prior_mean", mean, mean.shape[-1] == num_arms, f"(*batch, {num_arms})")
    return mean


def common_batch(batch_shape: tuple[int, ...], **shapes: tuple[int, ...]) -> torch.Size:
    """What ``batch_shape`` and the batches named as arguments broadcast to."""
    sizes = all(isinstance(size, int) and size >= 1 for size in batch_shape)
    validation.require(sizes, "batch_shape (replicates)", tuple(batch_shape), "integers >= 1")
    shapes = {"batch_shape": tuple(batch_shape), **shapes}
    return broadcast(", ".join(shapes), *shapes.values())
