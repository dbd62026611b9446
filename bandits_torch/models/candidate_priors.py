"""Candidate priors, over arms or over points, stacked into the batch dimension of one model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MarkovTimeKernel,
    SpatioTemporalKernel,
    StackedKernel,
)
from bandits_torch.kernels.arms import inputs_over
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.hyperparameters import ANISOTROPY, learnable
from bandits_torch.models.online_model import require_within
from bandits_torch.models.points.online_gp import OnlineGP

ALMOST_STATIC = 1e-15  # forgetting rate of a static prior if other priors of the set forget


@validation.names_arguments
@dataclass(frozen=True)
class CandidatePrior:
    """A candidate prior of the reward function.

    Attributes:
        kernel: any kernel over the features of arms or over points; or the N x N covariance matrix of the arms, for
            example the ``estimate_covariance`` of a past day.
        mean: prior mean reward, a number or (N,).
        forgetting_rate: epsilon of exponential forgetting per unit of time, 0 for a static function.
        noise_variance: lambda; None: the noise variance given for all priors.
        name: for plots and traces.
    """

    kernel: Kernel | Tensor
    mean: float | Tensor = 0.0
    forgetting_rate: float = 0.0
    noise_variance: float | None = None
    name: str = ""


def check_priors(priors: Sequence[CandidatePrior]) -> None:
    """Raise ValueError for an empty set, entries of the wrong type and a forgetting rate outside [0, 1)."""
    validation.instance("priors", priors, Sequence, "a sequence of CandidatePrior")
    validation.require(len(priors) > 0, "priors", list(priors), "at least one CandidatePrior")
    for p, prior in enumerate(priors):
        name, expected = f"priors[{p}]", "a gpytorch.kernels.Kernel or a tensor"
        validation.instance(name, prior, CandidatePrior, "a CandidatePrior")
        validation.instance(f"{name}.kernel", prior.kernel, (Kernel, Tensor), expected)
        validation.below_one(f"{name}.forgetting_rate", prior.forgetting_rate)


def _noise_of(p: int, prior: CandidatePrior, given: Tensor) -> Tensor:
    """The noise variance of the prior, or ``given`` if it has none."""
    if prior.noise_variance is None:
        return given
    return torch.full_like(given, validation.positive(f"priors[{p}].noise_variance", prior.noise_variance))


def arm_gp_over_priors(
    arms: Tensor | int,
    priors: Sequence[CandidatePrior],
    noise_variance: float | Tensor,
    *,
    replicates: int | None = None,
    form: str = "auto",
) -> ArmGP:
    """One ``ArmGP`` of batch shape (replicates, P) whose member p has prior p; kernel families may differ.

    Every kernel becomes an N x N matrix; a kernel object that all priors share is stored once. Memory O(S P N^2) in the
    covariance form.

    Args:
        arms: ``(N, d)`` features, or N.
        priors: P of them.
        noise_variance: lambda of priors that have none, a number or (S,).
        replicates: S; None: the batch shape is (P,), for a BoTorch loop.
        form: as for ``ArmGP``.

    Raises ValueError for an empty set, a mean or a covariance for any other number of arms, a covariance that is not
    positive semi-definite, a kernel over time and a rate outside [0, 1).
    """
    check_priors(priors)
    runs = () if replicates is None else (validation.positive_integer("replicates", replicates),)
    features = _features(arms)
    means = torch.stack([_mean_over_arms(p, prior, features) for p, prior in enumerate(priors)])
    kernel: Kernel = _kernel_over_arms(priors, features)
    rates = [prior.forgetting_rate for prior in priors]
    if any(rates):
        positive = features.new_tensor([max(rate, ALMOST_STATIC) for rate in rates]).unsqueeze(-1)
        time_kernel = ExponentialForgettingKernel(positive, batch_shape=torch.Size([len(priors)]))
        kernel = SpatioTemporalKernel(kernel, time_kernel)
    given = validation.numbers("noise_variance", noise_variance, features)
    noise = torch.stack([_noise_of(p, prior, given) for p, prior in enumerate(priors)], -1)
    return ArmGP(features, kernel, noise, prior_mean=means, form=form, batch_shape=(*runs, len(priors)))


def arm_gp_of_prior(
    arms: Tensor | int,
    prior: CandidatePrior,
    noise_variance: float | Tensor,
    *,
    replicates: int,
    form: str = "auto",
) -> ArmGP:
    """An ``ArmGP`` of batch shape (replicates,) with one ``prior``.

    ``arms``, ``noise_variance``, ``replicates`` (>= 1), ``form`` and the ValueErrors as for ``arm_gp_over_priors``.
    """
    validation.instance("prior", prior, CandidatePrior, "a CandidatePrior")
    check_priors([prior])
    validation.positive_integer("replicates", replicates)
    features = _features(arms)
    kernel: Kernel = _kernel_over_arms([prior], features)
    if prior.forgetting_rate:
        kernel = SpatioTemporalKernel(
            kernel, ExponentialForgettingKernel(features.new_tensor(prior.forgetting_rate))
        )
    return ArmGP(
        features,
        kernel,
        _noise_of(0, prior, validation.numbers("noise_variance", noise_variance, features)),
        prior_mean=_mean_over_arms(0, prior, features),
        form=form,
        batch_shape=(replicates,),
    )


def _features(arms: Tensor | int) -> Tensor:
    features = inputs.features_of(arms, None, None)
    return validation.of_shape("arms", features, ("N", "d"), note=", the same for every replicate")


def _mean_over_arms(p: int, prior: CandidatePrior, arms: Tensor) -> Tensor:
    name, n = f"priors[{p}].mean", arms.shape[-2]
    mean = validation.numbers(name, prior.mean, arms)
    validation.of_shape(name, mean, (), (n,), note=", one number for each arm")
    return validation.rewards(name, mean).expand(n)


def _kernel_over_arms(priors: Sequence[CandidatePrior], arms: Tensor) -> ArmCovarianceKernel:
    """The covariances of the priors as one kernel of batch shape (P,), or () if all share one kernel object."""
    shared = all(prior.kernel is priors[0].kernel for prior in priors)
    n, matrices = arms.shape[-2], []
    for p, prior in enumerate(priors[:1] if shared else priors):
        name, kernel = f"priors[{p}].kernel", prior.kernel
        if isinstance(kernel, Tensor):
            validation.of_shape(name, kernel, (n, n), note=", one row for each arm")
            try:
                matrices.append(ArmCovarianceKernel(kernel.to(arms)).covariance)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            continue
        timed = any(isinstance(part, MarkovTimeKernel | SpatioTemporalKernel) for part in kernel.modules())
        expected = "a kernel over arms alone: set forgetting_rate for drift"
        validation.require(not timed, name, kernel, expected)
        with torch.no_grad():
            matrix = copy.deepcopy(kernel).to(arms)(inputs_over(arms, kernel)).to_dense()
        validation.of_shape(name, matrix, (n, n), note=" when called with the arms")
        matrices.append((matrix + matrix.mT) / 2)
    return ArmCovarianceKernel(matrices[0] if shared else torch.stack(matrices))


def online_gp_over_priors(
    domain: Domain,
    priors: Sequence[CandidatePrior],
    noise_variance: float | Tensor,
    *,
    replicates: int = 1,
    learn: bool = False,
    anisotropy: float = ANISOTROPY,
) -> OnlineGP:
    """One ``OnlineGP`` of batch shape (replicates, P) whose member p has prior p; kernel families may differ.

    If any prior depends on time (by a forgetting rate, or a ``SpatioTemporalKernel`` with any time kernel), time is the
    last input, and static priors forget at a rate of 1e-15.

    Args:
        domain: where the points are.
        priors: P of them, with kernels over points and numbers as means.
        noise_variance: lambda of priors that have none, a number or (S,).
        replicates: S.
        learn: make the kernels ``learnable``, with hyperparameters for each replicate.
        anisotropy: as for ``learnable``.

    Raises ValueError for an empty set, a matrix as a kernel, a mean of several numbers, a rate outside [0, 1), and a
    rate above 0 with a ``SpatioTemporalKernel``.
    """
    check_priors(priors)
    validation.positive_integer("replicates", replicates)
    kernels, means, like = [], [], domain.bounds
    for p, prior in enumerate(priors):
        name, rate, mean = f"priors[{p}]", prior.forgetting_rate, prior.mean
        expected = "a kernel over points, not a matrix"
        validation.instance(f"{name}.kernel", prior.kernel, Kernel, expected)
        once = not (rate and has_time(prior.kernel))
        validation.require(once, f"{name}.forgetting_rate", rate, "0 for a kernel over time")
        kernel = copy.deepcopy(prior.kernel)
        kernels.append(_forgetting(kernel, rate) if rate else kernel)
        number = not isinstance(mean, Tensor) or mean.dim() == 0
        validation.require(number, f"{name}.mean", mean, "a number")
        means.append(validation.rewards(f"{name}.mean", validation.numbers(f"{name}.mean", mean, like)))
    over_time = any(map(has_time, kernels))
    if over_time:
        kernels = [kernel if has_time(kernel) else _forgetting(kernel, ALMOST_STATIC) for kernel in kernels]
    if learn:
        ranges = domain.bounds[1] - domain.bounds[0]
        kernels = [learnable(kernel, domain.dim, replicates, anisotropy, ranges) for kernel in kernels]
    given = validation.numbers("noise_variance", noise_variance, like)
    noise = torch.stack([_noise_of(p, prior, given) for p, prior in enumerate(priors)], -1)
    shape = torch.Size((replicates, len(priors)))
    require_within(shape, noise.shape, "noise_variance")
    prior_mean = ConstantMean(batch_shape=shape).to(like)
    prior_mean.constant.data.copy_(torch.stack(means))
    return OnlineGP(
        StackedKernel(kernels),
        noise.expand(shape),
        prior_mean=prior_mean.requires_grad_(False),
        input_dim=domain.dim + over_time,
        batch_shape=shape,
        dtype=like.dtype,
        device=like.device,
    )


def has_time(kernel: Kernel) -> bool:
    """Whether it is a ``SpatioTemporalKernel``, or contains one."""
    return any(isinstance(part, SpatioTemporalKernel) for part in kernel.modules())


def _forgetting(kernel: Kernel, rate: float) -> Kernel:
    """The kernel times exponential forgetting at this rate."""
    return SpatioTemporalKernel(kernel, ExponentialForgettingKernel(torch.tensor(rate, dtype=torch.float64)))
