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

    def _k(self, a: Tensor, s: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return sum(K[a][:, b] * over(s, t) for K, over in self.terms)


class DenseMember:
    """One member with cycles: a prior mean with a cycle, and a covariance that fades by one clock and turns by another.

    Args:
        covariance: K, (N, N).
        noise_variance, rate, share, cycle_rate: numbers.
        level: (N,), the prior mean but for its cycle.
        waves: a period, a harmonic, its share of the cycle's variance, and the prior mean's a and b, (N,) each.
    """

    def __init__(self, covariance, noise_variance, rate, share, cycle_rate, level, waves) -> None:
        self.covariance, self.noise_variance = covariance, float(noise_variance)
        self.rate, self.share, self.cycle_rate, self.level, self.waves = rate, share, cycle_rate, level, waves
        self.held: list[tuple[int, float, tuple[float, float]]] = []

    def observe(self, arm: int, reward: float, time: tuple[float, float]) -> None:
        self.held.append((int(arm), float(reward), time))

    def over_time(self, one: tuple[float, float], two: tuple[float, float]) -> float:
        gap, turn = abs(one[0] - two[0]), one[1] - two[1]
        level, cycle = ((1 - rate) ** (gap / 2) for rate in (self.rate, self.cycle_rate))
        wave = sum(q * math.cos(2 * math.pi * h * turn / period) for period, h, q, _, _ in self.waves)
        return (1 - self.share) * level + self.share * cycle * wave

    @property
    def mean(self) -> Tensor:
        return self.mean_at(0.0)

    def mean_at(self, u: float) -> Tensor:
        angles = [2 * math.pi * h * u / period for period, h, *_ in self.waves]
        told = zip([wave[3:] for wave in self.waves], angles, strict=True)
        return self.level + sum(a * math.cos(x) + b * math.sin(x) for (a, b), x in told)

    def between(self, times: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> Tensor:
        return torch.tensor([[self.over_time(s, t) for t in others] for s in times], dtype=torch.float64)

    def joint(self, time: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """Mean (N,) and covariance (N, N) at a time."""
        return self.given(*([row[i] for row in self.held] for i in range(3)), time)

    def fit(self, arms, rewards, times, now):
        """As ``DensePrior`` has it, without the likelihood."""
        mean, covariance = self.given(arms, rewards, times, now)
        return mean, covariance.diagonal(), None

    def given(self, arms, rewards, times, now) -> tuple[Tensor, Tensor]:
        """Rewards of arms at times: Rasmussen & Williams 2006, equations 2.25 and 2.26."""
        K, mean = self.covariance, self.mean_at(now[1])
        if not arms:
            return mean, K
        A = K[arms][:, arms] * self.between(times, times)
        A = A + self.noise_variance * torch.eye(len(arms), dtype=torch.float64)
        cross = K[arms] * self.between(times, [now])
        seen = [y - float(self.mean_at(t[1])[i]) for i, y, t in zip(arms, rewards, times, strict=True)]
        residual = torch.tensor(seen, dtype=torch.float64)
        solved = torch.linalg.solve(A, torch.cat([residual.unsqueeze(-1), cross], -1))
        return mean + cross.T @ solved[:, 0], K - cross.T @ solved[:, 1:]
