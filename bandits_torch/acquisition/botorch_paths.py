"""What BoTorch's pathwise sampling needs to know of our models and kernels, registered with its dispatchers.

Importing this module makes ``draw_matheron_paths``, ``get_matheron_path_model`` and BoTorch's own
``PathwiseThompsonSampling`` work on ``OnlineGP``, on models over arms, on ``AtTime``, and on any GP with a
``SpatioTemporalKernel`` whose two kernels have Fourier features.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.sampling.pathwise.features import KernelFeatureMap, gen_kernel_features
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from botorch.sampling.pathwise.paths import GeneralizedLinearPath, SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths, MatheronPath, draw_matheron_paths
from botorch.sampling.pathwise.prior_samplers import (
    DrawKernelFeaturePaths,
    _draw_kernel_feature_paths_fallback,
    draw_kernel_feature_paths,
)
from botorch.sampling.pathwise.update_strategies import (
    GaussianUpdate,
    _gaussian_update_exact,
    gaussian_update,
)
from botorch.sampling.pathwise.utils import (
    ChainedTransform,
    OutputscaleTransform,
    SineCosineTransform,
    TensorTransform,
)
from gpytorch.kernels import Kernel, ScaleKernel
from linear_operator.operators import DiagLinearOperator
from torch import Size, Tensor

from bandits_torch import validation
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.algebra.cholesky import batched_cholesky
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.models.at_time import AtTime
from bandits_torch.models.points.online_gp import OnlineGP

# -- features of kernels -----------------------------------------------------------------------------------


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


# -- paths of OnlineGP -------------------------------------------------------------------------------------


@DrawKernelFeaturePaths.register(OnlineGP)
def _prior_paths(model: OnlineGP, **options: Any) -> GeneralizedLinearPath:
    _one_model(model)
    return _draw_kernel_feature_paths_fallback(
        num_inputs=model.input_dim, mean_module=model.prior_mean, covar_module=model.kernel, **options
    )


@GaussianUpdate.register(OnlineGP, type(None))
def _update_paths(
    model: OnlineGP,
    likelihood: None,
    *,
    sample_values: Tensor,
    target_values: Tensor | None = None,
    **_unused: Any,
) -> GeneralizedLinearPath:
    """The correction by the data, with BoTorch's algebra. O(n^3)."""
    (points,) = model.train_inputs
    return _gaussian_update_exact(
        kernel=model.kernel,
        points=points,
        target_values=model.train_targets if target_values is None else target_values,
        sample_values=sample_values,
        noise_covariance=DiagLinearOperator(model.noise_variance.expand(points.shape[:-1])),
    )


@DrawMatheronPaths.register(OnlineGP)
def _paths_of_online_gp(
    model: OnlineGP,
    *,
    sample_shape: Size,
    prior_sampler: Any = draw_kernel_feature_paths,
    update_strategy: Any = gaussian_update,
) -> SamplePath:
    _one_model(model)
    with torch.no_grad():
        prior = prior_sampler(model=model, sample_shape=sample_shape)
        if not int(model.num_observations):
            return prior
        drawn = prior.forward(model.train_inputs[0])
        update = update_strategy(model=model, sample_values=drawn, target_values=model.train_targets)
    return MatheronPath(prior_paths=prior, update_paths=update)


def _one_model(model: OnlineGP) -> None:
    shape = tuple(model.batch_shape)
    validation.require(shape == (), "model.batch_shape", shape, "(): paths are drawn of one model")
    validation.require(
        not model._own_noise, "model", "conditioned with noise=", "one whose noise is noise_variance alone"
    )


# -- paths over arms, and at a time ------------------------------------------------------------------------


class _ArmPath(SamplePath):
    """Draws of a function over arms, ``sample_shape x N``, looked up by index."""

    def __init__(self, draws: Tensor) -> None:
        super().__init__()
        self.register_buffer("draws", draws)
        self.draws: Tensor

    def forward(self, x: Tensor, **_unused: Any) -> Tensor:
        """Values ``... x q`` at indices ``... x q x 1``."""
        index = x.squeeze(-1).long()
        shape = torch.broadcast_shapes(index.shape[:-1], self.draws.shape[:-1])
        return self.draws.expand(*shape, -1).gather(-1, index.expand(*shape, -1))

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """There is no ensemble."""


class _AppendTime(TensorTransform):
    def __init__(self, time: float) -> None:
        super().__init__()
        self.time = time

    def forward(self, values: Tensor, **_unused: Any) -> Tensor:
        return torch.cat([values, torch.full_like(values[..., :1], self.time)], -1)


@DrawMatheronPaths.register((ArmModel, WeightedGP))
def _paths_over_arms(
    model: ArmModel | WeightedGP, *, sample_shape: Size, time: float | None = None, **_unused: Any
) -> SamplePath:
    """Exact draws of the joint posterior of all arms; nothing is approximated, so the strategies play no part."""
    shape = tuple(model.batch_shape)
    validation.require(shape == (), "model.batch_shape", shape, "(): paths are drawn of one model")
    drifts = isinstance(model, ArmModel) and model.drifts
    validation.require(
        not drifts or time is not None,
        "model",
        model,
        "AtTime(model, time): a path over arms is of one moment",
    )
    with torch.no_grad():
        if isinstance(model, ArmModel):
            mean, root = model.joint_root(time)
        else:
            arms = torch.arange(model.num_arms, dtype=model.weight.dtype, device=model.weight.device)
            now = model(arms.unsqueeze(-1))
            mean, root = now.mean, batched_cholesky(now.covariance_matrix)
        normal = torch.randn(*sample_shape, len(mean), dtype=mean.dtype, device=mean.device)
        return _ArmPath(mean + normal @ root.mT)


@DrawMatheronPaths.register(AtTime)
def _paths_at_time(model: AtTime, **options: Any) -> SamplePath:
    if isinstance(model.model, ArmModel):
        return _paths_over_arms(model.model, time=model.time, **options)
    path = draw_matheron_paths(model.model, **options)
    path.input_transform = _AppendTime(model.time)
    return path
