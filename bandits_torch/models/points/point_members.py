"""Many exact Gaussian processes over the same observed points, each with its own hyperparameters, of bounded size."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields
from typing import Any

import torch
from botorch.generation.gen import gen_candidates_scipy
from torch import Tensor
from torch.autograd.function import once_differentiable

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.hyperparameters import ANISOTROPY
from bandits_torch.models.points.member_posterior import (
    CONSTANT,
    FadingKernels,
    MemberPosterior,
    covariance,
    matern_parts,
    noisy,
)
from bandits_torch.state import HasState

_UNSEEN = 1e150  # the side of the box for an input with fewer than two observed values: it maps them all to 0


def without(values: Tensor, dropped: list[int] | None, dim: int) -> Tensor:
    """Values (S, ...) without entry ``dropped[s]`` of replicate s along ``dim``; all of them if ``dropped`` is None."""
    if dropped is None:
        return values
    rest = values.shape[dim] - 1
    along, runs = dim - 1, zip(values, dropped, strict=True)
    kept = [(run.narrow(along, 0, i), run.narrow(along, i + 1, rest - i)) for run, i in runs]
    return torch.stack([torch.cat(both, along) for both in kept])


def moved(matrix: Tensor, dropped: list[int] | None, column: Tensor) -> Tensor:
    """Symmetric matrices (S, P, n, n) with ``column`` as last row and column, without row and column ``dropped[s]`` of
    replicate s. Each block is copied once: ten times as fast as gathering rows and columns."""
    n = column.shape[-2]
    result = matrix.new_empty(*matrix.shape[:2], n, n)
    for run, i in enumerate(dropped or []):
        old, new = matrix[run], result[run]
        for row, at in ((slice(0, i), slice(0, i)), (slice(i + 1, n), slice(i, n - 1))):
            new[:, at, :i], new[:, at, i:-1] = old[:, row, :i], old[:, row, i + 1 :]
    if dropped is None:
        result[..., :-1, :-1] = matrix
    result[..., -1:] = column
    result[..., -1:, :] = column.mT
    return result


class PointMembers(MemberPosterior, HasState, Described):
    """P Gaussian processes over points and time, in S replicates, given the same points and times.

    The box of the domain is scaled to the unit cube. There member p has, in its unit of rewards, the prior

        Cov(f(x, t), f(x', t')) = (1 + k(x, x')) k_T(|t - t'|),    noise variance lambda,

    with k the Matern 5/2 kernel with one length-scale per coordinate, the 1 for an unknown mean, and k_T exponential
    forgetting, (1 - eps)^{tau / 2}, or Matern 3/2 if ``timescale`` is finite.

    At most ``capacity`` observations are held. A further one replaces one of the older half: the one with the least
    information about the current function, averaged over the members by their weights,

        1/2 ln(1 + rho^2 c / lambda),   rho = k_T(its age),   c = its variance given the others.

    Let s^2 be variances of the current function under a member whose hyperparameters do not change. Then

        (1 - rho^2) s^2_held <= s^2_all <= s^2_held,                     rho = (1 - eps)^{tau / 2},
        lambda / (lambda + c) s^2_without <= s^2_with <= s^2_without     for each dropped observation,

    with tau the age of the youngest dropped observation, at least the time of capacity / 2 observations. The first line
    holds for exponential forgetting and bounds the joint effect of all dropped observations; at eps = 0 its lower bound
    is 0. The second line holds for every k_T. If the member is the true model, the difference of the means is normal
    with variance s^2_held - s^2_all. (Derived: if P2 >= (1 - b) P1 for two posterior covariances, this still holds
    after both get the same observation, and time tau multiplies b by (1 - eps)^{tau}; b = 1 if the dropped observations
    determine everything. The second line is the Cauchy-Schwarz inequality.)

    Args:
        bounds: (2, d), the box.
        lengthscale: (P,), (P, 1) or (P, d), initial length-scales in the unit cube.
        noise_variance: (P,) initial lambda > 0, in units of the variance of k.
        forgetting_rate: (P,) eps in [0, 1), per unit of time.
        timescale: (P,) length-scale of the Matern kernel over time; infinity: exponential forgetting.
        replicates: S.
        capacity: at least 2.

    Attributes: those of ``MemberPosterior``, and
        targets: (S, P, n) the targets that each member was given.
        beginning: (P, d) and (P,), the initial length-scales and noise variances.
        in_space, prior: (S, P, n, n) 1 + k and (1 + k) k_T between all observed points.

    Source: Gaussian process regression (Rasmussen & Williams 2006, equations 2.25 and 2.26); the rule for dropping is
    ours.

    Cost: O(S P n^3) to observe, n <= capacity (a Cholesky factor and its inverse; only one row of kernels is computed);
    O(S P n^2) per point to predict. Memory O(S P n^2). Always float64.

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
        fits = validation.tensor("bounds", bounds).dim() == 2 and len(bounds) == 2 and bounds.shape[1] >= 1
        validation.shape_is("bounds", bounds, fits and bounds.is_floating_point(), "(2, d), floating point")
        validation.finite_tensor("bounds", bounds)
        validation.require(bool((bounds[0] <= bounds[1]).all()), "bounds", bounds, "[low, high], low <= high")
        validation.of_shape("forgetting_rate", forgetting_rate, ("P",), note=", a number for each member")
        d, P = bounds.shape[-1], len(forgetting_rate)
        self.replicates = validation.positive_integer("replicates", replicates)
        self.capacity = validation.positive_integer("capacity", capacity)
        validation.require(capacity >= 2, "capacity", capacity, "an integer >= 2")
        validation.of_shape("lengthscale", lengthscale, (P,), (P, 1), (P, d))
        wide = lengthscale.unsqueeze(-1) if lengthscale.dim() == 1 else lengthscale
        of_members = {"noise_variance": noise_variance, "timescale": timescale}
        for name, value in of_members.items():
            validation.of_shape(name, value, (P,), note=", a number for each member")
        for name, value in (("lengthscale", lengthscale), ("noise_variance", noise_variance)):
            ok = bool((value.isfinite() & (value > 0)).all())
            validation.require(ok, name, value, "finite and > 0")
        ok = bool(((forgetting_rate >= 0) & (forgetting_rate < 1)).all())
        validation.require(ok, "forgetting_rate", forgetting_rate, "in [0, 1)")
        validation.require(bool((timescale > 0).all()), "timescale", timescale, "numbers > 0")
        self.bounds = bounds.double()
        self._take_box(*self.bounds)
        self.forgetting_rate, self.timescale = forgetting_rate.double(), timescale.double()
        self.over_time = FadingKernels.from_rates(self.forgetting_rate, self.timescale)
        self.beginning = wide.double().expand(P, d).to(self.bounds), noise_variance.to(self.bounds)
        self._begin()

    def _take_box(self, low: Tensor, high: Tensor) -> None:
        self._low, self._side = low, torch.where(high > low, high - low, 1.0)

    targets: Tensor
    in_space: Tensor
    prior: Tensor

    @property
    def num_held(self) -> Tensor:
        """How many observations each member holds, (S, P)."""
        return self.held.sum(-1)

    @property
    def effective_rate(self) -> Tensor:
        """eps, (P,); for a smooth kernel over time, the rate of the exponential kernel with the same integral."""
        return self.over_time.effective_rate

    # -- learning --------------------------------------------------------------------------------------

    @torch.no_grad()
    def observe(
        self, x: Tensor, target: Tensor, time: float, weights: Tensor, where: Tensor | None = None
    ) -> None:
        """Learn one target per member, (S, P), at one point per replicate, (S, d). ``weights``, (S, P), of the members
        decide which observation is dropped. Only members with ``where``, broadcast to (S, P), hold the new one."""
        full = self.inputs.shape[1] == self.capacity
        dropped = None
        if full:
            older = self.capacity - self.capacity // 2
            information = (weights.unsqueeze(-1) * self.information(time)).sum(1)
            dropped = information[:, :older].argmin(-1).tolist()
        new, now = self.unit_cube(x.unsqueeze(1)), self.times.new_full((self.replicates, 1), time)
        holds = self.held.new_ones(self.batch_shape) if where is None else where.expand(self.batch_shape)
        self.inputs = torch.cat([without(self.inputs, dropped, 1), new], 1)
        self.times = torch.cat([without(self.times, dropped, 1), now], 1)
        self.targets = torch.cat([without(self.targets, dropped, 2), target.double().unsqueeze(-1)], 2)
        self.held = torch.cat([without(self.held, dropped, 2), holds.unsqueeze(-1)], 2)
        gap = (self.times[:, -1:] - self.times).unsqueeze(-1).unsqueeze(1)
        in_space = covariance(self.inputs.unsqueeze(1), new.unsqueeze(1), self.lengthscale)
        self.prior = moved(self.prior, dropped, in_space * self.over_time(gap))
        self.in_space = moved(self.in_space, dropped, in_space)
        self._factor()

    def information(self, time: float) -> Tensor:
        """1/2 ln(1 + rho^2 c / lambda) of every observation for every member, (S, P, n); 0 if it is not held."""
        noise = self.noise_variance.unsqueeze(-1)
        c = (1 / self.inverse.diagonal(dim1=-2, dim2=-1) - noise).clamp_min(0.0)
        age = (time - self.times)[:, None, None]
        rho = self.over_time(age).squeeze(-2)
        return 0.5 * torch.log1p(rho.square() * c / noise) * self.held

    @torch.no_grad()
    def rebuild(self, where: Tensor | None = None) -> None:
        """Compute kernels and factors again; with ``where`` (S, P), kernels of those members alone, for the same n.
        Factors are always computed in one batch: loading a state does so, and the last bits depend on the batch."""
        gap = self.times.unsqueeze(-1) - self.times.unsqueeze(-2)
        if where is None:
            points = self.inputs.unsqueeze(1)
            self.in_space = covariance(points, points, self.lengthscale)
            self.prior = self.in_space * self.over_time(gap.unsqueeze(1))
        else:
            run, member = where.nonzero(as_tuple=True)
            points, gap = self.inputs[run], gap[run]
            in_space = covariance(points, points, self.lengthscale[run, member])
            self.in_space[run, member] = in_space
            self.prior[run, member] = in_space * self.over_time.of(member)(gap)
        self._factor()

    def _factor(self) -> None:
        A = noisy(self.prior, self.held, self.noise_variance)
        self.inverse = torch.cholesky_inverse(torch.linalg.cholesky(A))
        self.weights = (self.inverse @ (self.targets * self.held).unsqueeze(-1)).squeeze(-1)

    def means_held(self, time: float) -> Tensor:
        """Mean at ``time`` at every observed point, (S, P, n). O(S P n^2)."""
        age = (time - self.times)[:, None, :, None]
        weights = (self.held * self.weights).unsqueeze(-1)
        return (self.in_space @ (self.over_time(age) * weights)).squeeze(-1)

    @property
    def squares(self) -> Tensor:
        """y^T (K + lambda I)^{-1} y of the observations held, (S, P): the sum of squared standardised errors."""
        return (self.targets * self.held * self.weights).sum(-1)

    def adopt(self, where: Tensor, lengthscale: Tensor, noise_variance: Tensor) -> None:
        """Set the hyperparameters, (S, P, d) and (S, P), of members with ``where`` (S, P) True."""
        self.lengthscale = torch.where(where.unsqueeze(-1), lengthscale, self.lengthscale)
        self.noise_variance = torch.where(where, noise_variance, self.noise_variance)
        self.rebuild(where)

    def follow(self, where: Tensor, leader: Tensor) -> Tensor:
        """Members with ``where`` (S, P) True become copies of ``leader`` (S,), except for their kernel over time.

        Those with a smaller ``effective_rate`` than the leader lose all observations; returns which, (S, P) booleans.
        """
        run = torch.arange(self.replicates, device=leader.device)
        for name in ("lengthscale", "noise_variance", "targets", "held"):
            value = getattr(self, name)
            mask = where.reshape(*where.shape, *[1] * (value.dim() - 2))
            setattr(self, name, torch.where(mask, value[run, leader].unsqueeze(1), value))
        emptied = where & (self.effective_rate < self.effective_rate[leader].unsqueeze(-1))
        self.held = self.held & ~emptied.unsqueeze(-1)
        self.rebuild(where)
        return emptied

    def _fresh(self) -> dict[str, Tensor]:
        lengthscale, noise = (value.expand(self.replicates, *value.shape).clone() for value in self.beginning)
        zeros, shape = self.bounds.new_zeros, noise.shape
        return {
            "inputs": zeros(shape[0], 0, self.dim),
            "times": zeros(shape[0], 0),
            "targets": zeros(*shape, 0),
            "held": zeros(*shape, 0).bool(),
            "lengthscale": lengthscale,
            "noise_variance": noise,
        }

    def state_changed(self) -> None:
        """Kernels and factors are computed again."""
        self.rebuild()

    def reset(self, where: Tensor | None = None) -> None:
        """Back to the initial state, hyperparameters too; with ``where`` (S,), only in those replicates."""
        if where is None:
            self._begin()
            return
        members, fresh = where.unsqueeze(-1).expand(self.batch_shape), self._fresh()
        self.held = self.held & ~members.unsqueeze(-1)
        self.adopt(members, fresh["lengthscale"], fresh["noise_variance"])


class WideningMembers(PointMembers):
    """``PointMembers`` without a known box: each replicate has the smallest box around the points it observed.

    When the box widens, the observed points do not move, and length-scales refer to the new box, because they are
    fractions of the inputs' ranges. An input has no effect before its second value. ``reset(where)`` keeps the box.

    Args:
        known: (d,) booleans, the inputs whose ``bounds`` are known; the bounds of others are ignored.
        bounds and others: see ``PointMembers``.

    Attributes:
        low, high: (S, 1, d), the current box; infinite before the first observation of an input.

    Cost: another O(S P n^3) when the box widens. Source: as ``PointMembers``. Raises ValueError as it does.
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        known: Tensor,
        bounds: Tensor,
        lengthscale: Tensor,
        noise_variance: Tensor,
        forgetting_rate: Tensor,
        timescale: Tensor,
        *,
        replicates: int = 1,
        capacity: int = 200,
    ) -> None:
        inputs = validation.tensor("bounds", bounds).shape[1:]
        fits = validation.tensor("known", known).shape == inputs and known.dtype == torch.bool
        validation.shape_is("known", known, fits, f"{tuple(inputs)}, booleans")
        self.known = known
        grid = lengthscale, noise_variance, forgetting_rate, timescale
        super().__init__(bounds, *grid, replicates=replicates, capacity=capacity)

    def observe(
        self, x: Tensor, target: Tensor, time: float, weights: Tensor, where: Tensor | None = None
    ) -> None:
        """See ``PointMembers``. If the point is outside the box, the box widens first."""
        at, raw = x.double().unsqueeze(1), self.points
        wider = ((at < self.low) | (at > self.high)).any(-1, keepdim=True)
        if bool(wider.any()):
            self.low, self.high = torch.minimum(self.low, at), torch.maximum(self.high, at)
            self._take_box(self.low, self.high)
            self.inputs = torch.where(wider, self.unit_cube(raw), self.inputs)
            self.rebuild()
        super().observe(x, target, time, weights, where)

    def _take_box(self, low: Tensor, high: Tensor) -> None:
        self._low = torch.where(low.isfinite(), low, 0.0)
        self._side = torch.where(high > low, high - low, _UNSEEN)

    def _fresh(self) -> dict[str, Tensor]:
        members = super()._fresh()
        low, high = self.bounds.unsqueeze(1).expand(2, self.replicates, -1).unsqueeze(-2)
        unknown = {"low": low.where(self.known, torch.inf), "high": high.where(self.known, -torch.inf)}
        return members | unknown

    def state_changed(self) -> None:
        """The box, kernels and factors are computed again."""
        self._take_box(self.low, self.high)
        super().state_changed()


_LENGTHSCALES = math.log(0.03), math.log(10.0)
_NOISES = math.log(1e-4), math.log(3.0)
_NOISE_PRIOR = -4.0, 1.0  # mean and deviation of ln lambda, those of BoTorch
_LEAST_SQUARES = 1e-290  # of the targets: the inverse of a smaller sum may overflow


@dataclass(frozen=True)
class HeldRows:
    """The observations of b members: points (b, n, d) of the unit cube, targets (b, n), which of them are held, (b, n),
    and k_T between all, (b, n, n)."""

    inputs: Tensor
    targets: Tensor
    held: Tensor
    over_time: Tensor

    @classmethod
    def of(cls, members: PointMembers, row: Tensor) -> HeldRows:
        """The observations of the members with numbers s P + p in ``row`` (b,)."""
        P = members.batch_shape[1]
        s, p = row // P, row % P
        gap = members.times[s].unsqueeze(-1) - members.times[s].unsqueeze(-2)
        return cls(members.inputs[s], members.targets[s, p], members.held[s, p], members.over_time.of(p)(gap))

    def at(self, place: Tensor) -> HeldRows:
        """The observations of the members at positions ``place`` (c,)."""
        return HeldRows(*(getattr(self, field.name)[place] for field in fields(self)))


def log_posterior(theta: Tensor, rows: HeldRows) -> Tensor:
    """ln p(y | theta) + ln p(theta), up to a constant, (b,).

    With A = K + lambda I over the n targets y that the member holds, and its unit at the maximum of the likelihood,

        ln p(y | theta) = -1/2 ln det A - n/2 ln(y^T A^{-1} y / n).

    The priors are BoTorch's: ln l is normal with mean sqrt(2) + 1/2 ln d and deviation sqrt(3) (Hvarfner et al. 2024),
    ln lambda with mean -4 and deviation 1. p(theta) is the density of l and lambda, not of their logarithms, so the
    mode of l is exp(sqrt(2) - 3) sqrt(d). In addition, each ln l is normal about the mean of all with deviation 0.3.

    Args:
        theta: (b, d + 1), logarithms of length-scales and noise variance.
        rows: the observations of b members, one for each row of theta.
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
    """ln p(y | theta) of ``log_posterior``, (b,), with a closed-form gradient and no second derivatives.

    With M = n alpha alpha^T / (2 y^T alpha) - A^{-1} / 2 and alpha = A^{-1} y (Rasmussen & Williams 2006, equation 5.9,
    with the unit at the maximum), and r = sqrt(5) times the scaled distances between the points,

        d/d ln lambda = lambda sum_i M_ii,
        d/d ln l_j = sum_nm W_nm (u_nj - u_mj)^2,   W = (5/3) M k_T (1 + r) e^{-r},   u = x / l.

    No Cholesky factor is differentiated.
    """

    @staticmethod
    def forward(ctx: Any, theta: Tensor, rows: HeldRows) -> Tensor:
        """The value at theta (b, d + 1) for the observations of b members."""
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
        """The gradient with respect to theta."""
        L, z, u, noise, held, n, squares, slope = ctx.saved_tensors
        alpha = torch.linalg.solve_triangular(L.mT, z, upper=True)
        share = 0.5 * n / squares.clamp_min(_LEAST_SQUARES)
        M = share[:, None, None] * (alpha @ alpha.mT) - 0.5 * torch.cholesky_inverse(L)
        of_noise = noise * (M.diagonal(dim1=-2, dim2=-1) * held).sum(-1)
        W = (5.0 / 3.0) * M * slope  # M is 0 between a point that is not held and every other point
        of_lengths = 2 * (W.sum(-1, keepdim=True) * u.square() - u * (W @ u)).sum(-2)
        gradient = torch.cat([of_lengths, of_noise.unsqueeze(-1)], -1)
        return of_value.unsqueeze(-1) * gradient, None


def refine(members: PointMembers, chosen: Tensor, like: Tensor, rounds: int) -> Tensor:
    """Likelier hyperparameters for some members of each replicate, theta (S, K, d + 1) as in ``log_posterior``.

    For each member one search (L-BFGS-B, at most ``rounds`` iterations) starts at its current hyperparameters and
    another at those of ``like``; for ``like`` itself at its initial ones. The best of both results and the present
    hyperparameters is returned, within bounds: length-scales in [0.03, 10], noise in [1e-4, 3]. The searches do not
    depend on each other. A member whose targets are all 0 does not change.

    Args:
        chosen: (S, K) member numbers.
        like: (S,) the number of one member.

    Cost: O(S K n^3) per iteration.
    """
    S, P = members.batch_shape
    rows = (chosen + P * torch.arange(S, device=chosen.device).unsqueeze(-1)).reshape(-1)
    low, high = members.bounds.new_tensor([*[_LENGTHSCALES] * members.dim, _NOISES]).T  # bounds of theta
    theta = _logarithms(members.lengthscale, members.noise_variance).clamp(low, high)
    present = theta.reshape(S * P, -1)[rows]
    others = theta[torch.arange(S, device=like.device), like].repeat_interleave(chosen.shape[1], 0)
    initial = _logarithms(*members.beginning).clamp(low, high)[chosen.reshape(-1)]
    others = torch.where((chosen == like.unsqueeze(-1)).reshape(-1, 1), initial, others)
    start = torch.cat([present, others])
    held, D = HeldRows.of(members, rows), theta.shape[-1]
    place = torch.arange(len(rows), device=rows.device).repeat(2).to(theta)
    active, active_rows = place[:0], held

    def value(X: Tensor) -> Tensor:
        nonlocal active, active_rows
        if not torch.equal(X[:, 0, D], active):  # BoTorch leaves out searches that have ended
            active = X[:, 0, D].detach().clone()
            active_rows = held.at(active.long())
        return log_posterior(X[:, 0, :D], active_rows)

    # Warnings say that ``maxiter`` is reached or that a line search failed.
    with warnings.catch_warnings(record=True), torch.enable_grad():
        found, _ = gen_candidates_scipy(
            torch.cat([start, place.unsqueeze(-1)], -1).unsqueeze(1),
            value,  # type: ignore[arg-type]
            torch.cat([low, low.new_zeros(1)]),
            torch.cat([high, high.new_full((1,), float(len(rows)))]),
            options={"maxiter": rounds},
            fixed_features={D: place},
        )
    with torch.no_grad():
        tried = torch.stack([present, *found[:, 0, :D].chunk(2)])  # 3 x SK x D
        values = torch.stack([log_posterior(t, held) for t in tried])
        best = values.nan_to_num(nan=-torch.inf).argmax(0) * (held.targets * held.held).any(-1)
    return tried[best, torch.arange(len(rows), device=best.device)].reshape(*chosen.shape, D)


def _logarithms(lengthscale: Tensor, noise_variance: Tensor) -> Tensor:
    """theta of ``log_posterior``, ``... x (d + 1)``."""
    return torch.cat([lengthscale.log(), noise_variance.log().unsqueeze(-1)], -1)
