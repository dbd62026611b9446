"""Joint posteriors of a ``SketchedGP``, at its arms or anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior, Posterior
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms import inputs
from bandits_torch.models.broadcasting import noise_added
from bandits_torch.models.marginal_posterior import MarginalPosterior
from bandits_torch.models.sketch.sketch import Sketch


class _Sketched(Protocol):
    arms: Tensor
    noise_variance: Tensor
    prior_mean: Tensor

    @property
    def batch_shape(self) -> torch.Size: ...

    @property
    def sketches(self) -> list[Sketch]: ...


class OffArms(Model):
    """A ``SketchedGP`` seen as a model over features: any BoTorch acquisition, ``optimize_acqf`` too, runs on it."""

    likelihood = None

    def __init__(self, model: _Sketched) -> None:
        super().__init__()
        self.model = model

    @property
    def num_outputs(self) -> int:
        """Always 1."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        """Replicates."""
        return self.model.batch_shape

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
        **_unused: Any,
    ) -> Posterior:
        """Joint posterior at X, ``t_batch x q x d`` features."""
        model = self.model
        d = model.arms.shape[-1]
        validation.shape_is("X", X, X.dim() >= 2 and X.shape[-1] == d, f"t_batch x q x {d}")
        noise = noise_added(output_indices, observation_noise, model.noise_variance)
        points = torch.broadcast_shapes(X.shape[:-2], model.batch_shape)
        mean, covariance = moments_at(model.sketches, X.expand(*points, *X.shape[-2:]))
        found = joint_posterior(mean + model.prior_mean, covariance, noise)
        return found if posterior_transform is None else posterior_transform(found)


def arms_posterior(model: _Sketched, X: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
    """Joint posterior at arms by index, X: ``t_batch x q x 1``."""
    num_arms = model.arms.shape[-2]
    index, _ = inputs.split(X, num_arms, False)
    points = inputs.points_of(X, model.batch_shape)
    index = index.expand(*points, X.shape[-2])
    prior_mean = model.prior_mean
    if prior_mean.dim():
        prior_mean = prior_mean.expand(*points, num_arms).gather(-1, index)
    mean, covariance = moments_at(model.sketches, model.sketches[0].prior.inputs[index])
    return joint_posterior(mean + prior_mean, covariance, noise)


def joint_posterior(mean: Tensor, covariance: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
    """Posterior of mean (..., q) and covariance (..., q, q), plus noise (..., q) or 0 on the diagonal."""
    if mean.shape[-1] == 1:
        return MarginalPosterior(mean, covariance.squeeze(-1).clamp_min(0.0) + noise)
    if isinstance(noise, Tensor):
        covariance = covariance + torch.diag_embed(noise.expand(mean.shape))
    # As an operator, factored when somebody samples: a tensor would be factored here, singular for repeated points.
    return GPyTorchPosterior(MultivariateNormal(mean, to_linear_operator(covariance)))


def moments_at(sketches: Sequence[Sketch], inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (*points, q), prior mean left out, and covariance (*points, q, q) at inputs (*points, q, d), where the last
    of the points are those of the sketches, one each."""
    flat = inputs.reshape(-1, len(sketches), *inputs.shape[-2:])
    means, covariances = [], []
    for k, sketch in enumerate(sketches):
        x, kernel = flat[:, k], sketch.prior.space_kernel
        mean, z, Cz = sketch.at(kernel(sketch.inducing_inputs(), x).to_dense())
        means.append(mean)
        covariances.append(kernel(x).to_dense() - z.mT @ (z - Cz))
    shape = inputs.shape[:-1]
    return torch.stack(means, 1).reshape(shape), torch.stack(covariances, 1).reshape(*shape, shape[-1])
