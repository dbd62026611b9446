"""A quantity that is measured together with the reward: its prior and the limits that it must keep."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation


@validation.names_arguments
@dataclass(frozen=True, eq=False)
class OutcomeConstraint:
    """A measured outcome g with low <= g(x, t) <= high. Its prior is a Gaussian process over the arms.

    Attributes:
        name: the outcome's name, other than ``"reward"``.
        low, high: limits in the unit of the outcome, at least one finite.
        kernel: prior covariance over the arms, static; None: the kernel of the reward.
        noise_variance: noise variance of a measurement; None: the noise variance of the reward.
        prior_mean: a number or (N,).
        forgetting_rate: epsilon of exponential forgetting, per unit of time; None: the rate of the reward; 0: no drift.

    Source: the safety constraints of Berkenkamp, Krause & Schoellig 2016, here with limits on both sides.

    Raises ValueError unless low < high and one of them is finite, for an empty name or ``"reward"``, for a number
    ``noise_variance`` that is not positive, and for a rate outside [0, 1).
    """

    name: str
    low: float = -math.inf
    high: float = math.inf
    kernel: Kernel | Tensor | None = None
    noise_variance: float | Tensor | None = None
    prior_mean: float | Tensor = 0.0
    forgetting_rate: float | None = None

    def __post_init__(self) -> None:
        ok = isinstance(self.name, str) and self.name not in ("", "reward")
        validation.require(ok, "name", self.name, "a name of an outcome, other than 'reward'")
        check_limits(self.name, (self.low, self.high))
        if isinstance(self.noise_variance, float | int):
            validation.positive("noise_variance", self.noise_variance)
        if self.forgetting_rate is not None:
            validation.below_one("forgetting_rate", self.forgetting_rate)


def check_limits(name: str, limits: tuple[float, float]) -> tuple[float, float]:
    """(low, high) as floats. Raises ValueError, with the name of the outcome, unless low < high and one is finite."""
    expected = "(low, high), two numbers with low < high, at least one finite"
    ok = isinstance(limits, tuple) and len(limits) == 2
    ok = ok and all(isinstance(x, float | int) and not isinstance(x, bool) for x in limits)
    ok = ok and limits[0] < limits[1] and any(math.isfinite(x) for x in limits)
    validation.require(ok, f"limits of {name!r}", limits, expected)
    return float(limits[0]), float(limits[1])
