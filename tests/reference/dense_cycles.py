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

    def late(self, arm: int, reward: float, time: float) -> None:
        """Observed at a time that others came after: it takes its place among them."""
        self.observe(arm, reward, time)
        self.held.sort(key=lambda one: one[2])

    def _k(self, a: Tensor, s: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return sum(K[a][:, b] * over(s, t) for K, over in self.terms)
