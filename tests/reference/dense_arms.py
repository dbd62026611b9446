"""The slow, obvious likelihood of each arm's rewards by itself, its mean integrated out under a flat prior."""

import math

import torch
from torch import Tensor


def dense_arm_evidence(
    table: Tensor, times: Tensor, variance: float, noise_variance: float, rate: float
) -> tuple[float, float]:
    """Sum over the arms of y^T (K^-1 - K^-1 1 1^T K^-1 / 1^T K^-1 1) y, and of log |K| + log 1^T K^-1 1."""
    form = log_det = 0.0
    for column in table.T:
        seen = ~torch.isnan(column)
        y, t = column[seen], times[seen]
        decay = (1 - rate) ** ((t.unsqueeze(-1) - t).abs() / 2)
        K = variance * decay + noise_variance * torch.eye(len(y), dtype=y.dtype)
        inverse, one = torch.linalg.inv(K), torch.ones_like(y)
        gram = float(one @ inverse @ one)
        form += float(y @ inverse @ y) - float(one @ inverse @ y) ** 2 / gram
        log_det += float(torch.logdet(K)) + math.log(gram)
    return form, log_det
