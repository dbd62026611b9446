"""The slow, obvious likelihood of rewards under exponential forgetting."""

import torch
from torch import Tensor


def dense_log_likelihood(
    centred: Tensor, times: Tensor, covariance: Tensor, noise_variance: float, rate: float
) -> float:
    """Normal log-density of the observed entries of a table (T, N), from the whole TN x TN covariance."""
    T, N = centred.shape
    decay = (1 - rate) ** ((times.unsqueeze(-1) - times).abs() / 2)
    whole = torch.kron(decay, covariance) + noise_variance * torch.eye(T * N, dtype=centred.dtype)
    seen = ~torch.isnan(centred).flatten()
    normal = torch.distributions.MultivariateNormal(
        torch.zeros(int(seen.sum()), dtype=centred.dtype), whole[seen][:, seen]
    )
    return float(normal.log_prob(centred.flatten()[seen]))
