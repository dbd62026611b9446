"""What a population's members gain in an interval of training, as Gaussian processes over hyperparameters and time."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from bandits_torch.models.points.member_mixture import MemberMixture
from bandits_torch.models.points.point_members import PointMembers

_DRAWN = 32  # priors weighed against each other
_KEPT = 6  # of which so many predict
_SHAPE = 1.0  # of the inverse gamma prior of a member's squared unit, for targets of variance about 1


def mixture_of_gains(
    X: Tensor, time: Tensor, target: Tensor, pending: Tensor | None = None, seed: int = 0
) -> MemberMixture:
    """Gaussian processes over n observed gains, drawn from a prior over their hyperparameters, weighed by likelihood."""
    n, d = X.shape
    theta = _draws(d, seed)
    members = _members(X, time, target, theta)
    log_weights = _log_evidence(members, target)
    best = log_weights.topk(_KEPT).indices
    members = _members(X, time, target, theta[best])
    weights = log_weights[best].softmax(-1).unsqueeze(0)
    scale = (2 * _SHAPE + members.squares) / (2 * _SHAPE + n)
    zero = scale.new_zeros(1)
    return MemberMixture(members, weights, scale, zero, zero + 1.0, pending)


def _draws(d: int, seed: int) -> Tensor:
    """Hyperparameters drawn from their prior, (P, d + 4): d length-scales, noise, forgetting rate, timescale."""
    u = SobolEngine(d + 2, scramble=True, seed=seed).draw(_DRAWN, dtype=torch.float64).clamp(1e-4, 1 - 1e-4)
    normal = torch.special.ndtri(u[:, :d])
    lengthscale = (math.log(0.5) + 0.5 * math.log(d) + 0.8 * normal).exp()
    noise = (math.log(0.02) + u[:, d] * math.log(10 / 0.02)).exp()
    smooth = u[:, d + 1] < 0.5
    place = torch.where(smooth, 2 * u[:, d + 1], 2 * u[:, d + 1] - 1)
    timescale = torch.where(smooth, 3.0 * (100 / 3.0) ** place, math.inf)
    rate = torch.where(smooth, 0.0, 0.003 * (0.5 / 0.003) ** place)
    return torch.cat([lengthscale, torch.stack([noise, rate, timescale], -1)], -1)


def _members(X: Tensor, time: Tensor, target: Tensor, theta: Tensor) -> PointMembers:
    n, d = X.shape
    box = torch.stack([X.new_zeros(d), X.new_ones(d)])
    members = PointMembers(
        box, theta[:, :d], theta[:, d], theta[:, d + 1], theta[:, d + 2], capacity=max(n, 2)
    )
    members.inputs, members.times = X.unsqueeze(0), time.unsqueeze(0)
    members.targets = target.expand(1, len(theta), n)
    members.held = torch.ones_like(members.targets, dtype=torch.bool)
    members.rebuild()
    return members


def _log_evidence(members: PointMembers, target: Tensor) -> Tensor:
    half_log_det = -0.5 * torch.linalg.slogdet(members._inverse).logabsdet
    fit = (_SHAPE + 0.5 * len(target)) * (_SHAPE + 0.5 * members.squares).log()
    return (-half_log_det - fit).squeeze(0)
