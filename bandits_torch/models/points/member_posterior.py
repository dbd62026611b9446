"""Predictions of many Gaussian processes over points and time: of each process, and of their mixture.

Their kernels: an unknown mean plus Matern 5/2 over points, times exponential forgetting or Matern 3/2 over time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bandits_torch import validation
from bandits_torch.models.online_model import MarginalPosterior, SingleOutputModel

CONSTANT = 1.0  # prior variance of the unknown mean, in units of the prior variance about it
_NEAR = 1e-16  # least r^2: a square root of 0 has no gradient


def matern_parts(U: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e^{-r}, 1 + r and Matern 5/2 of points ``... x b x d`` and ``... x n x d`` in units of the length-scales."""
    squared = U.square().sum(-1).unsqueeze(-1) + V.square().sum(-1).unsqueeze(-2) - 2 * U @ V.mT
    return _matern(squared.clamp_min(0.0))


def covariance(U: Tensor, V: Tensor, lengthscale: Tensor) -> Tensor:
    """1 + Matern 5/2 of points ``... x b x d`` and ``... x n x d`` with length-scales ``... x d``: ``... x b x n``.

    Each covariance depends, to the last bit, on its two points alone, not on the other points in the call.
    """
    U, V = U / lengthscale.unsqueeze(-2), V / lengthscale.unsqueeze(-2)
    squared = torch.zeros((), dtype=U.dtype, device=U.device)
    for u, v in zip(U.unbind(-1), V.unbind(-1), strict=True):
        squared = squared + (u.unsqueeze(-1) - v.unsqueeze(-2)).square()
    return CONSTANT + _matern(squared)[2]


def _matern(squared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e^{-r}, 1 + r and Matern 5/2 from squared distances in units of the length-scales."""
    r = (5 * squared + _NEAR).sqrt()
    decay, tail = (-r).exp(), 1 + r
    return decay, tail, (tail + r.square() / 3) * decay


@dataclass(frozen=True, eq=False)
class FadingKernels:
    """k_T of P members: e^{-r}, or (1 + r) e^{-r} if smooth, with r = c |tau|.

    Attributes:
        decay: (P,) c > 0, or 0 without forgetting.
        smooth: (P,) booleans.
    """

    decay: Tensor
    smooth: Tensor

    @classmethod
    def from_rates(cls, forgetting_rate: Tensor, timescale: Tensor) -> FadingKernels:
        """Exponential forgetting, (1 - eps)^{tau / 2}; if a time-scale T is finite, Matern 3/2 with c = sqrt(3) / T."""
        smooth = timescale.isfinite()
        exponential = -0.5 * torch.log1p(-forgetting_rate)
        return cls(torch.where(smooth, math.sqrt(3) / timescale, exponential), smooth)

    def of(self, member: Tensor) -> FadingKernels:
        """The kernels of members with these numbers, of any shape."""
        return FadingKernels(self.decay[member], self.smooth[member])

    @property
    def effective_rate(self) -> Tensor:
        """eps; for a smooth kernel, eps of the exponential kernel with the same integral."""
        return -torch.expm1(-torch.where(self.smooth, self.decay, 2 * self.decay))

    def __call__(self, gap: Tensor) -> Tensor:
        """k_T of gaps ``... P x b x n``, or ``... 1 x b x n`` if all members have the same gaps."""
        r = self.decay[..., None, None] * gap.abs()
        return (1 + self.smooth[..., None, None] * r) * (-r).exp()

    def slope(self, gap: Tensor) -> Tensor:
        """Derivative of k_T with respect to the gap: -c sign(tau) e^{-r}, or -c r sign(tau) e^{-r} if smooth."""
        c = self.decay[..., None, None]
        r = c * gap.abs()
        return -c * gap.sign() * torch.where(self.smooth[..., None, None], r, 1.0) * (-r).exp()


def noisy(K: Tensor, held: Tensor, noise_variance: Tensor) -> Tensor:
    """K + lambda I, ``... x n x n``, with rows of the identity matrix for points that are not held."""
    h = held.to(K.dtype)
    A = K * (h.unsqueeze(-1) * h.unsqueeze(-2))
    A.diagonal(dim1=-2, dim2=-1).add_(h * noise_variance.unsqueeze(-1) + (1 - h))
    return A


_LEAST_VARIANCE = 1e-10


class MemberPosterior:
    """Predictions of P Gaussian processes in S replicates; ``PointMembers`` documents their covariances.

    Attributes:
        bounds: (2, d), the box that is scaled to the unit cube.
        inputs: (S, n, d) points of the unit cube in order of arrival; times: (S, n).
        held: (S, P, n) booleans, whether a member holds an observation.
        lengthscale: (S, P, d); noise_variance: (S, P).
        over_time: k_T of the members.
        inverse, weights: A^{-1}, (S, P, n, n), and A^{-1} y, (S, P, n), with A = K + lambda I as ``noisy`` makes it.
    """

    bounds: Tensor
    inputs: Tensor
    times: Tensor
    held: Tensor
    lengthscale: Tensor
    noise_variance: Tensor
    inverse: Tensor
    weights: Tensor
    over_time: FadingKernels
    _low: Tensor  # the box, (d,), or that of each replicate, (S, 1, d)
    _side: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """(S, P)."""
        return self.noise_variance.shape

    @property
    def dim(self) -> int:
        """d."""
        return self.bounds.shape[-1]

    def unit_cube(self, X: Tensor) -> Tensor:
        """Points ``... x d`` of the box, scaled to the unit cube."""
        return (X.double() - self._low) / self._side

    @property
    def points(self) -> Tensor:
        """The observed points, in the box, whether a member holds them or not: (S, n, d)."""
        return self.inputs * self._side + self._low

    def moments(self, X: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Mean, and variance in the member's squared unit, at points (S, b, d) and times (S, b): (S, P, b) each."""
        mean, variance = MemberMoments.apply(self.unit_cube(X), time, self)
        return mean, variance

    def between(self, X: Tensor, time: Tensor, Z: Tensor, then: Tensor) -> Tensor:
        """Posterior covariance of points X (S, b, d) at times (S, b) with Z (S, k, d) at (S, k): (S, P, b, k)."""
        left, right = self.unit_cube(X), self.unit_cube(Z)
        explained = self._with_held(left, time) @ self.inverse @ self._with_held(right, then).mT
        return self._prior(left, time, right, then) - explained

    def _prior(self, U: Tensor, time: Tensor, V: Tensor, then: Tensor) -> Tensor:
        """Prior covariance of points (S, b, d) of the unit cube at times (S, b) with (S, k, d) at (S, k)."""
        gap = (time.unsqueeze(-1) - then.unsqueeze(-2)).unsqueeze(1)
        return covariance(U.unsqueeze(1), V.unsqueeze(1), self.lengthscale) * self.over_time(gap)

    def _with_held(self, U: Tensor, time: Tensor) -> Tensor:
        """Prior covariance of points (S, b, d) at times (S, b) with all observations, 0 if not held: (S, P, b, n)."""
        return self._prior(U, time, self.inputs, self.times) * self.held.unsqueeze(-2)

    def likeness(self, X: Tensor, Z: Tensor) -> Tensor:
        """Squared prior correlation of points X (S, b, d) with Z (k, d) at the same time, (S, P, b, k). It leaves out
        the unknown mean: a level that all points share carries no information about differences between them."""
        left, right = self.unit_cube(X).unsqueeze(1), self.unit_cube(Z).unsqueeze(-3)
        return (covariance(left, right, self.lengthscale) - CONSTANT).square()

    def of(self, member: Tensor) -> MemberPosterior:
        """The predictions of K members of each replicate, given their numbers (S, K)."""
        chosen = MemberPosterior()
        for name in ("bounds", "_low", "_side", "inputs", "times"):
            setattr(chosen, name, getattr(self, name))
        run = torch.arange(len(member), device=member.device).unsqueeze(-1)
        for name in ("held", "lengthscale", "noise_variance", "inverse", "weights"):
            setattr(chosen, name, getattr(self, name)[run, member])
        chosen.over_time = self.over_time.of(member)
        return chosen


class MemberMoments(torch.autograd.Function):
    """Mean and variance of ``PointMembers`` at points of the unit cube, (S, P, b) each.

        mu = k^T alpha,    v = k(x, x) - k^T A^{-1} k,    k_n = (1 + m(r_n)) k_T(tau_n) if n is held, otherwise 0.

    Backward, with g the gradients of mu and v, h_n = g_mu alpha_n - 2 g_v (A^{-1} k)_n, and m the Matern kernel of
    smoothness 5/2, m'(r) = -(r/3)(1 + r) e^{-r} at r = sqrt(5 sum_j (x_j - z_j)^2 / l_j^2):

        dx_j = sum_pn h_n k_T(tau_n) (-5/3) (1 + r_n) e^{-r_n} (x_j - z_nj) / l_j^2,
        dt   = sum_pn h_n (1 + m(r_n)) k_T'(tau_n).

    This takes a dozen operations on small tensors; autograd would take some sixty. The variance is at least 1e-10.

    Cost: O(S P b n^2). Only first derivatives, and only with respect to points and times.
    """

    @staticmethod
    def forward(ctx: Any, U: Tensor, time: Tensor, members: MemberPosterior) -> tuple[Tensor, Tensor]:
        """Points (S, b, d), times (S, b)."""
        lengthscale = members.lengthscale.unsqueeze(-2)
        points, held = U.unsqueeze(1) / lengthscale, members.inputs.unsqueeze(1) / lengthscale
        decay, tail, matern = matern_parts(points, held)
        gap = (time.unsqueeze(-1) - members.times.unsqueeze(-2)).unsqueeze(1)  # S x 1 x b x n
        over_time = members.over_time(gap) * members.held.unsqueeze(-2)
        in_space = CONSTANT + matern
        K = in_space * over_time
        explained = K @ members.inverse
        mean = (K @ members.weights.unsqueeze(-1)).squeeze(-1)
        variance = 1.0 + CONSTANT - (explained * K).sum(-1)
        ctx.save_for_backward(points, held, decay, tail, in_space, over_time, explained, gap, variance)
        ctx.over_time = members.over_time
        ctx.weights, ctx.lengthscale, ctx.where = members.weights, lengthscale, members.held
        return mean, variance.clamp_min(_LEAST_VARIANCE)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mean: Tensor, of_variance: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Gradients with respect to points and times."""
        points, held, decay, tail, in_space, over_time, explained, gap, variance = ctx.saved_tensors
        of_variance = of_variance * (variance > _LEAST_VARIANCE)
        h = of_mean.unsqueeze(-1) * ctx.weights.unsqueeze(-2) - (2 * of_variance).unsqueeze(-1) * explained
        dU = dt = None
        if ctx.needs_input_grad[0]:
            pull = h * over_time * (tail * decay)
            toward = pull @ held - pull.sum(-1, keepdim=True) * points
            dU = (5.0 / 3.0) * (toward / ctx.lengthscale).sum(1)
        if ctx.needs_input_grad[1]:
            slope = ctx.over_time.slope(gap) * ctx.where.unsqueeze(-2)
            dt = (h * in_space * slope).sum((1, -1))
        return dU, dt, None


@validation.names_arguments
class MemberMixture(SingleOutputModel):
    """A BoTorch model over [x, t] whose posterior is the mixture of the members' posteriors by their weights.

    Mean and variance are m / u and v / u^2 with

        m = o + sum w_p mu_p,    v = sum w_p (s_p v_p + (mu_p + o - m)^2).

    Differentiable in X, so any analytic acquisition function of BoTorch can be maximised over it.

    Args:
        members: P Gaussian processes in S replicates; the mixture's batch shape is (S,).
        weights: (S, P) w, which sum to 1 over P.
        scale: (S, P) s, the squared unit of each member.
        offset: (S,) o, added to the means.
        unit: (S,) u, the unit of the posterior, in the unit of the members' targets.
        pending: [z, t] of k pulls whose rewards are not known yet, (S, k, d + 1); None: there are none.

    Pending points Z leave the mean as it is. The variance becomes that of the best linear estimate given their rewards,
    v - K(x, Z) (K(Z, Z) + L I)^{-1} K(Z, x), with L = sum w_p s_p lambda_p, C_p the covariance of member p, and

        K(x, z) = sum w_p (s_p C_p(x, z) + (mu_p(x) + o - m(x)) (mu_p(z) + o - m(z))).

    Attributes:
        noise_variance: (S,) L / u^2, which ``observation_noise=True`` adds.

    Source: moments of a mixture. Raises ValueError for shapes that do not fit, and for X of more than one point.
    """

    def __init__(
        self,
        members: MemberPosterior,
        weights: Tensor,
        scale: Tensor,
        offset: Tensor,
        unit: Tensor,
        pending: Tensor | None = None,
    ) -> None:
        super().__init__()
        validation.instance("members", members, MemberPosterior, "PointMembers")
        both, alone = tuple(members.batch_shape), tuple(members.batch_shape[:1])
        validation.of_shape("weights", weights, both)
        validation.of_shape("scale", scale, both)
        validation.of_shape("offset", offset, alone)
        validation.of_shape("unit", unit, alone)
        self.members, self.weights, self.scale = members, weights, scale
        self.offset, self.unit = offset, unit
        noise = (weights * scale * members.noise_variance).sum(-1)
        self.noise_variance = noise / unit.square()
        self._pending: tuple[Tensor, Tensor, Tensor] | None = None
        if pending is not None:
            S, D = alone[0], members.dim + 1
            validation.of_shape("pending", pending, (S, "k", D), note=": points, time the last")
            Z, then = pending[..., :-1], pending[..., -1].double()
            with torch.no_grad():
                mean, _ = members.moments(Z, then)
                off = mean - weights.unsqueeze(-2) @ mean
                self._pending = Z, then, off
                A = self._between(Z, then, off)
                A = A + torch.diag_embed(noise.unsqueeze(-1).expand(A.shape[:-1]))
                self._root = torch.linalg.cholesky(A)

    @property
    def batch_shape(self) -> torch.Size:
        """(S,)."""
        return self.members.batch_shape[:1]

    def _posterior_at(self, X: Tensor, noise: float | Tensor) -> MarginalPosterior:
        """The mixture's mean and variance at X, ``t_batch x 1 x (d + 1)``, ``t_batch`` broadcast with (S,)."""
        ok = X.dim() >= 2 and X.shape[-2:] == (1, self.members.dim + 1)
        validation.shape_is("X", X, ok, f"t_batch x 1 x {self.members.dim + 1}: one point, time the last")
        # torch.broadcast_shapes would import sympy, which takes half a second.
        batch = np.broadcast_shapes(X.shape[:-2], self.batch_shape)
        points = X.squeeze(-2).expand(*batch, X.shape[-1]).reshape(-1, *batch[-1:], X.shape[-1]).movedim(0, 1)
        mean, variance = self.members.moments(points[..., :-1], points[..., -1].double())
        w = self.weights.unsqueeze(-2)
        centre = w @ mean
        spread = w @ (self.scale.unsqueeze(-1) * variance + (mean - centre).square())
        if self._pending is not None:
            cross = self._between(points[..., :-1], points[..., -1].double(), mean - centre)
            half = torch.linalg.solve_triangular(self._root, cross.mT, upper=False)
            spread = (spread - half.square().sum(-2).unsqueeze(-2)).clamp_min(0.0)
        unit = self.unit.unsqueeze(-1)
        mean = (centre.squeeze(-2) + self.offset.unsqueeze(-1)) / unit  # S x b
        variance = spread.squeeze(-2) / unit.square()
        mean, variance = (m.movedim(0, 1).reshape(*batch, 1) for m in (mean, variance))
        return MarginalPosterior(mean.to(X), (variance + noise).to(X))

    def _between(self, X: Tensor, time: Tensor, off: Tensor) -> Tensor:
        """K between points (S, b, d) and the pending ones, (S, b, k). ``off`` (S, P, b): the members' means at the
        points minus the mixture's mean."""
        assert self._pending is not None
        Z, then, off_there = self._pending
        covariance = self.scale[..., None, None] * self.members.between(X, time, Z, then)
        both = covariance + off.unsqueeze(-1) * off_there.unsqueeze(-2)
        return (self.weights[..., None, None] * both).sum(1)
