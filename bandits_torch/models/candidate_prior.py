"""One prior of a set, over arms or over points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation

ALMOST_STATIC = 1e-15  # the forgetting rate of a static prior in a set where others forget


@validation.names_arguments
@dataclass(frozen=True)
class CandidatePrior:
    """A candidate prior of the reward function.

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


def check_priors(priors: Sequence[CandidatePrior]) -> None:
    """Raise ValueError for an empty set or a forgetting rate outside [0, 1)."""
    validation.instance("priors", priors, Sequence, "a sequence of CandidatePrior")
    validation.require(len(priors) > 0, "priors", list(priors), "at least one CandidatePrior")
    for p, prior in enumerate(priors):
        validation.instance(f"priors[{p}]", prior, CandidatePrior, "a CandidatePrior")
        validation.instance(
            f"priors[{p}].kernel", prior.kernel, (Kernel, Tensor), "a gpytorch.kernels.Kernel or a tensor"
        )
        validation.below_one(f"priors[{p}].forgetting_rate", prior.forgetting_rate)
