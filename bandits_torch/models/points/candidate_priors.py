"""Candidate priors over the points of a domain, stacked into the batch dimension of one ``OnlineGP``."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, StackedKernel
from bandits_torch.models.candidate_prior import ALMOST_STATIC, CandidatePrior, check_priors
from bandits_torch.models.hyperparameters import ANISOTROPY, learnable
from bandits_torch.models.points.online_gp import OnlineGP


def online_gp_over_priors(
    domain: Domain,
    priors: Sequence[CandidatePrior],
    noise_variance: float | Tensor,
    *,
    replicates: int = 1,
    learn: bool = False,
    anisotropy: float = ANISOTROPY,
) -> OnlineGP:
    """One ``OnlineGP`` of batch shape (replicates, P), member p holding prior p; families may differ.

    If any prior is over time (a forgetting rate, or a ``SpatioTemporalKernel`` of any time kernel), all are, and time
    is the last input.

    Args:
        domain: of the points.
        priors: P of them, kernels over points and numbers for means.
        noise_variance: lambda, a number or (S,), for priors without their own.
        replicates: S.
        learn: make the kernels ``learnable``, each replicate's its own.
        anisotropy: of ``learnable``.

    Raises ValueError for an empty set, a matrix for a kernel, a mean of arms, a rate outside [0, 1).
    """
    check_priors(priors)
    validation.positive_integer("replicates", replicates)
    kernels = [_kernel(p, prior) for p, prior in enumerate(priors)]
    if any(isinstance(kernel, SpatioTemporalKernel) for kernel in kernels):
        kernels = [
            kernel if isinstance(kernel, SpatioTemporalKernel) else _static(kernel) for kernel in kernels
        ]
    over_time = isinstance(kernels[0], SpatioTemporalKernel)
    if learn:
        kernels = [learnable(kernel, domain.dim, replicates, anisotropy) for kernel in kernels]
    like = domain.bounds
    shape = torch.Size([replicates, len(priors)])
    given = torch.as_tensor(noise_variance).to(like)
    own = [given if p.noise_variance is None else torch.full_like(given, p.noise_variance) for p in priors]
    mean = ConstantMean(batch_shape=shape).to(like)
    mean.constant.data.copy_(like.new_tensor([_mean(p, prior) for p, prior in enumerate(priors)]))
    return OnlineGP(
        StackedKernel(kernels),
        torch.stack(own, -1).expand(shape),
        prior_mean=mean.requires_grad_(False),
        input_dim=domain.dim + over_time,
        batch_shape=shape,
        dtype=like.dtype,
        device=like.device,
    )


def online_gp_of_prior(
    domain: Domain, prior: CandidatePrior, noise_variance: float | Tensor, *, replicates: int
) -> OnlineGP:
    """An ``OnlineGP`` of batch shape (replicates,) that holds one prior; arguments and errors as above.

    ``domain``, ``noise_variance`` and ``replicates`` as for ``online_gp_over_priors``.
    """
    check_priors([prior])
    validation.positive_integer("replicates", replicates)
    kernel, like, shape = _kernel(0, prior), domain.bounds, torch.Size([replicates])
    given = torch.as_tensor(noise_variance).to(like)
    noise = given if prior.noise_variance is None else torch.full_like(given, prior.noise_variance)
    mean = ConstantMean(batch_shape=shape).to(like)
    mean.constant.data.fill_(_mean(0, prior))
    return OnlineGP(
        kernel,
        noise.expand(shape),
        prior_mean=mean.requires_grad_(False),
        input_dim=domain.dim + isinstance(kernel, SpatioTemporalKernel),
        batch_shape=shape,
        dtype=like.dtype,
        device=like.device,
    )


def _kernel(p: int, prior: CandidatePrior) -> Kernel:
    of_points = isinstance(prior.kernel, Kernel)
    validation.require(
        of_points, f"priors[{p}].kernel", prior.kernel, "a kernel over points, not a matrix of arms"
    )
    kernel = copy.deepcopy(prior.kernel)
    if not prior.forgetting_rate:
        return kernel
    twice = isinstance(kernel, SpatioTemporalKernel)
    validation.require(
        not twice, f"priors[{p}].forgetting_rate", prior.forgetting_rate, "0 with a kernel over time"
    )
    rate = torch.tensor(prior.forgetting_rate, dtype=torch.float64)
    return SpatioTemporalKernel(kernel, ExponentialForgettingKernel(rate))


def _static(kernel: Kernel) -> Kernel:
    rate = torch.tensor(ALMOST_STATIC, dtype=torch.float64)
    return SpatioTemporalKernel(kernel, ExponentialForgettingKernel(rate))


def _mean(p: int, prior: CandidatePrior) -> float:
    number = not isinstance(prior.mean, Tensor) or prior.mean.dim() == 0
    validation.require(number, f"priors[{p}].mean", prior.mean, "a number: there are no arms")
    return float(prior.mean)
