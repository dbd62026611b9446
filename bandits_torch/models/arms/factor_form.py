"""Exact posterior over N arms as the prior minus a low-rank term over the points observed: no N x N matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch.models.arms.covariance_form import (
    Books,
    column_error,
    count_removed,
    is_off,
    posterior_of_counts,
)
from bandits_torch.models.arms.observation_buffer import ObservedPoints
from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.online_model import empty


def half_log1p(ratio: Tensor, where: Tensor | None) -> Tensor:
    """1/2 ln(1 + ratio) for ratio (b, 1), as (b,), and 0 where ``where`` is False: the gain of one observation."""
    gain = torch.log1p(ratio).mul_(0.5).squeeze(-1)
    return gain if where is None else gain * where


class FactorForm(ObservedPoints):
    """State of ``ArmGP`` over n distinct observed points, for b flattened batch members.

    A point is an arm at a time (at any time, when the prior is static), observed ``count`` times with
    residuals (reward - prior mean) summing to ``total``. The state is the posterior covariance P among the points: the
    covariance form, restricted to where there are data. Let D = lambda / count, w_s the time kernel between the point's
    time and now, p = its value between now and now, and G_s = K(x_s, arms). Then

        C_i = p K_i - G^T (w z),   z = (K_points + D)^{-1} k_i  =  P_j / D when i is point j already.

    So the column of any arm costs O(uN + n^2), u the number of distinct arms pulled. Then, as in
    ``CovarianceForm``, with s = C_ii + lambda:

        mean += C_i (y - mean_i) / s,   variance -= C_i^2 / s,   P -= P_i P_i^T / s,

    where a new point first gets its row P_i = D z, P_ii = C_ii. Removing one observation of point j:

        mean -= C_j (y - E_j) / s,   variance += C_j^2 / s,   P += P_j P_j^T / s,   s = lambda - P_jj,

    with E = P total / lambda the smoothed values at the points; a point without observations is dropped.
    Past values do not move, so P needs no update as time passes, and removal is exact under drift too.

    Numerics: every update of P contracts, P keeps its relative precision (products, no differences, at
    new points), and z for a new point takes one step of iterative refinement, because (k - P D^{-1} k) / D
    alone would lose k / lambda of machine precision.

    Advantages over keeping the rows W = L^{-1} K(X_t, arms): G is stored once per distinct arm and shared by all
    replicates, repeated pulls add no row, and an observation is removed without Givens rotations through W.

    Rounding, measured after 20 000 steps in float64: 2e-11 at lambda = 1e-4 of the prior variance, 7e-6 at 1e-6 (the
    covariance form: 1e-11), until ``mend`` sees it and rebuilds. In float32 P would lose all its digits after some
    thousand pulls of few arms, so everything here is float64, including the prior's rows, whatever the model's dtype.

    Cost of a step: reads u N numbers of G (once for all replicates), reads n^2 three times and writes it
    once for each member. Memory O(q u N + b n^2). Under a fading time kernel points whose correlation with
    the present is below 1e-12 are dropped, so n stops growing at about 55 / forgetting_rate points. With
    ``keeps_faint_points``, for models that forget, no point is dropped: an observation must be held to be removed from
    the gain.
    """

    mean: Tensor
    variance: Tensor
    gain: Tensor
    surprise: Tensor
    removed: Tensor  # (b,), surprise removed since the last rebuild
    suspect: Tensor  # (b,), whether a removal since then has cost too many figures, so that a rebuild is due
    noise_variance: Tensor

    def __init__(self, prior: ArmPrior, batch: int, noise_variance: Tensor) -> None:
        diagonal = prior.in_double().diagonal()
        super().__init__(prior, diagonal, batch)
        self.register_buffer("noise_variance", noise_variance.double().clone(), persistent=False)
        q, n = diagonal.shape
        new = diagonal.new_zeros
        self.register_buffer("prior_variance", diagonal.repeat(batch // q, 1))
        self.prior_variance: Tensor
        self.register_buffer("mean", new(batch, n))
        self.register_buffer("variance", self.prior_variance.clone())
        self.register_buffer("gain", new(batch))
        self.register_buffer("surprise", new(batch))
        self.register_buffer("removed", torch.zeros_like(self.gain))
        self.register_buffer("suspect", torch.zeros_like(self.gain, dtype=torch.bool))
        self.register_buffer("_every", torch.ones_like(self.suspect), persistent=False)
        self._every: Tensor
        self._measure_depth()

    # -- the three moves ------------------------------------------------------------------------------

    def advance(self, kept: Tensor, gained: Tensor) -> None:
        """Let time pass: f <- kept * f + independent GP of covariance gained * K; both (b, 1) or (1, 1)."""
        self.mean.mul_(kept)
        self.variance.mul_(kept * kept).addcmul_(self.prior_variance, gained)

    def add(self, arm: Tensor, residual: Tensor, now: float, where: Tensor | None = None) -> None:
        """Observe y - prior mean = ``residual`` (b,) at ``arm`` (b,) at time ``now``."""
        residual = residual.double()
        self._make_room(arm, now)
        match = self._match(arm, now)
        known, point = match.any(-1), match.to(torch.uint8).argmax(-1)
        own_row = self.rows.of(arm, self._member)  # K_i: (b, N)
        told = known  # of these P_jj is known, of others it is what the column says
        deep, weight = self._deep(now), self._weights(now)
        if self.blind or not arm.is_cpu or not bool(known.all()):
            point, told = self._open_points(arm, own_row, known, point, now, weight, deep)
        at, at_point = arm.unsqueeze(-1), point.unsqueeze(-1)
        present = self.prior.present(now)
        weight = weight.scatter(-1, at_point, present.expand(at.shape))
        among_points = self.covariance[self._member, point]  # P_j
        own = among_points.gather(-1, at_point)  # P_jj: read, not derived, or rounding would feed back
        z = among_points * (self.point_count / self.noise_variance)
        column = own_row if self.prior.time_kernel is None else own_row * present
        column = self._minus_through(column, z * weight)
        wanders = deep if self._wanders else None
        if wanders is not None:
            time = torch.full_like(at, now, dtype=z.dtype)
            column = self._column_since(column, among_points, z, own_row, time, now, wanders)
        variance = torch.where(told.unsqueeze(-1), own, column.gather(-1, at)).clamp_min(0.0)
        if wanders is not None:
            column = column.scatter(-1, at, torch.where(wanders, variance, column.gather(-1, at)))
        among_points = among_points.scatter(-1, at_point, variance)
        total = variance + self.noise_variance
        scale, left = total.rsqrt(), self.noise_variance / total
        if where is not None:
            scale, left = scale * where.unsqueeze(-1), torch.where(where.unsqueeze(-1), left, 1.0)

        unit = column * scale
        innovation = (residual.unsqueeze(-1) - self.mean.gather(-1, at)) * scale
        self.mean.addcmul_(unit, innovation)
        self.surprise.add_(innovation.squeeze(-1).square())
        self.variance.addcmul_(unit, unit, value=-1)
        if wanders is not None:  # the difference without one
            exact = torch.where(wanders, variance * left, self.variance.gather(-1, at))
            self.variance.scatter_(-1, at, exact)
        self.gain.add_(half_log1p(variance / self.noise_variance, where))
        unit = among_points * scale
        self.covariance.addcmul_(unit.unsqueeze(-1), unit.unsqueeze(-2), value=-1)
        row = among_points * left  # P_j - P_j P_jj / s without the difference
        self._set_row(self.covariance, point, row)
        self._count(point, 1.0, residual, where)

    def observe(
        self,
        arm: Tensor,
        residual: Tensor,
        now: Tensor | float,
        leaving: Sequence[Tensor] | None,
        books: Books | None,
        blind: bool,
    ) -> None:
        """``add``, then ``remove`` the observation ``leaving`` (arm, residual and time, (b,) each), in every member;
        the state is complete after every step."""
        each = blind and isinstance(now, Tensor)  # a time for each member, which is not looked at
        moment = cast(float, now.expand(len(arm), 1) if each else float(now))  # type: ignore[union-attr]
        self.blind = blind
        self.add(arm, residual, moment)
        if leaving is not None:
            gone, of_gone, then = leaving
            self.remove(gone, of_gone, then, moment, self._every)
        self.blind = False

    def close(self, books: Books) -> None:
        """Nothing is left."""

    def _minus_through(self, column: Tensor, z: Tensor) -> Tensor:
        return self.rows.minus_through(column, self.point_arm, z, self.blind)

    def _open_points(
        self,
        arm: Tensor,
        own_row: Tensor,
        known: Tensor,
        point: Tensor,
        now: float,
        weight: Tensor,
        deep: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Give ``arm`` a point, with its row of P, in the members where it is not ``known``.

        Returns each member's point, and whether its P_jj is written. For an arm without an earlier point the caller
        must write it. The count of a new point stays 0. Members that will not observe also get a point: a point without
        observations is free.
        """
        if not self.blind:
            self._points_bound += 1
        held = self.point_count > 0
        point = torch.where(known, point, (~held).to(torch.uint8).argmax(-1))
        at, at_point, old = arm.unsqueeze(-1), point.unsqueeze(-1), known.unsqueeze(-1)
        prior_to_points = own_row.gather(-1, self.point_arm)
        cross = prior_to_points * weight * held
        if deep is None:
            row, told = self._spread() * self._solve(cross.unsqueeze(-1)).squeeze(-1), known  # P_i = D z
        else:
            row, told = self._row_since(
                arm, own_row.gather(-1, at), prior_to_points, cross, at_point, now, deep
            )
            told = told | known
        self._set_row(self.covariance, point, torch.where(old, self.covariance[self._member, point], row))
        row = cross.scatter(-1, at_point, own_row.gather(-1, at) * self.prior.present(now))
        row = torch.where(old, self.prior_covariance[self._member, point], row)
        self._set_row(self.prior_covariance, point, row)
        self.point_arm.scatter_(-1, at_point, at)
        self.point_time.scatter_(-1, at_point, now)
        return point, told

    def remove(self, arm: Tensor, residual: Tensor, time: Tensor, now: float, where: Tensor) -> None:
        """Undo the observation ``residual`` (b,) of ``arm`` (b,) made at ``time`` (b,), where ``where`` is True."""
        residual = residual.double()
        match = self._match(arm, time.unsqueeze(-1))
        point = match.to(torch.uint8).argmax(-1)
        at, mask = point.unsqueeze(-1), where.unsqueeze(-1)
        among_points = self.covariance[self._member, point]
        own = among_points.gather(-1, at)
        tiny = torch.finfo(own.dtype).eps * self.noise_variance
        rest = torch.where(mask, (self.noise_variance - own).clamp_min(tiny), 1.0)
        scale, left = rest.rsqrt() * mask, torch.where(mask, self.noise_variance / rest, 1.0)
        smoothed = (among_points * self.point_total).sum(-1, keepdim=True) / self.noise_variance  # E_j

        weight = self._weights(now)
        own_row = self.rows.of(arm, self._member)
        column = own_row * weight.gather(-1, at)
        z = among_points * (self.point_count / self.noise_variance)
        column = self._minus_through(column, z * weight)
        deep = self._deep(now) if self._wanders else None
        if deep is not None:
            column = self._column_since(column, among_points, z, own_row, time.unsqueeze(-1), now, deep)
        unit = column * scale
        innovation = (residual.unsqueeze(-1) - smoothed) * scale
        self.mean.addcmul_(unit, innovation, value=-1)
        count_removed(self, innovation.squeeze(-1).square(), left)
        self.variance.addcmul_(unit, unit)
        below_one = 1 - torch.finfo(own.dtype).eps
        ratio = torch.where(mask, own / self.noise_variance, 0.0).clamp_max(below_one)
        self.gain.add_(half_log1p(-ratio, where))
        unit = among_points * scale
        self.covariance.addcmul_(unit.unsqueeze(-1), unit.unsqueeze(-2))
        self._set_row(self.covariance, point, among_points * left)
        self._count(point, -1.0, -residual, where)

    def reset(self, scale: Tensor | float, where: Tensor | None = None) -> None:
        """Back to the prior, whose covariance is now ``scale`` (a number, (b, 1) or (1, 1)) times K."""
        mask = (self._every if where is None else where).unsqueeze(-1)
        self.variance.copy_(torch.where(mask, self.prior_variance * scale, self.variance))
        empty((self.gain, self.surprise, self.removed, self.suspect), where)
        empty((self.mean, self.point_count, self.point_total), where)
        if where is None:
            self._points_bound = 0

    @property
    def can_mend(self) -> bool:
        """False once faint points were dropped, because their information about other past points is lost. They say
        nothing about the present, and under drift errors fade as they do."""
        return not self._dropped_any

    def mend(self, count: Tensor, total: Tensor, squares: Tensor, now: float, look: Tensor) -> list[int]:
        """Rebuild the members among ``look`` (b,) whose rounding errors are too large; returns which they are.

        Checks the means of the present points and P's column of the point observed most: O(n^2), and O(n^3 + n^2 N)
        for a member that is rebuilt. Waits for the device. ``squares``: (b,), sums of squared residuals.
        """
        drifted = ((self._drifted(now) | self.suspect) & look).nonzero().flatten().tolist()
        self.suspect &= ~look
        self.removed[drifted] = 0.0
        for m in drifted:
            self.point_total[m] = total[m]
            held = (self.point_count[m] > 0).nonzero().squeeze(-1)
            K = self.prior_covariance[m][held][:, held]
            noise = self.noise_variance[m, 0]
            n, y = self.point_count[m, held], self.point_total[m, held]
            exact = posterior_of_counts(K, n, y, noise)
            self.covariance[m] = 0.0
            self.covariance[m, held.unsqueeze(-1), held] = exact.among()[1]
            weight = self._weights(now)[m, held].unsqueeze(-1)
            self.mean[m], v = exact.at(weight * self.rows.of(self.point_arm[m, held], self._member[m]))
            present = self.prior.present(now).expand(len(self.mean), 1)[m]
            self.variance[m] = self.prior_variance[m] * present - v.square().sum(-2)
            self.gain[m], self.surprise[m] = exact.gain, exact.surprise(n, y, squares[m], noise)
        return drifted

    def _drifted(self, now: float) -> Tensor:
        """Which members are off by more than the tolerance: (b,)."""
        held = self.point_count > 0  # what stands at free points is left over, and may be no number
        both = held.unsqueeze(-1) & held.unsqueeze(-2)
        K, C = (torch.where(both, value, 0.0) for value in (self.prior_covariance, self.covariance))
        point, weight = self.point_count.argmax(-1), self.point_count / self.noise_variance
        error = column_error(K[self._member, point], K, C[self._member, point], C, weight).abs().amax(-1)
        total = torch.where(held, self.point_total, 0.0)
        smoothed = (C @ total.unsqueeze(-1)).squeeze(-1) / self.noise_variance
        off = self.mean.gather(-1, self.point_arm) - smoothed  # of points of the past this says nothing
        current = held if self.prior.time_kernel is None else held & (self.point_time == now)
        off = torch.where(current, off, 0.0).abs().amax(-1)
        present = self.prior.present(now).squeeze(-1)
        return is_off(error, off, self.prior_variance.amax(-1) * present, self.mean)

    # -- what the posterior asks ----------------------------------------------------------------------

    def among(self, arm: Tensor, now: float) -> Tensor:
        """C among the points of each member: arm (T, b, n) -> (T, b, n, n)."""
        prior = self.prior.among(arm) * self.prior.present(now).unsqueeze(-1)
        cross = self.rows.between(self.point_arm, arm, self._member)  # (T, b, points, n)
        cross = cross * (self._weights(now) * (self.point_count > 0)).unsqueeze(-1)
        return prior - cross.mT @ self._solve(cross)

    def full(self, now: float) -> Tensor:
        """C over all arms: (b, N, N). The one place where an N x N matrix is made, from one prior for all members."""
        prior, present = self.prior.matrix(), self.prior.present(now)
        weight = self._weights(now) * (self.point_count > 0)
        cross = self.rows.of(self.point_arm, self._member.unsqueeze(-1)) * weight.unsqueeze(-1)
        told = self._solve(cross)
        full = cross.new_empty(len(cross), *prior.shape[1:])
        for m, one in enumerate(full):
            torch.mul(prior[m % len(prior)], present.expand(len(full), 1)[m], out=one)
            one.addmm_(cross[m].mT, told[m], alpha=-1)
        return full

    def joint_root(self) -> Tensor | None:
        """None: a root over all arms is not kept."""
        return None

    def widen(self, source: Tensor) -> None:
        """Become a batch of len(source) members; member m is a copy of member source[m]."""
        for name, held in list(self.named_buffers(recurse=False)):
            setattr(self, name, held[source])
        self.rows.widen(source, self.prior.flat_batch)
        self._member = torch.arange(len(source), device=source.device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        vars(self)["prior"] = self._given.in_double()
        self._measure_depth()
