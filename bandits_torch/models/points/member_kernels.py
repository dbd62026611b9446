"""Kernels of ``PointMembers``: an unknown mean and Matern 5/2 over points, forgetting or Matern 3/2 over time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

CONSTANT = 1.0  # variance of the unknown mean, in units of the variance about it
_NEAR = 1e-16  # squared distance of a point from itself, where a square root of 0 would have no gradient


def matern_parts(U: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e^{-r}, 1 + r and Matern 5/2 between points over their length-scales, ``... x b x d``, ``... x n x d``."""
    squared = U.square().sum(-1).unsqueeze(-1) + V.square().sum(-1).unsqueeze(-2) - 2 * U @ V.mT
    return _matern(squared.clamp_min(0.0))


def covariance(U: Tensor, V: Tensor, lengthscale: Tensor) -> Tensor:
    """1 + Matern 5/2 of points ``... x b x d`` and ``... x n x d`` with length-scales ``... x d``: ``... x b x n``.

    Each number depends on its two points alone, to the last bit, whichever other points are in the call.
    """
    U, V = U / lengthscale.unsqueeze(-2), V / lengthscale.unsqueeze(-2)
    squared = torch.zeros((), dtype=U.dtype, device=U.device)
    for u, v in zip(U.unbind(-1), V.unbind(-1), strict=True):
        squared = squared + (u.unsqueeze(-1) - v.unsqueeze(-2)).square()
    return CONSTANT + _matern(squared)[2]


def _matern(squared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e^{-r}, 1 + r and Matern 5/2 of squared distances in length-scales."""
    r = (5 * squared + _NEAR).sqrt()
    decay, tail = (-r).exp(), 1 + r
    return decay, tail, (tail + r.square() / 3) * decay


@dataclass(frozen=True, eq=False)
class FadingKernels:
    """k_T of many members, e^{-r} or, where smooth, (1 + r) e^{-r}, r = c tau.

    Attributes:
        decay: (P,) c.
        smooth: (P,) booleans.
    """

    decay: Tensor
    smooth: Tensor

    @classmethod
    def from_rates(cls, forgetting_rate: Tensor, timescale: Tensor) -> FadingKernels:
        """Exponential forgetting, (1 - eps)^{tau / 2}; where a time-scale T is finite Matern 3/2, c = sqrt(3) / T."""
        smooth = timescale.isfinite()
        exponential = -0.5 * torch.log1p(-forgetting_rate)
        return cls(torch.where(smooth, math.sqrt(3) / timescale, exponential), smooth)

    def of(self, member: Tensor) -> FadingKernels:
        """Those of these members, of any shape."""
        return FadingKernels(self.decay[member], self.smooth[member])

    @property
    def effective_rate(self) -> Tensor:
        """eps; of a smooth one that of the exponential one with the same integral."""
        return -torch.expm1(-torch.where(self.smooth, self.decay, 2 * self.decay))

    def __call__(self, gap: Tensor) -> Tensor:
        """k_T of gaps, ``... P x b x n`` (a 1 in place of P: the same for all)."""
        r = self.decay[..., None, None] * gap.abs()
        return (1 + self.smooth[..., None, None] * r) * (-r).exp()

    def slope(self, gap: Tensor) -> Tensor:
        """Its derivative by the gap: -c sign(tau) e^{-r} or, smooth, -c r sign(tau) e^{-r}, r = c |tau|."""
        c = self.decay[..., None, None]
        r = c * gap.abs()
        return -c * gap.sign() * torch.where(self.smooth[..., None, None], r, 1.0) * (-r).exp()


def noisy(K: Tensor, held: Tensor, noise_variance: Tensor) -> Tensor:
    """K + lambda I of the points held, ``... x n x n``; the rows of others are those of the unit matrix."""
    h = held.to(K.dtype)
    A = K * (h.unsqueeze(-1) * h.unsqueeze(-2))
    A.diagonal(dim1=-2, dim2=-1).add_(h * noise_variance.unsqueeze(-1) + (1 - h))
    return A
