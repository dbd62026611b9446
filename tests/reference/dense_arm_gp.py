"""One replicate of a Gaussian process over arms, kept as a list of observations and solved densely when asked."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.reference.dense_gp import DensePosterior, dense_posterior


class DenseArmGP:
    """k((i, s), (j, t)) = K_ij time(s, t); every answer is one dense solve in float64.

    Args:
        covariance: K, (N, N).
        noise_variance: a number.
        prior_mean: (N,) or a number.
        time: covariance between times (n,) and (m,) as (n, m); static when None.
    """

    numbers = 1  # that a time has

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
        self.held: list[tuple[int, float, Any]] = []  # arm, reward, time

    def observe(self, arm: int, reward: float, time: Any = 0.0) -> None:
        self.held.append((int(arm), float(reward), time))

    def forget(self, count: int = 1) -> None:
        del self.held[:count]

    def joint(self, time: Any = 0.0, arms: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean (m,) and covariance (m, m) of points ``arms`` (default: all) at ``time`` (one, or one for each)."""
        answers = self.answers(time, arms)
        return answers.mean, answers.covariance

    def answers(self, time: Any = 0.0, arms: Tensor | None = None) -> DensePosterior:
        """What is known of the same."""
        arms = torch.arange(len(self.K)) if arms is None else arms
        told, rewards, times = ([row[i] for row in self.held] for i in range(3))
        X, y = self._inputs(told, times), torch.tensor(rewards, dtype=torch.float64)
        return dense_posterior(self._k, X, y, self.noise_variance, self._inputs(arms, time), self._mean)

    def _inputs(self, arms: Any, times: Any) -> Tensor:
        """Rows of an arm and its time."""
        arm, time = (torch.as_tensor(part, dtype=torch.float64) for part in (arms, times))
        return torch.cat([arm.unsqueeze(-1), time.reshape(-1, self.numbers).expand(len(arm), -1)], -1)

    def _k(self, a: Tensor, b: Tensor) -> Tensor:
        return self.K[a[:, 0].long()][:, b[:, 0].long()] * self.time(a[:, 1], b[:, 1])

    def _mean(self, a: Tensor) -> Tensor:
        return self.prior_mean[a[:, 0].long()]


def forgetting(rate: float) -> Callable[[Tensor, Tensor], Tensor]:
    """(1 - rate)^(|s - t| / 2)."""
    return lambda s, t: (1 - rate) ** ((s[:, None] - t[None, :]).abs() / 2)


def wiener(variance: float) -> Callable[[Tensor, Tensor], Tensor]:
    """1 + variance min(s, t), for times from 0 on."""
    return lambda s, t: 1 + variance * torch.minimum(s[:, None], t[None, :])
