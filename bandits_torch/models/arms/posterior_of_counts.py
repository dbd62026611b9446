"""The static posterior over n points from how often each was observed, and the sums of its rewards.

This is the slow way, O(n^3). Recursive forms of the posterior are checked against it and rebuilt from it. With K the
prior covariance among the points, c their counts, W = diag(c / lambda) and y the sums of their residuals:

    P = K - K W^{1/2} B^{-1} W^{1/2} K,    mean = K W^{1/2} B^{-1} (lambda c)^{-1/2} y,    B = I + W^{1/2} K W^{1/2}

(Rasmussen & Williams 2006, equations 3.26-3.27), both as products of whitened factors, which stay bounded.

A point without observations has a null row in B, so that points need not be packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Counts may be fractions: an observation of more noise than lambda counts for less than one.
_TINY = torch.finfo(torch.float64).tiny
# A column of the posterior that is off by more, in units of the prior variance, calls for a rebuild; so does a mean, in
# units of the prior deviation plus the largest mean.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
# Of the noise variance: a removal that leaves less may multiply rounding errors by its inverse.
LEAST_LEFT = 1e-5
# A rebuild is due once the surprise removed exceeds this many times the surprise that is left, which keeps the rounding
# errors of what was removed. One extreme reward reaches that at once, ordinary rewards after some windows.
REMOVED = 100.0


@dataclass(frozen=True)
class CountsPosterior:
    """Posterior over n points, in float64.

    Attributes:
        root, factor: W^{1/2}, (n,), and the lower Cholesky factor L of B, n x n.
        whitened: L^{-1} (lambda c)^{-1/2} y, (n,).
        prior: K, (n, n), without its negative eigenvalues if those would have mattered.
    """

    root: Tensor
    factor: Tensor
    whitened: Tensor
    prior: Tensor

    def at(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (m,) of points whose prior covariances with those observed are ``cross`` (n, m), and V = L^{-1} W^{1/2}
        cross, whose products V^T V the observations subtract from the prior covariances."""
        v = torch.linalg.solve_triangular(self.factor, self.root.unsqueeze(-1) * cross, upper=False)
        return self.whitened @ v, v

    def among(self) -> tuple[Tensor, Tensor]:
        """Mean (n,) and covariance P (n, n) of the points themselves.

        Where observations determine a point, P is close to W^{-1}. The difference, B^{-1} scaled, is computed directly,
        so that it keeps its digits: the removal of an observation divides by it. Elsewhere P is close to K.
        """
        mean, v = self.at(self.prior)
        pinned = self.root.square() * self.prior.diagonal() > 1
        spread = torch.where(pinned, self.root, 1.0).reciprocal()
        near_spread = (
            torch.diag(spread.square()) - spread.unsqueeze(-1) * torch.cholesky_inverse(self.factor) * spread
        )
        near_prior = self.prior - v.mT @ v
        return mean, torch.where(pinned.unsqueeze(-1) & pinned, near_spread, near_prior)

    @property
    def gain(self) -> Tensor:
        """1/2 log det B, which is 1/2 log det(I + K_t / lambda)."""
        return self.factor.diagonal().log().sum()

    def surprise(self, count: Tensor, total: Tensor, squares: Tensor, noise: Tensor) -> Tensor:
        """r^T (K_t + lambda I)^{-1} r of residuals r whose squares add up to ``squares``."""
        within = squares - (total.square() / count.clamp_min(_TINY)).sum()
        return within.clamp_min(0.0) / noise.squeeze() + self.whitened.square().sum()


def posterior_of_counts(K: Tensor, count: Tensor, total: Tensor, noise: Tensor) -> CountsPosterior:
    """The posterior; K (n, n), count and total (n,), noise a number in a tensor, all float64."""
    root = (count / noise).sqrt()
    factor, failed = torch.linalg.cholesky_ex(_lifted(root, K))
    if bool(failed):  # a matrix rounded to float32 can have eigenvalues below -1 / weight
        values, vectors = torch.linalg.eigh(K)
        K = (vectors * values.clamp_min(0.0)) @ vectors.mT
        factor = torch.linalg.cholesky(_lifted(root, K))
    scaled = torch.where(count > 0, total / (noise * count.clamp_min(_TINY)).sqrt(), 0.0)
    whitened = torch.linalg.solve_triangular(factor, scaled.unsqueeze(-1), upper=False).squeeze(-1)
    return CountsPosterior(root, factor, whitened, K)


def _lifted(root: Tensor, K: Tensor) -> Tensor:
    B = root.unsqueeze(-1) * K * root
    B.diagonal().add_(1.0)
    return B


def column_error(K_column: Tensor, K: Tensor, column: Tensor, C: Tensor, weight: Tensor) -> Tensor:
    """The error of ``column``, a column of the posterior covariance C, (b, n), in O(n^2).

    The exact column solves (I + K W) c = k. The residual is multiplied by (I + K W)^{-1} = I - C W. K (b, n, n) or
    (1, n, n), the columns and ``weight`` = c / lambda (b, n).
    """
    left = K_column - column - (K @ (weight * column).unsqueeze(-1)).squeeze(-1)
    return left - (C @ (weight * left).unsqueeze(-1)).squeeze(-1)


def count_removed(form: Any, gone: Tensor, left: Tensor) -> None:
    """Count the surprise, (b,), taken away by removals whose largest lambda / s is ``left``, (b, 1).

    If that is large, a single observation carried the information about an arm, and its remainder is mostly rounding.
    """
    form.surprise.sub_(gone)
    lost = form.removed.add_(gone) > REMOVED * (1 + form.surprise)
    form.suspect.logical_or_((left > 1 / LEAST_LEFT).squeeze(-1) | lost)


def is_off(error: Tensor, off: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    """Which members, (b,), exceed the tolerance: in a column of the covariance by ``error``, in the mean by ``off``.

    ``scale``: the largest prior variance, (b,); ``mean``: (b, N), in the dtype of the form.
    """
    most = TOLERANCE[mean.dtype]
    return ~((error <= most * scale) & (off <= most * (scale.sqrt() + mean.abs().amax(-1))))
