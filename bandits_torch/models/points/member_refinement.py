"""Refines hyperparameters of members by many short searches of the marginal likelihood, all in one batch."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields
from typing import Any

import torch
from botorch.exceptions.errors import OptimizationGradientError
from botorch.generation.gen import gen_candidates_scipy
from torch import Tensor
from torch.autograd.function import once_differentiable

from bandits_torch.models.hyperparameters import ANISOTROPY
from bandits_torch.models.points.member_kernels import CONSTANT, matern_parts, noisy
from bandits_torch.models.points.point_members import PointMembers

_LENGTHSCALES = math.log(0.03), math.log(10.0)
_NOISES = math.log(1e-4), math.log(3.0)
_NOISE_PRIOR = -4.0, 1.0  # of the logarithm, as BoTorch has it


@dataclass(frozen=True)
class HeldRows:
    """The observations of b members: points (b, n, d) of the unit cube, targets (b, n), a mask of those held, and k_T
    between all, (b, n, n)."""

    inputs: Tensor
    targets: Tensor
    held: Tensor
    over_time: Tensor

    @classmethod
    def of(cls, members: PointMembers, row: Tensor) -> HeldRows:
        """The rows of the members with numbers ``row`` (b,), s P + p each."""
        P = members.batch_shape[1]
        s, p = row // P, row % P
        gap = members.times[s].unsqueeze(-1) - members.times[s].unsqueeze(-2)
        return cls(members.inputs[s], members.targets[s, p], members.held[s, p], members.over_time.of(p)(gap))

    def at(self, place: Tensor) -> HeldRows:
        """The rows at these places, (c,)."""
        return HeldRows(*(getattr(self, field.name)[place] for field in fields(self)))


def log_posterior(theta: Tensor, rows: HeldRows) -> Tensor:
    """ln p(y | theta) + ln p(theta), up to a constant, (b,).

    With A = K + lambda I in the member's unit and the n targets it holds, the unit maximised over,

        ln p = -1/2 ln det A - n/2 ln(y^T A^{-1} y / n).

    The priors are BoTorch's log-normal ones, densities of length-scale and noise and not of their logarithms, so the
    likeliest length-scale before any data is exp(sqrt(2) - 3) sqrt(d): ln l normal about sqrt(2) + 1/2 ln d with
    deviation sqrt(3) (Hvarfner et al. 2024), ln lambda about -4 with deviation 1. In addition, each ln l is normal
    about the mean of all with deviation 0.3.

    Args:
        theta: (b, d + 1), logarithms of length-scales and noise variance.
        rows: the observations of the member of each theta.
    """
    d = theta.shape[-1] - 1
    logarithms, noise = theta[:, :d], theta[:, d]
    mean = logarithms.mean(-1)
    prior = (logarithms - math.sqrt(2) - 0.5 * math.log(d)).square().sum(-1) / 3
    prior = prior + ((logarithms - mean.unsqueeze(-1)) / ANISOTROPY).square().sum(-1)
    prior = prior + ((noise - _NOISE_PRIOR[0]) / _NOISE_PRIOR[1]).square()
    prior = prior + 2 * theta.sum(-1)  # d ln l / dl = 1 / l
    return LogLikelihood.apply(theta, rows) - 0.5 * prior


class LogLikelihood(torch.autograd.Function):
    """ln p(y | theta) of ``log_posterior``, (b,), with its gradient written out, once differentiable.

    With M = n alpha alpha^T / (2 y^T alpha) - A^{-1} / 2, alpha = A^{-1} y (Rasmussen & Williams 2006, equation 5.9,
    the unit maximised over) and r the scaled distances between the points held,

        d/d ln lambda = lambda sum_i M_ii,
        d/d ln l_j = sum_nm W_nm (u_nj - u_mj)^2,   W = (5/3) M k_T (1 + r) e^{-r},   u = x / l.

    It takes no derivative of a Cholesky factor. The gradient is NaN where all targets are 0, whatever theta.
    """

    @staticmethod
    def forward(ctx: Any, theta: Tensor, rows: HeldRows) -> Tensor:
        """theta (b, d + 1), as many rows."""
        d, held, over_time = theta.shape[-1] - 1, rows.held, rows.over_time
        y = (rows.targets * held).unsqueeze(-1)
        u, noise = rows.inputs / theta[:, None, :d].exp(), theta[:, d].exp()
        decay, tail, matern = matern_parts(u, u)
        L = torch.linalg.cholesky(noisy((CONSTANT + matern) * over_time, held, noise))
        z = torch.linalg.solve_triangular(L, y, upper=False)
        n, squares = held.sum(-1), z.square().sum((-2, -1))
        tiny = torch.finfo(y.dtype).tiny
        fit = 0.5 * n * (squares / n.clamp_min(1) + tiny).log()
        ctx.save_for_backward(L, z, u, noise, held, n, squares, tail * decay * over_time)
        return -L.diagonal(dim1=-2, dim2=-1).log().sum(-1) - fit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_value: Tensor) -> tuple[Tensor, None]:
        """The gradient by theta."""
        L, z, u, noise, held, n, squares, slope = ctx.saved_tensors
        alpha = torch.linalg.solve_triangular(L.mT, z, upper=True)
        share = torch.where(squares > 0, 0.5 * n / squares, torch.nan)
        M = share[:, None, None] * (alpha @ alpha.mT) - 0.5 * torch.cholesky_inverse(L)
        of_noise = noise * (M.diagonal(dim1=-2, dim2=-1) * held).sum(-1)
        W = (5.0 / 3.0) * M * slope  # M couples no point that is not held to another
        of_lengths = 2 * (W.sum(-1, keepdim=True) * u.square() - u * (W @ u)).sum(-2)
        gradient = torch.cat([of_lengths, of_noise.unsqueeze(-1)], -1)
        return of_value.unsqueeze(-1) * gradient, None


def refine(members: PointMembers, chosen: Tensor, like: Tensor, rounds: int) -> Tensor:
    """Likelier hyperparameters for some members of each replicate, theta (S, K, d + 1) as in ``log_posterior``.

    For each member one search (L-BFGS-B, ``rounds`` rounds) begins at its own hyperparameters and another at those of
    ``like``; for ``like`` itself both begin at its own. The member gets the best of both results and its present
    hyperparameters. The searches do not depend on each other. Where the likelihood has no gradient (all rewards are
    equal, say), no member changes.

    Args:
        chosen: (S, K) members.
        like: (S,) a member.

    Cost: O(S K n^3) a round.
    """
    S, P = members.batch_shape
    rows = (chosen + P * torch.arange(S, device=chosen.device).unsqueeze(-1)).reshape(-1)
    low, high = members.bounds.new_tensor([*[_LENGTHSCALES] * members.dim, _NOISES]).T  # bounds of theta
    theta = _logarithms(members.lengthscale, members.noise_variance).clamp(low, high)
    own = theta.reshape(S * P, -1)[rows]
    others = theta[torch.arange(S, device=like.device), like].repeat_interleave(chosen.shape[1], 0)
    begun = _logarithms(*members.beginning).clamp(low, high)[chosen.reshape(-1)]
    others = torch.where((chosen == like.unsqueeze(-1)).reshape(-1, 1), begun, others)
    start = torch.cat([own, others])
    held, D = HeldRows.of(members, rows), theta.shape[-1]
    place = torch.arange(len(rows), device=rows.device).repeat(2).to(theta)
    going_on, of_these = place[:0], held

    def value(X: Tensor) -> Tensor:
        nonlocal going_on, of_these
        if not torch.equal(X[:, 0, D], going_on):  # searches that have ended are no longer asked for
            going_on = X[:, 0, D].detach().clone()
            of_these = held.at(going_on.long())
        return log_posterior(X[:, 0, :D], of_these)

    with (
        warnings.catch_warnings(record=True),
        torch.enable_grad(),
    ):  # that the rounds are up, or a line search ended
        try:
            found, _ = gen_candidates_scipy(
                torch.cat([start, place.unsqueeze(-1)], -1).unsqueeze(1),
                value,  # type: ignore[arg-type]
                torch.cat([low, low.new_zeros(1)]),
                torch.cat([high, high.new_full((1,), float(len(rows)))]),
                options={"maxiter": rounds},
                fixed_features={D: place},
            )
        except OptimizationGradientError:
            return own.reshape(*chosen.shape, D)
    with torch.no_grad():
        tried = torch.stack([own, *found[:, 0, :D].chunk(2)])  # 3 x SK x D
        values = torch.stack([log_posterior(t, held) for t in tried])
        best = values.nan_to_num(nan=-torch.inf).argmax(0)
    return tried[best, torch.arange(len(rows), device=best.device)].reshape(*chosen.shape, D)


def _logarithms(lengthscale: Tensor, noise_variance: Tensor) -> Tensor:
    """theta, ``... x (d + 1)``."""
    return torch.cat([lengthscale.log(), noise_variance.log().unsqueeze(-1)], -1)
