"""Many exact Gaussian processes over the same observed points, each with its own hyperparameters, of bounded size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.algebra.cholesky import bordered
from bandits_torch.models.points.member_kernels import covariance, fading, noisy
from bandits_torch.models.points.member_moments import MemberMoments

_STATE = ("inputs", "times", "targets", "held", "lengthscale", "noise_variance")


class PointMembers(Described):
    """P Gaussian processes over points and time, S replicates of each, from the same observations.

    Member p has, on the unit cube that the domain's box is scaled to, in a unit of its own,

        Cov(f(x, t), f(x', t')) = (1 + k(x, x')) k_T(|t - t'|),    noise variance lambda,

    with k the Matern kernel of smoothness 5/2 with a length-scale for each coordinate, the 1 an unknown mean, and k_T
    exponential forgetting, (1 - eps)^{tau / 2}, or, where ``timescale`` is finite, the Matern kernel of smoothness 3/2.

    At most ``capacity`` observations are held. Where there are more, one of the older half is dropped: the one with the
    least information about the function as it is now, on average over the members by their weights,

        1/2 ln(1 + rho^2 c / lambda),   rho = k_T(its age),   c = its variance given the others.

    What that costs a member whose hyperparameters stay, for variances s^2 of the function now:

        (1 - rho^2) s^2_held <= s^2_all <= s^2_held,                     rho = (1 - eps)^{tau / 2},
        lambda / (lambda + c) s^2_without <= s^2_with <= s^2_without     for each one dropped,

    with tau the age of the youngest that was dropped, at least the time of capacity / 2 observations. The first is for
    exponential forgetting and bounds what all that were dropped could tell together; the second is for every k_T, and
    at eps = 0 the only one. Where the member is right the means differ by normal numbers, variance s^2_held - s^2_all.
    (Derived: posterior covariances P2 >= (1 - b) P1 stay so while both observe the same, and time makes b less by
    (1 - eps)^{tau}; b = 1 where the dropped could tell all. The second is Cauchy and Schwarz's inequality.)

    Args:
        bounds: (2, d), the box.
        lengthscale: (P,) or (P, d), of the unit cube, where members begin.
        noise_variance: (P,) lambda > 0 in units of k, where members begin.
        forgetting_rate: (P,) eps in [0, 1), per unit of time.
        timescale: (P,) length-scale of the Matern kernel over time; infinity: exponential forgetting.
        replicates: S.
        capacity: at least 2.

    Attributes:
        inputs: (S, n, d) of the unit cube, oldest first by arrival; times: (S, n).
        targets: (S, P, n) what each member learned; held: booleans, whether it still holds it.
        lengthscale: (S, P, d); noise_variance: (S, P).
        beginning: (P, d) and (P,), what both were at first.
        in_space, in_time: (S, P, n, n) 1 + k and k_T between all points observed.
        inverse, weights: A^{-1}, (S, P, n, n), and A^{-1} y, (S, P, n), of A = K + lambda I over what is held.

    Source: Gaussian process regression (Rasmussen & Williams 2006, equations 2.25 and 2.26); what is dropped is ours.

    Cost: O(S P n^3) to observe, n <= capacity (a Cholesky factor and the inverse from it; of the kernels one row is
    computed); O(S P n^2) a point to predict. Memory O(S P n^2). Always float64.

    Raises ValueError for shapes that do not fit and numbers out of range.
    """

    def __init__(
        self,
        bounds: Tensor,
        lengthscale: Tensor,
        noise_variance: Tensor,
        forgetting_rate: Tensor,
        timescale: Tensor,
        *,
        replicates: int = 1,
        capacity: int = 200,
    ) -> None:
        fits = (
            validation.tensor("bounds", bounds).dim() == 2 and bounds.shape[0] == 2 and bounds.shape[1] >= 1
        )
        validation.shape_is("bounds", bounds, fits and bounds.is_floating_point(), "(2, d), floating point")
        validation.finite_tensor("bounds", bounds)
        validation.require(bool((bounds[0] <= bounds[1]).all()), "bounds", bounds, "increasing")
        one = validation.tensor("forgetting_rate", forgetting_rate).dim() == 1
        validation.shape_is("forgetting_rate", forgetting_rate, one, "(P,), a number for each member")
        d, P = bounds.shape[-1], len(forgetting_rate)
        self.replicates = validation.positive_integer("replicates", replicates)
        self.capacity = validation.positive_integer("capacity", capacity)
        validation.require(capacity >= 2, "capacity", capacity, "an integer >= 2")
        wide = (
            lengthscale.unsqueeze(-1)
            if validation.tensor("lengthscale", lengthscale).dim() == 1
            else lengthscale
        )
        validation.shape_is(
            "lengthscale", lengthscale, wide.shape in ((P, 1), (P, d)), f"({P},) or ({P}, {d})"
        )
        for name, value in (("noise_variance", noise_variance), ("timescale", timescale)):
            validation.shape_is(
                name, value, validation.tensor(name, value).shape == (P,), f"({P},), a number for each member"
            )
        for name, value in (("lengthscale", lengthscale), ("noise_variance", noise_variance)):
            ok = bool((value.isfinite() & (value > 0)).all())
            validation.require(ok, name, value, "finite and > 0")
        ok = bool(((forgetting_rate >= 0) & (forgetting_rate < 1)).all())
        validation.require(ok, "forgetting_rate", forgetting_rate, "in [0, 1)")
        validation.require(bool((timescale > 0).all()), "timescale", timescale, "numbers > 0")
        self.bounds = bounds.double()
        side = self.bounds[1] - self.bounds[0]
        self._side = torch.where(side > 0, side, 1.0)
        self.forgetting_rate, self.timescale = forgetting_rate.double(), timescale.double()
        self.smooth = self.timescale.isfinite()
        decay = -0.5 * torch.log1p(-self.forgetting_rate)
        self._decay = torch.where(self.smooth, math.sqrt(3) / self.timescale, decay)
        self.beginning = wide.double().expand(P, d).to(self.bounds), noise_variance.to(self.bounds)
        self.reset()

    # -- what it is ------------------------------------------------------------------------------------

    inputs: Tensor
    times: Tensor
    targets: Tensor
    held: Tensor
    lengthscale: Tensor
    noise_variance: Tensor
    in_space: Tensor
    in_time: Tensor
    inverse: Tensor
    weights: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """(S, P)."""
        return torch.Size((self.replicates, len(self.forgetting_rate)))

    @property
    def dim(self) -> int:
        """d."""
        return self.bounds.shape[-1]

    @property
    def num_held(self) -> Tensor:
        """How many observations each member holds, (S, P)."""
        return self.held.sum(-1)

    @property
    def effective_rate(self) -> Tensor:
        """eps, (P,); of a smooth kernel over time that of the exponential one with the same integral."""
        return -torch.expm1(-torch.where(self.smooth, self._decay, 2 * self._decay))

    def unit_cube(self, X: Tensor) -> Tensor:
        """Points ``... x d`` of the box, scaled to the unit cube."""
        return (X.double() - self.bounds[0]) / self._side

    def over_time(self, gap: Tensor) -> Tensor:
        """k_T of gaps ``(S, P, ...)`` (a 1 in place of P: the same for all)."""
        shape = (-1, *[1] * (gap.dim() - 2))
        return fading(gap, self._decay.reshape(shape), self.smooth.reshape(shape))

    def over_time_slope(self, gap: Tensor) -> Tensor:
        """The derivative of k_T by the gap, of gaps as in ``over_time``: -c sign(tau) e^{-r} or, smooth, -c r sign(tau)
        e^{-r}, with r = c |tau|."""
        shape = (-1, *[1] * (gap.dim() - 2))
        c, smooth = self._decay.reshape(shape), self.smooth.reshape(shape)
        r = c * gap.abs()
        return -c * gap.sign() * torch.where(smooth, r, 1.0) * (-r).exp()

    # -- predicting ------------------------------------------------------------------------------------

    def moments(self, X: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Mean, and variance in the member's squared unit, of points (S, b, d) at times (S, b): (S, P, b) each."""
        mean, variance = MemberMoments.apply(self.unit_cube(X), time, self)
        return mean, variance

    def between(self, X: Tensor, time: Tensor, Z: Tensor, then: Tensor) -> Tensor:
        """Posterior covariance of points X (S, b, d) at times (S, b) with Z (S, k, d) at (S, k): (S, P, b, k)."""
        prior = covariance(self.unit_cube(X).unsqueeze(1), self.unit_cube(Z).unsqueeze(1), self.lengthscale)
        gap = time.unsqueeze(-1) - then.unsqueeze(-2)
        told = self._with_held(X, time) @ self.inverse @ self._with_held(Z, then).mT
        return prior * self.over_time(gap.unsqueeze(1)) - told

    def _with_held(self, X: Tensor, time: Tensor) -> Tensor:
        """Prior covariance of points (S, b, d) at times (S, b) with what is held, (S, P, b, n)."""
        prior = covariance(self.unit_cube(X).unsqueeze(1), self.inputs.unsqueeze(1), self.lengthscale)
        gap = time.unsqueeze(-1) - self.times.unsqueeze(-2)  # S x b x n
        return prior * self.over_time(gap.unsqueeze(1)) * self.held.unsqueeze(-2)

    # -- learning --------------------------------------------------------------------------------------

    @torch.no_grad()
    def observe(self, x: Tensor, target: Tensor, time: float, weights: Tensor) -> None:
        """Learn one target per member, (S, P), of one point per replicate, (S, d); ``weights``: (S, P), of members."""
        if self.inputs.shape[1] == self.capacity:
            self._drop(time, weights)
        now = self.times.new_full((self.replicates, 1), time)
        self.inputs = torch.cat([self.inputs, self.unit_cube(x).unsqueeze(1)], 1)
        self.times = torch.cat([self.times, now], 1)
        self.targets = torch.cat([self.targets, target.double().unsqueeze(-1)], -1)
        self.held = torch.cat([self.held, self.held.new_ones(*self.batch_shape, 1)], -1)
        points, latest = self.inputs.unsqueeze(1), self.inputs[:, None, -1:]
        gap = (self.times[:, -1:] - self.times).unsqueeze(1)
        in_space, in_time = covariance(points, latest, self.lengthscale), self.over_time(gap).unsqueeze(-1)
        for name, column in (("in_space", in_space), ("in_time", in_time)):
            before, own = column[..., :-1, :], column[..., -1:, :]
            setattr(self, name, bordered(getattr(self, name), before, before.mT, own))
        self.inverse, self.weights = self._factored(...)

    def information(self, time: float) -> Tensor:
        """1/2 ln(1 + rho^2 c / lambda) of every observation for every member, (S, P, n); 0 where it is not held."""
        noise = self.noise_variance.unsqueeze(-1)
        c = (1 / self.inverse.diagonal(dim1=-2, dim2=-1) - noise).clamp_min(0.0)
        rho = self.over_time((time - self.times).unsqueeze(1))
        return 0.5 * torch.log1p(rho.square() * c / noise) * self.held

    def _drop(self, time: float, weights: Tensor) -> None:
        """Drop the observation of the older half that tells least."""
        n = self.inputs.shape[1]
        told = (weights.unsqueeze(-1) * self.information(time)).sum(1)[:, : n - n // 2]
        left = torch.arange(n - 1, device=told.device) + (
            torch.arange(n - 1, device=told.device) >= told.argmin(-1, keepdim=True)
        )
        self.times = self.times.gather(1, left)
        self.inputs = self.inputs.gather(1, left.unsqueeze(-1).expand(-1, -1, self.dim))
        of_members = left.unsqueeze(1).expand(-1, self.batch_shape[1], -1)
        self.targets, self.held = self.targets.gather(-1, of_members), self.held.gather(-1, of_members)
        row, column = of_members.unsqueeze(-1), of_members.unsqueeze(-2).expand(-1, -1, n - 1, -1)
        for name in ("in_space", "in_time"):
            rows = getattr(self, name).gather(-2, row.expand(-1, -1, -1, n))
            setattr(self, name, rows.gather(-1, column))

    @torch.no_grad()
    def rebuild(self, where: Tensor | None = None) -> None:
        """Factor anew, after observations or hyperparameters changed; with ``where`` (S, P), in those members alone,
        which hold as many observations as they did."""
        if where is None:
            points = self.inputs.unsqueeze(1)
            self.in_space = covariance(points, points, self.lengthscale)
            gap = (self.times.unsqueeze(-1) - self.times.unsqueeze(-2)).unsqueeze(1)
            self.in_time = self.over_time(gap)
            self.inverse, self.weights = self._factored(...)
            return
        run, member = where.nonzero(as_tuple=True)
        points = self.inputs[run]
        self.in_space[run, member] = covariance(points, points, self.lengthscale[run, member])
        self.inverse[run, member], self.weights[run, member] = self._factored((run, member))

    def _factored(self, which: Any) -> tuple[Tensor, Tensor]:
        """A^{-1} and A^{-1} y of the members that this index (run, member) chooses; of all: ``...``."""
        held = self.held[which]
        A = noisy(self.in_space[which] * self.in_time[which], held, self.noise_variance[which])
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(A))
        return inverse, (inverse @ (self.targets[which] * held).unsqueeze(-1)).squeeze(-1)

    def means_held(self, time: float) -> Tensor:
        """Mean at ``time`` of every point observed, (S, P, n). O(S P n^2)."""
        over_time = self.over_time((time - self.times).unsqueeze(1)) * self.held
        return (self.in_space @ (over_time * self.weights).unsqueeze(-1)).squeeze(-1)

    @property
    def squares(self) -> Tensor:
        """y^T (K + lambda I)^{-1} y of what is held, (S, P): the sum of the squares of standardised errors."""
        return (self.targets * self.held * self.weights).sum(-1)

    def adopt(self, where: Tensor, lengthscale: Tensor, noise_variance: Tensor) -> None:
        """Take these hyperparameters, (S, P, d) and (S, P), in the members with ``where`` (S, P) True."""
        self.lengthscale = torch.where(where.unsqueeze(-1), lengthscale, self.lengthscale)
        self.noise_variance = torch.where(where, noise_variance, self.noise_variance)
        self.rebuild(where)

    def follow(self, where: Tensor, leader: Tensor) -> Tensor:
        """Members with ``where`` (S, P) True become what ``leader`` (S,) is but for their kernel over time.

        Those that remember longer than it, by ``effective_rate``, hold nothing any more: (S, P) booleans, returned.
        """
        run = torch.arange(self.replicates, device=leader.device)
        for name in ("lengthscale", "noise_variance", "targets", "held"):
            own = getattr(self, name)
            mask = where.reshape(*where.shape, *[1] * (own.dim() - 2))
            setattr(self, name, torch.where(mask, own[run, leader].unsqueeze(1), own))
        anew = where & (self.effective_rate < self.effective_rate[leader].unsqueeze(-1))
        self.held = self.held & ~anew.unsqueeze(-1)
        self.rebuild(where)
        return anew

    def reset(self, where: Tensor | None = None) -> None:
        """Back to the start, hyperparameters too; with ``where`` (S,), in those replicates."""
        shape = self.batch_shape
        lengthscale, noise = (value.expand(shape[0], *value.shape).clone() for value in self.beginning)
        if where is not None:
            all_members = where.unsqueeze(-1).expand(shape)
            self.held = self.held & ~all_members.unsqueeze(-1)
            self.adopt(all_members, lengthscale, noise)
            return
        zeros = self.bounds.new_zeros
        self.inputs, self.times = zeros(shape[0], 0, self.dim), zeros(shape[0], 0)
        self.targets = zeros(*shape, 0)
        self.held = self.targets.bool()
        self.lengthscale, self.noise_variance = lengthscale, noise
        self.rebuild()

    # -- state -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Observations and hyperparameters."""
        return {name: getattr(self, name).clone() for name in _STATE}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the members that gave ``state`` stood."""
        for name in _STATE:
            setattr(self, name, state[name].clone())
        self.rebuild()
