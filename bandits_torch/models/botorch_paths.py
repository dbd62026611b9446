"""Support for BoTorch's pathwise sampling on our models, registered with its dispatchers.

``import bandits_torch.models`` makes ``draw_matheron_paths``, ``get_matheron_path_model`` and BoTorch's
``PathwiseThompsonSampling`` work on ``OnlineGP``, on models over arms and on ``AtTime``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
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
from linear_operator.operators import DiagLinearOperator
from torch import Size, Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import AtTime, with_time
from bandits_torch.models.points.online_gp import OnlineGP


@DrawKernelFeaturePaths.register(OnlineGP)
def _prior_paths(model: OnlineGP, **options: Any) -> GeneralizedLinearPath:
    _check_single(model)
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
    """Matheron's correction of the prior paths by the data, computed by BoTorch. O(n^3)."""
    (points,) = model.train_inputs
    return _gaussian_update_exact(
        kernel=model.kernel,
        points=points,
        target_values=(model.train_targets if target_values is None else target_values).to(points),
        sample_values=sample_values,
        noise_covariance=DiagLinearOperator(model.noise_variance.to(points).expand(points.shape[:-1])),
    )


@DrawMatheronPaths.register(OnlineGP)
def _paths_of_online_gp(
    model: OnlineGP,
    *,
    sample_shape: Size,
    prior_sampler: Any = draw_kernel_feature_paths,
    update_strategy: Any = gaussian_update,
) -> SamplePath:
    _check_single(model)
    if update_strategy is gaussian_update:  # its default would read ``model.likelihood``, which raises
        update_strategy = partial(gaussian_update, likelihood=None)
    with torch.no_grad():
        prior = prior_sampler(model=model, sample_shape=sample_shape)
        if not int(model.num_observations):
            return prior
        drawn = prior.forward(model.train_inputs[0])
        update = update_strategy(model=model, sample_values=drawn, target_values=model.train_targets)
    return MatheronPath(prior_paths=prior, update_paths=update)


def _check_single(model: OnlineGP | ArmModel) -> None:
    shape = tuple(model.batch_shape)
    validation.require(shape == (), "model.batch_shape", shape, "(): paths are drawn from a single model")
    if isinstance(model, OnlineGP):
        model.check_one_noise()


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
        """Does nothing: there is no ensemble."""


@DrawMatheronPaths.register(ArmModel)
def _paths_over_arms(
    model: ArmModel, *, sample_shape: Size, time: float | None = None, **_unused: Any
) -> SamplePath:
    """Exact draws from the joint posterior of all arms; ``prior_sampler`` and ``update_strategy`` have no effect."""
    _check_single(model)
    expected = "AtTime(model, time): a path over arms is f at one time"
    validation.require(not model.drifts or time is not None, "model", model, expected)
    with torch.no_grad():
        mean, root = model.joint_root(time)
        normal = torch.randn(*sample_shape, len(mean), dtype=mean.dtype, device=mean.device)
        return _ArmPath(mean + normal @ root.mT)


@DrawMatheronPaths.register(AtTime)
def _paths_at_time(model: AtTime, **options: Any) -> SamplePath:
    if isinstance(model.model, ArmModel):
        return _paths_over_arms(model.model, time=model.time, **options)
    path = draw_matheron_paths(model.model, **options)
    path.input_transform = partial(with_time, time=model.time)
    return path
