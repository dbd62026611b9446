"""Candidate priors over one arm set, stacked into the batch dimension of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arm_gp import ArmGP

_ALMOST_STATIC = 1e-15  # the forgetting rate of a static prior in a set where others forget


@dataclass(frozen=True)
class CandidatePrior:
    """One prior of a set: what the reward function might be a draw of.

    Attributes:
        kernel: covariance between the arms' features, any family; or the N x N covariance matrix itself
            (of a past day, say: ``estimate_covariance``).
        mean: prior mean reward, a number or (N,).
        forgetting_rate: epsilon of exponential forgetting per unit of time, 0 for a static function.
        noise_variance: lambda; None takes the set's.
        name: for plots and traces.
    """

    kernel: Kernel | Tensor
    mean: float | Tensor = 0.0
    forgetting_rate: float = 0.0
    noise_variance: float | None = None
    name: str = ""


def arm_gp_over_priors(
    arms: Tensor | int,
    priors: Sequence[CandidatePrior],
    noise_variance: float,
    *,
    replicates: int,
    form: str = "auto",
) -> ArmGP:
    """One ``ArmGP`` of batch shape (replicates, P), member p holding prior p; families may differ.

    Each prior is just an N x N matrix, a mean and a rate, so priors of any kernels share the batch; equal
    kernels are stored once. Memory O(S P N^2).

    Raises ValueError for an empty set, a mean or a covariance of another arm set, a covariance that is not
    positive semi-definite, a rate outside [0, 1).
    """
    validation.require(len(priors) > 0, "priors", list(priors), "at least one CandidatePrior")
    validation.positive_integer("replicates", replicates)
    features = torch.arange(arms, dtype=torch.float64).unsqueeze(-1) if isinstance(arms, int) else arms
    means = torch.stack([_mean(p, prior, features) for p, prior in enumerate(priors)])
    kernel: Kernel = ArmCovarianceKernel(_covariances(priors, features))
    rates = [prior.forgetting_rate for prior in priors]
    for p, rate in enumerate(rates):
        validation.require(0 <= rate < 1, f"priors[{p}].forgetting_rate", rate, "a number in [0, 1)")
    if any(rates):
        positive = torch.tensor([max(r, _ALMOST_STATIC) for r in rates], dtype=features.dtype).unsqueeze(-1)
        time_kernel = ExponentialForgettingKernel(positive, batch_shape=torch.Size([len(priors)]))
        kernel = SpatioTemporalKernel(kernel, time_kernel)
    own = [noise_variance if prior.noise_variance is None else prior.noise_variance for prior in priors]
    noise = torch.tensor(own, dtype=features.dtype, device=features.device)
    return ArmGP(features, kernel, noise, prior_mean=means, form=form, batch_shape=(replicates, len(priors)))


def _mean(p: int, prior: CandidatePrior, arms: Tensor) -> Tensor:
    mean = torch.as_tensor(prior.mean, dtype=arms.dtype, device=arms.device)
    n = arms.shape[-2]
    validation.shape_is(f"priors[{p}].mean", mean, mean.dim() == 0 or mean.shape == (n,), f"() or ({n},)")
    return validation.finite_tensor(f"priors[{p}].mean", mean).expand(n)


def _covariances(priors: Sequence[CandidatePrior], arms: Tensor) -> Tensor:
    """(P, N, N), or (N, N) when all priors share one kernel."""
    n = arms.shape[-2]
    shared = all(prior.kernel is priors[0].kernel for prior in priors)
    matrices = []
    for p, prior in enumerate(priors[:1] if shared else priors):
        if isinstance(prior.kernel, Tensor):
            matrix = prior.kernel.to(arms)
            expected = f"({n}, {n}), the arms of the other priors"
            validation.shape_is(f"priors[{p}].kernel", matrix, matrix.shape == (n, n), expected)
        else:
            with torch.no_grad():
                by_index = any(isinstance(part, ArmCovarianceKernel) for part in prior.kernel.modules())
                index = torch.arange(n, dtype=arms.dtype, device=arms.device).unsqueeze(-1)
                matrix = prior.kernel.to(arms)(index if by_index else arms).to_dense()
        matrices.append((matrix + matrix.mT) / 2 if not isinstance(prior.kernel, Tensor) else matrix)
    return matrices[0] if shared else torch.stack(matrices)
