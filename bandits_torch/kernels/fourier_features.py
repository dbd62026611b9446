"""Fourier features of our kernels, registered with BoTorch's dispatcher.

Importing ``bandits_torch.kernels`` makes BoTorch's pathwise sampling work on any GP with a ``SpatioTemporalKernel``
whose two kernels have Fourier features.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.sampling.pathwise.features import KernelFeatureMap, gen_kernel_features
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from botorch.sampling.pathwise.utils import (
    ChainedTransform,
    OutputscaleTransform,
    SineCosineTransform,
    TensorTransform,
)
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.spatio_temporal import SpatioTemporalKernel
from bandits_torch.kernels.temporal import ExponentialForgettingKernel


class _Decay(TensorTransform):
    """Times in units of the exponential kernel's length, 2 / -log(1 - eps)."""

    def __init__(self, kernel: ExponentialForgettingKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, values: Tensor, **_unused: Any) -> Tensor:
        return -0.5 * torch.log1p(-self.kernel.forgetting_rate.unsqueeze(-1)) * values


class _Beside(TensorTransform):
    """One transform (or none) for all columns but the last, another for the last."""

    def __init__(self, space: Any, time: Any) -> None:
        super().__init__()
        self.space, self.time = space, time

    def forward(self, values: Tensor, **_unused: Any) -> Tensor:
        x, t = values[..., :-1], values[..., -1:]
        x = x if self.space is None else self.space(x)
        return torch.cat([x, t if self.time is None else self.time(t)], -1)


@GenKernelFeatures.register(ExponentialForgettingKernel)
def _features_of_forgetting(
    kernel: ExponentialForgettingKernel, *, num_inputs: int, num_outputs: int
) -> KernelFeatureMap:
    """exp(-|t - t'| / length) is the Fourier transform of a Cauchy density: Matern with nu = 1/2."""
    validation.require(num_inputs == 1, "num_inputs", num_inputs, "1: a kernel over time")
    _one_kernel(kernel)
    rate = kernel.forgetting_rate
    normal = torch.randn(2, num_outputs // 2, 1, dtype=rate.dtype, device=rate.device)
    return KernelFeatureMap(
        kernel,
        weight=normal[0] / normal[1].abs(),
        input_transform=_Decay(kernel),
        output_transform=_waves(rate, num_outputs),
    )


@GenKernelFeatures.register(SpatioTemporalKernel)
def _features_of_product(
    kernel: SpatioTemporalKernel, *, num_inputs: int, num_outputs: int
) -> KernelFeatureMap:
    """The spectral density of a product over different inputs is the product of the densities, so frequencies of the
    two are drawn independently and set side by side."""
    _one_kernel(kernel)
    space = gen_kernel_features(kernel.space_kernel, num_inputs=num_inputs - 1, num_outputs=num_outputs)
    time = gen_kernel_features(kernel.time_kernel, num_inputs=1, num_outputs=num_outputs)
    # Shuffled: rows of two low-discrepancy sequences at one place are not independent.
    shuffled = time.weight[torch.randperm(num_outputs // 2, device=time.weight.device)]
    return KernelFeatureMap(
        kernel,
        weight=torch.cat([space.weight, shuffled], -1),
        input_transform=_Beside(space.input_transform, time.input_transform),
        output_transform=ChainedTransform(*_scales(kernel), _waves(space.weight, num_outputs)),
    )


def _one_kernel(kernel: Kernel) -> None:
    shape = tuple(kernel.batch_shape)
    validation.require(shape == (), "kernel.batch_shape", shape, "() for features: one kernel")
    validation.require(kernel.active_dims is None, "kernel.active_dims", kernel.active_dims, "None: all")


def _scales(kernel: Kernel) -> list[OutputscaleTransform]:
    """The scales inside a product."""
    if isinstance(kernel, ScaleKernel):
        return [OutputscaleTransform(kernel), *_scales(kernel.base_kernel)]
    if isinstance(kernel, SpatioTemporalKernel):
        return [*_scales(kernel.space_kernel), *_scales(kernel.time_kernel)]
    return []


def _waves(like: Tensor, num_outputs: int) -> SineCosineTransform:
    return SineCosineTransform(
        torch.as_tensor((2 / num_outputs) ** 0.5, dtype=like.dtype, device=like.device)
    )
