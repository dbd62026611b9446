"""The slow, obvious likelihood of each reward given the last w before it."""

import torch
from torch import Tensor


def dense_window_densities(
    covariance: Tensor, noise_variance: float, residuals: Tensor, windows: list[int]
) -> Tensor:
    """log N(y_s; mu, sigma^2 + lambda) given the last w observations before s, (n, W), by a solve for each.

    ``covariance``: of all n observations under the prior; ``residuals``: rewards minus their prior means.
    """
    n = len(residuals)
    densities = torch.zeros(n, len(windows), dtype=torch.float64)
    for s in range(n):
        for j, w in enumerate(windows):
            past = list(range(max(0, s - w), s))
            K = covariance[past][:, past] + noise_variance * torch.eye(len(past), dtype=torch.float64)
            weights = torch.linalg.solve(K, covariance[past, s])
            mean = weights @ residuals[past]
            variance = covariance[s, s] - weights @ covariance[past, s] + noise_variance
            densities[s, j] = torch.distributions.Normal(mean, variance.sqrt()).log_prob(residuals[s])
    return densities
