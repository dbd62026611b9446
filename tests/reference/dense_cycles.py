"""A Gaussian process over arms with cycles and smooth drift, the slow and obvious way: formulas and dense solves."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.reference.dense_arm_gp import DenseArmGP

Over = Callable[[Tensor, Tensor], Tensor]  # times (n,) and (m,) to covariances (n, m)


def apart(s: Tensor, t: Tensor) -> Tensor:
    return (s[:, None] - t[None, :]).abs()


def matern(nu: float, lengthscale: float) -> Over:
    """Rasmussen & Williams 2006, equations 4.17 and the exponential."""

    def over(s: Tensor, t: Tensor) -> Tensor:
        r = math.sqrt(2 * nu) * apart(s, t) / lengthscale
        polynomial = {0.5: 1 + 0 * r, 1.5: 1 + r, 2.5: 1 + r + r**2 / 3}[nu]
        return polynomial * torch.exp(-r)

    return over


def periodic(period: float, lengthscale: float) -> Over:
    """As GPyTorch's documentation of PeriodicKernel writes it."""
    return lambda s, t: torch.exp(-2 * torch.sin(math.pi * apart(s, t) / period) ** 2 / lengthscale)


def cosines(period: float, weights: Sequence[float]) -> Over:
    """sum_j w_j cos(2 pi j tau / period)."""
    return lambda s, t: sum(
        w * torch.cos(2 * math.pi * j * apart(s, t) / period) for j, w in enumerate(weights)
    )


def constant(value: float) -> Over:
    return lambda s, t: torch.full((len(s), len(t)), value, dtype=torch.float64)


def plus(*parts: Over) -> Over:
    return lambda s, t: sum(part(s, t) for part in parts)


def times(*parts: Over) -> Over:
    return lambda s, t: math.prod(part(s, t) for part in parts)


class DenseTerms(DenseArmGP):
    """k((i, s), (j, t)) = sum_c K_c[i, j] k_c(s, t).

    Args:
        terms: pairs of K_c, (N, N), and k_c.
        noise_variance, prior_mean: as ``DenseArmGP`` has them.
    """

    def __init__(
        self, terms: Sequence[tuple[Tensor, Over]], noise_variance: float, prior_mean: Tensor | float = 0.0
    ) -> None:
        super().__init__(terms[0][0], noise_variance, prior_mean)
        self.terms = terms

    def _k(self, a: Tensor, b: Tensor) -> Tensor:
        i, j = a[:, 0].long(), b[:, 0].long()
        return sum(K[i][:, j] * over(a[:, 1], b[:, 1]) for K, over in self.terms)


class DenseMember(DenseArmGP):
    """One member with cycles: a prior mean with a cycle, and a covariance that fades by one clock and turns by another.

    Args:
        covariance: K, (N, N).
        noise_variance, rate, share, cycle_rate: numbers.
        level: (N,), the prior mean but for its cycle.
        waves: a period, a harmonic, its share of the cycle's variance, and the prior mean's a and b, (N,) each.
    """

    numbers = 2

    def __init__(self, covariance, noise_variance, rate, share, cycle_rate, level, waves) -> None:
        super().__init__(covariance, noise_variance, level)
        self.covariance, self.rate, self.share, self.cycle_rate = covariance, rate, share, cycle_rate
        self.waves = waves

    @property
    def mean(self) -> Tensor:
        """Of all arms, as a cycle begins."""
        return self._mean(self._inputs(torch.arange(len(self.K)), (0.0, 0.0)))

    def fit(self, arms, rewards, times, now):
        """As ``DensePrior`` has it, without the likelihood."""
        self.held = list(zip(arms, rewards, times, strict=True))
        mean, covariance = self.joint(now)
        return mean, covariance.diagonal(), None

    def _k(self, a: Tensor, b: Tensor) -> Tensor:
        gap, turn = apart(a[:, 1], b[:, 1]), a[:, None, 2] - b[:, 2]
        level, cycle = ((1 - rate) ** (gap / 2) for rate in (self.rate, self.cycle_rate))
        wave = sum(q * torch.cos(2 * math.pi * h * turn / period) for period, h, q, _, _ in self.waves)
        return super()._k(a, b) * ((1 - self.share) * level + self.share * cycle * wave)

    def _mean(self, a: Tensor) -> Tensor:
        arm, mean = a[:, 0].long(), super()._mean(a)
        for period, h, _, cosine, sine in self.waves:
            angle = 2 * math.pi * h * a[:, 2] / period
            mean = mean + cosine[arm] * angle.cos() + sine[arm] * angle.sin()
        return mean
