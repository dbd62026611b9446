"""Covariances between arms that tests begin with."""

import torch
from torch import Tensor


def smooth(num_arms: int, lengthscale: float = 0.2) -> Tensor:
    """Squared exponential covariance of evenly spaced arms on [0, 1]."""
    x = torch.linspace(0, 1, num_arms, dtype=torch.float64)
    return torch.exp(-0.5 * ((x[:, None] - x[None, :]) / lengthscale) ** 2)


def isolated(num_arms: int, variance: float = 1.0) -> Tensor:
    """Arms that tell nothing of each other."""
    return variance * torch.eye(num_arms, dtype=torch.float64)
