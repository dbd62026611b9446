"""An obvious Gaussian process to test widths on, functions, and a bandit run that counts how wide they must be."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


class CovarianceGP:
    """S zero-mean GPs on N arms, mean (S, N) and covariance (S, N, N), each told one reward at a time."""

    def __init__(self, covariance: Tensor, noise_variance: float, runs: int) -> None:
        self.prior = covariance
        self.noise_variance = covariance.new_full((runs,), noise_variance)
        self.batch_shape = torch.Size([runs])
        self.reset()

    def reset(self) -> None:
        runs, size = self.batch_shape[0], self.prior.shape[-1]
        self.mean = self.prior.new_zeros(runs, size)
        self.C = self.prior.expand(runs, size, size).clone()
        self.information_gain = self.prior.new_zeros(runs)
        self.held: deque[tuple[Tensor, Tensor]] = deque()

    @property
    def total_precision(self) -> Tensor:
        return len(self.held) / self.noise_variance

    @property
    def sigma(self) -> Tensor:
        return torch.diagonal(self.C, dim1=-2, dim2=-1).clamp(min=0).sqrt()

    def observe(self, arm: Tensor, reward: Tensor) -> None:
        self.held.append((arm, reward))
        self._update(arm, reward, sign=1.0)

    def forget(self) -> None:
        self._update(*self.held.popleft(), sign=-1.0)

    def drift(self, rate: float) -> None:
        """f <- sqrt(1 - rate) f + sqrt(rate) g with g a fresh draw from the prior."""
        self.mean = (1 - rate) ** 0.5 * self.mean
        self.C = (1 - rate) * self.C + rate * self.prior

    def _update(self, arm: Tensor, reward: Tensor, sign: float) -> None:
        """m += C_i (y - m_i)/s, C -= C_i C_i^T/s with s = lambda + C_ii; sign -1 undoes an earlier one."""
        run = torch.arange(len(arm))
        row, variance = self.C[run, arm], self.C[run, arm, arm]
        s = self.noise_variance + sign * variance
        self.information_gain = self.information_gain + 0.5 * torch.log1p(
            sign * variance / self.noise_variance
        )
        self.mean = self.mean + sign * row * ((reward - self.mean[run, arm]) / s).unsqueeze(-1)
        self.C = self.C - sign * row.unsqueeze(-1) * row.unsqueeze(-2) / s[:, None, None]


def width_needed(
    width: Callable[[int, Any], Tensor],
    truth: Callable[[int], Tensor],
    model: CovarianceGP,
    noise: Tensor,
    *,
    window: int | None = None,
    restart_every: int | None = None,
    drift_rate: float = 0.0,
) -> Tensor:
    """What multiple of ``width`` each run needed so that its band held at all steps and arms, (S,).

    Each run plays argmax mu + width sigma. The band covered where the answer is <= 1.

    Args:
        truth: step 1, 2, ... -> f_t of each run, (S, N).
        noise: noise[t-1] (S,) is added to the reward of step t; its length is the number of steps.
        window: forget down to this many observations after each step.
        restart_every: forget all and restart the width's clock every so many steps.
        drift_rate: the model's drift before every step but the first.
    """
    needed = torch.zeros_like(noise[0])
    for t in range(1, len(noise) + 1):
        clock = t if restart_every is None else (t - 1) % restart_every + 1
        if clock == 1:
            model.reset()
        elif drift_rate:
            model.drift(drift_rate)
        f, band = truth(t), width(clock, model).unsqueeze(-1) * model.sigma
        needed = torch.maximum(needed, ((f - model.mean).abs() / band).amax(-1))
        arm = (model.mean + band).argmax(-1)
        model.observe(arm, f[torch.arange(len(arm)), arm] + noise[t - 1])
        if window is not None and len(model.held) > window:
            model.forget()
    return needed


def coverage(needed: Tensor, factor: float = 1.0) -> float:
    """Fraction of the runs whose band held everywhere, had the width been multiplied by ``factor``."""
    return (needed <= factor).double().mean().item()


def assert_tight(needed: Tensor, delta: float, factor: float = 0.5) -> None:
    """The band holds in 1 - delta of the runs, and one that is narrower by the factor does not."""
    assert coverage(needed) >= 1 - delta
    assert coverage(needed, factor) < 1 - delta


def stand_in(
    information_gain: Any = 0.0,
    noise_variance: Any = 1.0,
    num_observations: Any = 0,
    batch_shape: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float64,
) -> SimpleNamespace:
    """The five attributes of a model that widths look at."""
    noise, count = torch.as_tensor(noise_variance, dtype=dtype), torch.as_tensor(num_observations)
    return SimpleNamespace(
        information_gain=torch.as_tensor(information_gain, dtype=dtype).expand(batch_shape),
        noise_variance=noise,
        num_observations=count.expand(batch_shape),
        total_precision=(count / noise).expand(batch_shape),
        batch_shape=torch.Size(batch_shape),
    )


def kernel(x: Tensor, z: Tensor, lengthscale: float = 0.2) -> Tensor:
    """Squared exponential, (..., n) and (..., m) -> (..., n, m)."""
    return torch.exp(-((x[..., :, None] - z[..., None, :]) ** 2) / (2 * lengthscale**2))


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def functions_of_norm(bound: float, X: Tensor, runs: int, generator: torch.Generator) -> Tensor:
    """(runs, N) values at X of functions whose RKHS norm is the bound: half of them single bumps, which reach
    bound x sigma_0 before any data; the others mixtures of ten."""
    centres = torch.rand(runs, 10, generator=generator, dtype=torch.float64)
    weights = normal(generator, runs, 10)
    weights[: runs // 2, 1:] = 0
    norm = torch.einsum("si,sij,sj->s", weights, kernel(centres, centres), weights).sqrt()
    return bound * torch.einsum("sni,si->sn", kernel(X, centres), weights) / norm[:, None]


def moving_bumps(
    bound: float, X: Tensor, runs: int, steps: int, speed: float, generator: torch.Generator
) -> Tensor:
    """(steps, runs, N): bumps bound k(x0(t), .) of norm bound whose centres go to and fro at this speed a step."""
    start = torch.rand(runs, generator=generator, dtype=torch.float64)
    phase = start + speed * torch.arange(steps, dtype=torch.float64)[:, None]
    centre = 1 - (phase % 2 - 1).abs()
    return bound * kernel(X, centre[..., None]).squeeze(-1)


def draws_of(covariance: Tensor, generator: torch.Generator, *shape: int) -> Tensor:
    """(*shape, N) draws of N(0, covariance)."""
    values, vectors = torch.linalg.eigh(covariance)
    return normal(generator, *shape, len(covariance)) @ (vectors * values.clamp(min=0).sqrt()).T
