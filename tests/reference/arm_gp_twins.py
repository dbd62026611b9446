"""An ArmGP beside one dense twin per batch member: told the same, asked the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.dense_arm_gp import DenseArmGP, forgetting, wiener


def smooth(num_arms: int, lengthscale: float = 0.2) -> Tensor:
    """Squared exponential covariance of evenly spaced arms on [0, 1]."""
    x = torch.linspace(0, 1, num_arms, dtype=torch.float64)
    return torch.exp(-0.5 * ((x[:, None] - x[None, :]) / lengthscale) ** 2)


def isolated(num_arms: int, variance: float = 1.0) -> Tensor:
    """Arms that tell nothing of each other."""
    return variance * torch.eye(num_arms, dtype=torch.float64)


class Twins:
    """Members 0, ..., b - 1, each with its own covariance, noise variance, prior mean and drift.

    Args:
        covariances: (b, N, N).
        noise_variances: (b,).
        prior_means: (b, N) or a number.
        rates: (b,) forgetting rates, or ``drift_variances`` (b,), or neither for a static model.
        form: of the ArmGP.
    """

    def __init__(
        self,
        covariances: Tensor,
        noise_variances: Tensor,
        *,
        prior_means: Tensor | float = 0.0,
        rates: Tensor | None = None,
        drift_variances: Tensor | None = None,
        form: str = "auto",
    ) -> None:
        self.members, self.num_arms = covariances.shape[:2]
        self.kernel: Kernel = ArmCovarianceKernel(covariances)
        self.evolve: Callable[[float, float], tuple[Tensor, Tensor]] | None = None
        times: list[Any] = [None] * self.members
        batch = (self.members,)
        if rates is not None:
            self.kernel = SpatioTemporalKernel(
                self.kernel, ExponentialForgettingKernel(rates, batch_shape=batch)
            )
            times = [forgetting(float(r)) for r in rates]
            self.evolve = lambda s, t: (((1 - rates) ** ((t - s) / 2)), 1 - (1 - rates) ** (t - s))
        if drift_variances is not None:
            self.kernel = SpatioTemporalKernel(self.kernel, WienerKernel(drift_variances, batch_shape=batch))
            times = [wiener(float(v)) for v in drift_variances]
            self.evolve = lambda s, t: (torch.ones_like(drift_variances), drift_variances * (t - s))
        self.drifts = self.evolve is not None
        self.noise_variances = noise_variances
        self.model = ArmGP(self.num_arms, self.kernel, noise_variances, prior_mean=prior_means, form=form)
        means = torch.as_tensor(prior_means, dtype=torch.float64).expand(self.members, self.num_arms)
        self.dense = [
            DenseArmGP(covariances[k], float(noise_variances[k]), means[k], times[k])
            for k in range(self.members)
        ]
        # The truth rewards are drawn from: the prior's own function, moving as the model thinks it does.
        jitter = 1e-12 * torch.eye(self.num_arms, dtype=torch.float64)
        self._root = torch.linalg.cholesky(covariances + jitter)
        self._truth, self._moment = self._draw(), 0.0
        self._means = means

    def _draw(self) -> Tensor:
        weights = torch.randn(self.members, self.num_arms, 1, dtype=torch.float64)
        return (self._root @ weights).squeeze(-1)

    def rewards(self, arm: Tensor, time: float = 0.0) -> Tensor:
        """Noisy rewards (b,) of a function drawn from the model."""
        if self.evolve is not None and time > self._moment:
            kept, gained = self.evolve(self._moment, time)
            self._truth = kept[:, None] * self._truth + gained[:, None].sqrt() * self._draw()
            self._moment = time
        noise = self.noise_variances.sqrt() * torch.randn(self.members, dtype=torch.float64)
        function = self._means + self._truth
        return function.gather(-1, arm.unsqueeze(-1)).squeeze(-1) + noise

    def observe(self, arm: Tensor, reward: Tensor, time: float = 0.0, where: Tensor | None = None) -> None:
        self.model.observe_arms(arm, reward, time, where)
        for k in range(self.members):
            if where is None or where[k]:
                self.dense[k].observe(arm[k], reward[k], time)

    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        self.model.forget(count, where)
        for k in range(self.members):
            if where is None or where[k]:
                self.dense[k].forget(count)

    def reset(self, where: Tensor | None = None) -> None:
        self.model.reset(where)
        for k in range(self.members):
            if where is None or where[k]:
                self.dense[k].held.clear()

    def largest_errors(self, time: float = 0.0) -> dict[str, float]:
        """Largest absolute difference between the model and the twins in everything they both know."""
        mean, variance = self.model.marginals(time)
        errors = {"mean": 0.0, "variance": 0.0, "gain": 0.0, "count": 0.0, "likelihood": 0.0}
        for k, twin in enumerate(self.dense):
            expected = twin.answers(time)
            differences = {
                "mean": (mean[k] - expected.mean).abs().max().item(),
                "variance": (variance[k] - expected.covariance.diagonal()).abs().max().item(),
                "gain": abs(self.model.information_gain[k].item() - expected.information_gain),
                "count": abs(int(self.model.num_observations[k]) - len(twin.held)),
                "likelihood": abs(self.model.log_likelihood[k].item() - expected.log_likelihood)
                / (1 + abs(expected.log_likelihood)),
            }
            errors = {name: max(errors[name], differences[name]) for name in errors}
        return errors
