"""What members of a population gain in a stretch of training, as Gaussian processes over hyperparameters and time."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from bandits_torch.models.points.member_kernels import covariance, noisy
from bandits_torch.models.points.member_mixture import MemberMixture
from bandits_torch.models.points.point_members import PointMembers

_DRAWN = 32  # priors that are weighed against each other
_KEPT = 6  # of which so many predict
_SHAPE = 1.0  # of the inverse gamma prior of a process's squared unit; targets have variance about 1
_NEAR = 1.5  # intervals: gains no further apart in time are compared
_TAIL = 0.02  # a rank's distance from the ends, at least


def levelled(time: Tensor, gain: Tensor) -> Tensor:
    """Normal scores of gains among those of about the same time, (n,).

    Gains shrink by orders of magnitude as training converges, and a run that collapses loses more than all others gain
    together. What matters to a choice is which of those at the same time gained more: the normal quantile of a gain's
    rank among those that began at most ``_NEAR`` intervals from it.

    Args:
        time: (n,) in intervals.
        gain: (n,); minus infinity for a run that broke.
    """
    near = ((time.unsqueeze(-1) - time).abs() <= _NEAR).double()
    less = (gain < gain.unsqueeze(-1)).double() + 0.5 * (gain == gain.unsqueeze(-1)).double()
    return torch.special.ndtri(((near * less).sum(-1) / near.sum(-1)).clamp(_TAIL, 1 - _TAIL))


def mixture_of_gains(
    X: Tensor, time: Tensor, target: Tensor, pending: Tensor | None = None, *, seed: int = 0
) -> MemberMixture:
    """Gaussian processes given n targets, their hyperparameters drawn from a prior, weighed by their evidence.

    Length-scales for each column, noise, and how fast all changes are drawn by a Sobol sequence. The squared unit s of
    a process has an inverse gamma prior (a, a), so that with A = K + lambda I in its unit

        ln p(y) = -1/2 ln det A - (a + n/2) ln(a + 1/2 y^T A^{-1} y) + constant,
        1 / E[1/s | y] = (2a + y^T A^{-1} y) / (2a + n),  taken for s

    (conjugate; derived). Those likeliest predict together by their weights.

    Args:
        X: (n, d) in the unit cube, but for columns that may leave it a little.
        time: (n,), in intervals.
        target: (n,), of mean about 0 and variance about 1.
        pending: (1, k, d + 1), [x, time] of stretches whose gain is not known yet: they lower the variance.
        seed: of the sequence.

    Cost: O(P n^3), P = 32 priors.
    """
    n, d = X.shape
    theta = _draws(d, seed)
    evidence, squares = _log_evidence(X, time, target, theta)
    best = evidence.topk(_KEPT).indices
    members = _members(X, time, target, theta[best])
    weights = evidence[best].softmax(-1).unsqueeze(0)
    scale = ((2 * _SHAPE + squares[best]) / (2 * _SHAPE + n)).unsqueeze(0)
    zero = scale.new_zeros(1)
    return MemberMixture(members, weights, scale, zero, zero + 1.0, pending)


def _draws(d: int, seed: int) -> Tensor:
    """Hyperparameters drawn from their prior, (P, d + 3): d length-scales, noise, forgetting rate, timescale.

    Length-scales are log-normal about sqrt(d) / 2, noise is log-uniform between 1/50 and 10 times the variance of the
    function. Half of the processes forget exponentially, at rates from 0.003 to 0.5 an interval, half change smoothly,
    over 3 to 100 intervals, both log-uniform.
    """
    u = SobolEngine(d + 2, scramble=True, seed=seed).draw(_DRAWN, dtype=torch.float64).clamp(1e-4, 1 - 1e-4)
    lengthscale = 0.5 * math.sqrt(d) * (0.8 * torch.special.ndtri(u[:, :d])).exp()
    noise = 0.02 * 500.0 ** u[:, d]
    smooth = u[:, d + 1] < 0.5
    place = (2 * u[:, d + 1]) % 1.0
    timescale = torch.where(smooth, 3.0 * (100 / 3.0) ** place, math.inf)
    rate = torch.where(smooth, 0.0, 0.003 * (0.5 / 0.003) ** place)
    return torch.cat([lengthscale, torch.stack([noise, rate, timescale], -1)], -1)


def _members(X: Tensor, time: Tensor, target: Tensor, theta: Tensor) -> PointMembers:
    """Processes of these hyperparameters that hold all there is."""
    members = _empty(X, theta)
    members.inputs, members.times = X.unsqueeze(0), time.unsqueeze(0)
    members.targets = target.expand(1, len(theta), len(X))
    members.held = torch.ones_like(members.targets, dtype=torch.bool)
    members.rebuild()
    return members


def _empty(X: Tensor, theta: Tensor) -> PointMembers:
    """Processes of these hyperparameters, with room for all there is."""
    n, d = X.shape
    box = torch.stack([X.new_zeros(d), X.new_ones(d)])
    return PointMembers(box, theta[:, :d], *theta[:, d:].T, capacity=max(n, 2))


def _log_evidence(X: Tensor, time: Tensor, target: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """ln p(y) of each process but for a constant, and y^T A^{-1} y, (P,) each; a factor of A is all that it takes."""
    n, processes = len(X), _empty(X, theta)
    over_time = processes.over_time((time.unsqueeze(-1) - time).expand(1, 1, n, n))
    held = torch.ones(1, len(theta), n, dtype=torch.bool)
    K = covariance(X, X, processes.lengthscale) * over_time
    A = noisy(K, held, processes.noise_variance).squeeze(0)
    L = torch.linalg.cholesky(A)
    z = torch.linalg.solve_triangular(L, target.expand(len(theta), n).unsqueeze(-1), upper=False)
    half_log_det, squares = L.diagonal(dim1=-2, dim2=-1).log().sum(-1), z.square().sum((-2, -1))
    return -half_log_det - (_SHAPE + 0.5 * n) * (_SHAPE + 0.5 * squares).log(), squares
