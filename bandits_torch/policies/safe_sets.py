"""Which arms are certainly within limits, and which of them would tell most of the others (GP-SafeOpt).

Every function is of batches (S, N): S replicates, N arms. A bound is a posterior mean plus or minus ``width`` posterior
standard deviations, and there is no Lipschitz constant: Berkenkamp, Krause & Schoellig 2016/2021 (GP-SafeOpt), after
Sui et al. 2015.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

Limits = tuple[float, float]  # low, high; one may be infinite


@dataclass(frozen=True)
class Bounded:
    """A function that must stay within limits: posterior moments (S, N) and the width (S, 1) of its bounds."""

    mean: Tensor
    deviation: Tensor
    width: Tensor
    limits: Limits

    @property
    def certain(self) -> Tensor:
        """Where both confidence bounds lie within the limits, (S, N) booleans."""
        low, high = self.limits
        half = self.width * self.deviation
        return (self.mean - half >= low) & (self.mean + half <= high)

    @property
    def margin(self) -> Tensor:
        """Posterior deviations from the nearest limit, negative outside, (S, N)."""
        low, high = self.limits
        room = torch.minimum(self.mean - low, high - self.mean)
        return room / self.deviation.clamp_min(torch.finfo(room.dtype).tiny)


def safe_set(functions: list[Bounded]) -> Tensor:
    """Arms whose functions are all certainly within their limits, (S, N) booleans."""
    return torch.stack([one.certain for one in functions]).all(0)


def least_margin(functions: list[Bounded]) -> Tensor:
    """The smallest margin of any function, (S, N)."""
    return torch.stack([one.margin for one in functions]).amin(0)


def expanders(
    safe: Tensor, functions: list[Bounded], joint: list[Tensor], noise_variance: list[Tensor]
) -> Tensor:
    """Safe arms whose most favourable outcome would make an arm safe that is not, (S, N) booleans.

    Of arm x the outcome favourable to a lower limit is u(x), to an upper limit l(x); after it, each function's bounds
    at x' are those of the posterior with that observation (Berkenkamp et al., equation of G_n). O(S N^2) a limit.

    Args:
        safe: (S, N).
        joint: posterior covariance (S, N, N) of each function.
        noise_variance: (S, 1) of each function.
    """
    reached = ~safe.unsqueeze(-2)  # x in rows, x' in columns
    for one, covariance, noise in zip(functions, joint, noise_variance, strict=True):
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        gain = covariance / (variance + noise).unsqueeze(-1)  # C(x, x') / (C(x, x) + lambda)
        left = (variance.unsqueeze(-2) - gain * covariance).clamp_min(0).sqrt()
        half, width = (one.width * one.deviation).unsqueeze(-1), one.width.unsqueeze(-1)
        for limit, sign in zip(one.limits, (1.0, -1.0), strict=True):
            if math.isfinite(limit):
                bound = one.mean.unsqueeze(-2) + sign * (gain * half - width * left)
                reached = reached & (sign * (bound - limit) >= 0)
    return safe & reached.any(-1)


def maximisers(safe: Tensor, mean: Tensor, half: Tensor) -> Tensor:
    """Safe arms whose upper bound ``mean + half`` is at least the best lower bound of a safe arm, (S, N) booleans."""
    best = (mean - half).masked_fill(~safe, -torch.inf).amax(-1, keepdim=True)
    return safe & (mean + half >= best)
