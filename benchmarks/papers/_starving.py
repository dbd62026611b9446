"""Two posteriors that starve: subset of regressors and random Fourier features, for comparison with a sketch."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def linear_posterior(
    features: Tensor, at: Tensor, rewards: Tensor, noise_variance: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance, at features ``at`` (N, m), of linear regression on ``features`` (t, m), weights N(0, I)."""
    m = features.shape[-1]
    lifted = features.mT @ features + noise_variance * torch.eye(m, dtype=features.dtype)
    factor = torch.linalg.cholesky(lifted)
    mean = at @ torch.cholesky_solve((features.mT @ rewards).unsqueeze(-1), factor).squeeze(-1)
    return mean, noise_variance * torch.linalg.solve_triangular(factor, at.mT, upper=False).square().sum(0)


def subset_of_regressors(
    kernel, arms: Tensor, pulled: Tensor, rewards: Tensor, dictionary: Tensor, noise_variance: float
) -> tuple[Tensor, Tensor]:
    """The posterior whose prior is k_S^T K_S^{-1} k_S: as DTC, but with z^T z in place of k(x, x) in the variance."""
    K = kernel(arms[dictionary]).to_dense()
    factor = torch.linalg.cholesky(K + 1e-12 * torch.eye(len(K), dtype=K.dtype))
    z = torch.linalg.solve_triangular(factor, kernel(arms[dictionary], arms).to_dense(), upper=False).mT
    return linear_posterior(z[pulled], z, rewards, noise_variance)


def random_fourier_features(
    arms: Tensor,
    pulled: Tensor,
    rewards: Tensor,
    lengthscale: float,
    count: int,
    noise_variance: float,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """The posterior on ``count`` random features of the squared exponential kernel (Rahimi & Recht 2007)."""
    generator = torch.Generator().manual_seed(seed)
    half = count // 2
    frequency = torch.randn(arms.shape[-1], half, generator=generator, dtype=arms.dtype) / lengthscale
    angle = arms @ frequency
    features = torch.cat([angle.cos(), angle.sin()], -1) / math.sqrt(half)
    return linear_posterior(features[pulled], features, rewards, noise_variance)
