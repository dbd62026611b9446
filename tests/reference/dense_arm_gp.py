"""One replicate of a Gaussian process over arms, kept as a list of observations and solved densely when asked."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Answers(NamedTuple):
    mean: Tensor
    covariance: Tensor
    information_gain: float
    log_likelihood: float


class DenseArmGP:
    """k((i, s), (j, t)) = K_ij time(s, t); every answer is one dense solve in float64.

    Args:
        covariance: K, (N, N).
        noise_variance: a number.
        prior_mean: (N,) or a number.
        time: covariance between times (n,) and (m,) as (n, m); static when None.
    """

    def __init__(
        self,
        covariance: Tensor,
        noise_variance: float,
        prior_mean: Tensor | float = 0.0,
        time: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self.K = covariance.double()
        self.noise_variance = float(noise_variance)
        self.prior_mean = torch.as_tensor(prior_mean, dtype=torch.float64).expand(len(covariance))
        self.time = time or (lambda s, t: torch.ones(len(s), len(t), dtype=torch.float64))
        self.held: list[tuple[int, float, float]] = []  # arm, reward, time

    def observe(self, arm: int, reward: float, time: float = 0.0) -> None:
        self.held.append((int(arm), float(reward), float(time)))

    def forget(self, count: int = 1) -> None:
        del self.held[:count]

    def joint(self, time: float | Tensor = 0.0, arms: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean (m,) and covariance (m, m) of points ``arms`` (default: all) at ``time`` (a number or (m,))."""
        answers = self.answers(time, arms)
        return answers.mean, answers.covariance

    def answers(self, time: float | Tensor = 0.0, arms: Tensor | None = None) -> Answers:
        """Rasmussen & Williams 2006, equations 2.25, 2.26 and 2.30, and 1/2 log det(I + K_t / lambda)."""
        arms = torch.arange(len(self.K)) if arms is None else arms
        times = torch.as_tensor(time, dtype=torch.float64).expand(len(arms))
        prior = self._k(arms, times, arms, times)
        if not self.held:
            return Answers(self.prior_mean[arms], prior, 0.0, 0.0)
        a, y, s = self._data()
        n, residual, cross = len(a), y - self.prior_mean[a], self._k(a, s, arms, times)
        gram = self._k(a, s, a, s) + self.noise_variance * torch.eye(n, dtype=torch.float64)
        factor = torch.linalg.cholesky(gram)
        solved = torch.cholesky_solve(torch.cat([residual.unsqueeze(-1), cross], -1), factor)
        half_log_det = factor.diagonal().log().sum().item()
        fit = 0.5 * (residual @ solved[:, 0]).item()
        return Answers(
            self.prior_mean[arms] + cross.T @ solved[:, 0],
            prior - cross.T @ solved[:, 1:],
            half_log_det - 0.5 * n * math.log(self.noise_variance),
            -fit - half_log_det - 0.5 * n * math.log(2 * math.pi),
        )

    def _data(self) -> tuple[Tensor, Tensor, Tensor]:
        arm, reward, time = zip(*self.held, strict=True)
        double = torch.float64
        return torch.tensor(arm), torch.tensor(reward, dtype=double), torch.tensor(time, dtype=double)

    def _k(self, a: Tensor, s: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return self.K[a][:, b] * self.time(s, t)


def forgetting(rate: float) -> Callable[[Tensor, Tensor], Tensor]:
    """(1 - rate)^(|s - t| / 2)."""
    return lambda s, t: (1 - rate) ** ((s[:, None] - t[None, :]).abs() / 2)


def wiener(variance: float) -> Callable[[Tensor, Tensor], Tensor]:
    """1 + variance min(s, t), for times from 0 on."""
    return lambda s, t: 1 + variance * torch.minimum(s[:, None], t[None, :])
