"""Candidate priors over one arm set, stacked into the batch dimension of one model."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MarkovTimeKernel,
    SpatioTemporalKernel,
)
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.candidate_prior import ALMOST_STATIC, CandidatePrior, check_priors


def arm_gp_over_priors(
    arms: Tensor | int,
    priors: Sequence[CandidatePrior],
    noise_variance: float | Tensor,
    *,
    replicates: int | None = None,
    form: str = "auto",
) -> ArmGP:
    """One ``ArmGP`` of batch shape (replicates, P), member p holding prior p; families may differ.

    Each prior is an N x N matrix, a mean and a rate, so priors with different kernels share a batch; a kernel common to
    all priors is stored once. Memory O(S P N^2).

    Args:
        arms: ``(N, d)`` features, or N.
        priors: P of them.
        noise_variance: lambda, a number or (S,), for priors without their own.
        replicates: S; None for a model of batch shape (P,), for your own BoTorch loop.
        form: of ``ArmGP``.

    Raises ValueError for an empty set, a mean or a covariance of another arm set, a covariance that is not
    positive semi-definite, a kernel over time, a rate outside [0, 1).
    """
    check_priors(priors)
    runs = () if replicates is None else (validation.positive_integer("replicates", replicates),)
    features = _features(arms)
    means = torch.stack([_mean(p, prior, features) for p, prior in enumerate(priors)])
    kernel: Kernel = _kernel(priors, features)
    rates = [prior.forgetting_rate for prior in priors]
    if any(rates):
        positive = features.new_tensor([max(rate, ALMOST_STATIC) for rate in rates]).unsqueeze(-1)
        time_kernel = ExponentialForgettingKernel(positive, batch_shape=torch.Size([len(priors)]))
        kernel = SpatioTemporalKernel(kernel, time_kernel)
    given = validation.numbers("noise_variance", noise_variance, features)
    own = [prior.noise_variance for prior in priors]
    noise = torch.stack([given if value is None else torch.full_like(given, value) for value in own], -1)
    return ArmGP(features, kernel, noise, prior_mean=means, form=form, batch_shape=(*runs, len(priors)))


def arm_gp_of_prior(
    arms: Tensor | int,
    prior: CandidatePrior,
    noise_variance: float | Tensor,
    *,
    replicates: int,
    form: str = "auto",
) -> ArmGP:
    """An ``ArmGP`` of batch shape (replicates,) that holds one prior; arguments and errors as above.

    ``arms``, ``noise_variance``, ``replicates`` and ``form`` as for ``arm_gp_over_priors``. Raises ValueError for
    ``replicates`` below 1.
    """
    validation.instance("prior", prior, CandidatePrior, "a CandidatePrior")
    validation.positive_integer("replicates", replicates)
    features = _features(arms)
    kernel: Kernel = _kernel([prior], features)
    if prior.forgetting_rate:
        kernel = SpatioTemporalKernel(
            kernel, ExponentialForgettingKernel(features.new_tensor(prior.forgetting_rate))
        )
    noise = noise_variance if prior.noise_variance is None else prior.noise_variance
    return ArmGP(
        features, kernel, noise, prior_mean=_mean(0, prior, features), form=form, batch_shape=(replicates,)
    )


def _features(arms: Tensor | int) -> Tensor:
    features = inputs.features_of(arms, None, None)
    validation.shape_is("arms", features, features.dim() == 2, "(N, d), the same for every replicate")
    return features


def _mean(p: int, prior: CandidatePrior, arms: Tensor) -> Tensor:
    mean = validation.numbers(f"priors[{p}].mean", prior.mean, arms)
    n = arms.shape[-2]
    expected = f"() or ({n},), as many as there are arms"
    validation.shape_is(f"priors[{p}].mean", mean, mean.dim() == 0 or mean.shape == (n,), expected)
    return validation.rewards(f"priors[{p}].mean", mean).expand(n)


def _kernel(priors: Sequence[CandidatePrior], arms: Tensor) -> ArmCovarianceKernel:
    """The priors' covariances as one kernel of batch shape (P,), or () when all share one kernel object."""
    shared = all(prior.kernel is priors[0].kernel for prior in priors)
    matrices = [
        _covariance(p, prior.kernel, arms) for p, prior in enumerate(priors[:1] if shared else priors)
    ]
    return ArmCovarianceKernel(matrices[0] if shared else torch.stack(matrices))


def _covariance(p: int, kernel: Kernel | Tensor, arms: Tensor) -> Tensor:
    """(N, N) over the arms."""
    name, n = f"priors[{p}].kernel", arms.shape[-2]
    if isinstance(kernel, Tensor):
        expected = f"({n}, {n}), a row for each arm"
        validation.shape_is(name, kernel, kernel.shape == (n, n), expected)
        try:
            return ArmCovarianceKernel(kernel.to(arms)).covariance
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    parts = list(kernel.modules())
    over_time = any(isinstance(part, MarkovTimeKernel | SpatioTemporalKernel) for part in parts)
    validation.require(not over_time, name, kernel, "a kernel over arms alone; time is its forgetting_rate")
    with torch.no_grad():
        by_index = any(isinstance(part, ArmCovarianceKernel) for part in parts)
        index = torch.arange(n, dtype=arms.dtype, device=arms.device).unsqueeze(-1)
        matrix = copy.deepcopy(kernel).to(arms)(index if by_index else arms).to_dense()
    validation.shape_is(name, matrix, matrix.shape == (n, n), f"({n}, {n}) when called with the arms")
    return (matrix + matrix.mT) / 2
