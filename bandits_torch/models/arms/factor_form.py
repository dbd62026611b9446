"""Exact posterior over N arms as the prior minus a low-rank term over the points observed: no N x N matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch.models.arms.covariance_form import (
    Books,
    CountsPosterior,
    Form,
    column_error,
    posterior_of_counts,
)
from bandits_torch.models.arms.prior import ArmPrior, PriorRows
from bandits_torch.models.online_model import empty, held_elsewhere

_NEGLIGIBLE = 1e-12  # points whose correlation with the present is smaller are dropped
_DEEP = 1e4  # largest prior variance, in units of the noise, from which a subtraction loses few digits
SMALLEST_OF_GROWING = 1e-8  # smallest noise variance, relative to a prior variance that grows with time
ROOM = 32  # first capacity, in points and in rows of G
_FEW = 64  # rows of G that may always be spare
_PRIORS: WeakValueDictionary[int, ArmPrior] = WeakValueDictionary()


@torch.library.custom_op("bandits_torch::prior_rows", mutates_args=())
def prior_rows(arm: Tensor, like: Tensor, prior: int, batch: int) -> Tensor:
    """K between the arms (n,) and all N arms, (batch, n, N), for the prior ``_PRIORS[prior]``. As a custom operation
    it keeps the kernel out of graphs of steps."""
    return _PRIORS[prior].rows(arm).contiguous()


@prior_rows.register_fake
def _(arm: Tensor, like: Tensor, prior: int, batch: int) -> Tensor:
    return like.new_empty(batch, len(arm), like.shape[-1])


def half_log1p(ratio: Tensor, where: Tensor | None) -> Tensor:
    """The gain of one observation, 1/2 ln(1 + ratio) for ratio (b, 1), or 0 if ``where`` is False: (b,)."""
    gain = torch.log1p(ratio).mul_(0.5).squeeze(-1)
    return gain if where is None else gain * where


class FactorForm(Form):
    """State of ``ArmGP`` over n distinct observed points, for a flat batch of b members.

    A point is an arm at a time (at any time, if the prior is static), observed ``count`` times with residuals (reward -
    prior mean) whose sum is ``total``. The state is the posterior covariance P among the points: the covariance form,
    restricted to the points. Let D = lambda / count, w_s the time kernel between the time of point s and now, p the
    time kernel between now and now, and G_s = K(x_s, arms). Then

        C_i = p K_i - G^T (w z),   z = (K_points + D)^{-1} k_i  =  P_j / D if i is point j already.

    So the column of any arm costs O(uN + n^2), with u the number of distinct arms pulled. As in ``CovarianceForm``,
    with s = C_ii + lambda:

        mean += C_i (y - mean_i) / s,   variance -= C_i^2 / s,   P -= P_i P_i^T / s.

    A new point first gets its row P_i = D z, P_ii = C_ii. The removal of one observation of point j is

        mean -= C_j (y - E_j) / s,   variance += C_j^2 / s,   P += P_j P_j^T / s,   s = lambda - P_jj,

    with E = P total / lambda the smoothed values at the points; a point without observations becomes free. Past values
    do not change, so P needs no update when time passes, and removal is exact under drift too.

    Numerics: every observation shrinks P, rows of new points are products, not differences, and z for a new point takes
    one step of iterative refinement: (k - P D^{-1} k) / D alone would lose digits by a factor of k / lambda.

    Advantages over storing the rows W = L^{-1} K(X_t, arms): G is stored once per distinct arm for all replicates,
    repeated pulls add no row, and an observation is removed without Givens rotations through W.

    Rounding, measured after 20 000 steps in float64: 2e-11 at lambda = 1e-4 of the prior variance, 7e-6 at 1e-6 (the
    covariance form: 1e-11), unless ``mend`` detects and repairs it. In float32 P would lose all its digits after some
    thousand pulls of few arms, so everything here, including G, is float64, whatever the dtype of the model.

    Cost of a step: u N numbers of G are read (once for all replicates); for each member n^2 numbers are read three
    times and written once. Memory O(q u N + b n^2). Under a fading time kernel, points whose correlation with the
    present is below 1e-12 are dropped, so n stops growing at about 55 / forgetting_rate if pulls are one unit of time
    apart. With ``keeps_faint_points``, for models that forget, no point is dropped: an observation can only be removed
    from the gain while its point exists.

    If the prior variance is large compared with the noise, a subtraction from it loses digits. Under drift a new row of
    P is then computed from the latest point l of the same arm i, at time s. There f(i, now) = a f(i, s) + g with
    Var g = c K_ii, and g is independent of everything up to s. Only points after s have information about g, through
    covariances k_g of the size of c. So

        P_i = a P_l + D z_g,   z_g = (K_points + D)^{-1} k_g,   P_ii = a^2 P_ll + 2 a (D z_g)_l + c K_ii - k_g^T z_g.

    The prior variance of a Wiener process grows with time. ``ArmGP`` refuses this form once the noise is below 1e-8 of
    it, where small variances have relative errors of up to 1e-5.

    Attributes:
        point_arm, point_time, point_count, point_total: (b, capacity); a free point has count 0.
        covariance, prior_covariance: posterior P and prior K among the points, (b, capacity, capacity).
        rows: G.
        keeps_faint_points: whether no point is dropped.
        blind: whether no value may be read on the host, because a step becomes part of a graph. Every step then works
            as if its arm were new, in the room that ``reserve`` has made.
    """

    name = "factor"
    point_arm: Tensor
    point_time: Tensor
    point_count: Tensor
    point_total: Tensor
    covariance: Tensor
    prior_covariance: Tensor
    _model_prior: ArmPrior  # in the dtype of the model
    _every: Tensor  # (b,), True
    _depth: Tensor  # (b, 1), the largest prior variance over the arms, in units of the noise
    _deep_when_blind: Tensor | None  # ``_deep`` in blind steps, in which it is constant
    _PLAIN = ("_points_bound", "keeps_faint_points", "_dropped_any")

    def __init__(self, prior: ArmPrior, batch: int, noise_variance: Tensor) -> None:
        double = prior.in_double()
        diagonal = double.diagonal()
        super().__init__(double, noise_variance, diagonal.repeat(batch // len(diagonal), 1))
        held_elsewhere(self, _model_prior=prior)
        new = diagonal.new_zeros
        self.rows = PriorRows(diagonal, ROOM)
        self.register_buffer("covariance", new(batch, ROOM, ROOM))
        self.register_buffer("prior_covariance", new(batch, ROOM, ROOM))
        self.register_buffer("point_arm", new(batch, ROOM, dtype=torch.long))
        for name in ("point_time", "point_count", "point_total"):
            self.register_buffer(name, new(batch, ROOM))
        self.register_buffer("_deep_when_blind", None, persistent=False)
        self._points_bound = 0  # an upper bound of n, known without waiting for the device
        self._packed = 0  # how often ``_pack`` has moved points
        self.keeps_faint_points = self._dropped_any = self.blind = False
        self.register_buffer("variance", self.prior_variance.clone())
        self.register_buffer("_every", torch.ones_like(self.suspect), persistent=False)
        self._measure_depth()

    @property
    def size(self) -> int:
        """The capacity, in points."""
        return self.point_arm.shape[-1]

    @property
    def lasting(self) -> tuple[ArmPrior, ...]:
        return self.prior, self._model_prior

    @property
    def can_forget(self) -> bool:
        """Whether observations can be removed, and members rebuilt: only if no faint point has been dropped. Its terms
        of the gain and its information about other past points are lost; rounding errors fade like the points."""
        return not self._dropped_any

    # -- learning --------------------------------------------------------------------------------------

    def advance(self, kept: Tensor, gained: Tensor) -> None:
        self.mean.mul_(kept)
        self.variance.mul_(kept * kept).addcmul_(self.prior_variance, gained)

    def add(self, arm: Tensor, residual: Tensor, now: float, where: Tensor | None = None) -> None:
        """Observe y - prior mean = ``residual`` (b,) at ``arm`` (b,) at time ``now``."""
        residual = residual.double()
        self._make_room(arm, now)
        match = self._match(arm, now)
        known, point = match.any(-1), match.to(torch.uint8).argmax(-1)
        own_row = self.rows.of(arm, self._member)  # K_i: (b, N)
        is_known = known  # whether P_jj is read from P; otherwise it is taken from the column
        weight = self._weights(now)
        if self.blind or not arm.is_cpu or not bool(known.all()):
            point, is_known = self._open_points(arm, own_row, known, point, now, weight)
        at, at_point = arm.unsqueeze(-1), point.unsqueeze(-1)
        present = self.prior.present(now)
        weight = weight.scatter(-1, at_point, present.expand(at.shape))
        among_points = self.covariance[self._member, point]  # P_j
        # P_jj is read: computed from the column, its rounding errors would feed back.
        own = among_points.gather(-1, at_point)
        z = among_points * (self.point_count / self.noise_variance)
        column = own_row if self.prior.time_kernel is None else own_row * present
        column = self.rows.minus_through(column, self.point_arm, z * weight, self.blind)
        variance = torch.where(is_known.unsqueeze(-1), own, column.gather(-1, at)).clamp_min(0.0)
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
        self.gain.add_(half_log1p(variance / self.noise_variance, where))
        unit = among_points * scale
        self.covariance.addcmul_(unit.unsqueeze(-1), unit.unsqueeze(-2), value=-1)
        row = among_points * left  # P_j - P_j P_jj / s without the difference
        self._set_row(self.covariance, point, row)
        self._count(point, 1.0, residual, where)

    def _open_points(
        self, arm: Tensor, own_row: Tensor, known: Tensor, point: Tensor, now: float, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Give ``arm`` a point, with its row of P, in the members in which it is not ``known``; its count stays 0.

        Returns the point of each member, and whether its P_jj is written; if not, the caller must write it.
        """
        if not self.blind:
            self._points_bound += 1
        held = self.point_count > 0
        point = torch.where(known, point, (~held).to(torch.uint8).argmax(-1))
        at, at_point, old = arm.unsqueeze(-1), point.unsqueeze(-1), known.unsqueeze(-1)
        prior_to_points = own_row.gather(-1, self.point_arm)
        cross, deep = prior_to_points * weight * held, self._deep(now)
        if deep is None:
            row, is_known = self._spread() * self._solve(cross.unsqueeze(-1)).squeeze(-1), known  # P_i = D z
        else:
            row, is_known = self._row_since(
                arm, own_row.gather(-1, at), prior_to_points, cross, at_point, now, deep
            )
            is_known = is_known | known
        self._set_row(self.covariance, point, torch.where(old, self.covariance[self._member, point], row))
        row = cross.scatter(-1, at_point, own_row.gather(-1, at) * self.prior.present(now))
        row = torch.where(old, self.prior_covariance[self._member, point], row)
        self._set_row(self.prior_covariance, point, row)
        self.point_arm.scatter_(-1, at_point, at)
        self.point_time.scatter_(-1, at_point, now)
        return point, is_known

    def remove(self, arm: Tensor, residual: Tensor, time: Tensor, now: float, where: Tensor | None) -> None:
        """Undo the observation ``residual`` (b,) of ``arm`` (b,) at ``time`` (b,), in the members with ``where``
        True (None: in all)."""
        residual = residual.double()
        match = self._match(arm, time.unsqueeze(-1))
        point = match.to(torch.uint8).argmax(-1)
        at = point.unsqueeze(-1)
        among_points = self.covariance[self._member, point]
        own = among_points.gather(-1, at)
        tiny = torch.finfo(own.dtype).eps * self.noise_variance
        if where is not None:
            own = own.where(where.unsqueeze(-1), 0.0)
        rest = (self.noise_variance - own).clamp_min(tiny)
        scale, left = rest.rsqrt(), self.noise_variance / rest
        scale = scale if where is None else scale * where.unsqueeze(-1)
        ratio = (own / self.noise_variance).clamp_max(1 - torch.finfo(own.dtype).eps)
        smoothed = (among_points * self.point_total).sum(-1, keepdim=True) / self.noise_variance  # E_j

        weight = self._weights(now)
        own_row = self.rows.of(arm, self._member)
        column = own_row * weight.gather(-1, at)
        z = among_points * (self.point_count / self.noise_variance)
        column = self.rows.minus_through(column, self.point_arm, z * weight, self.blind)
        unit = column * scale
        innovation = (residual.unsqueeze(-1) - smoothed) * scale
        self.mean.addcmul_(unit, innovation, value=-1)
        self._count_removed(innovation.squeeze(-1).square(), left)
        self.variance.addcmul_(unit, unit)
        self.gain.add_(half_log1p(-ratio, where))
        unit = among_points * scale
        self.covariance.addcmul_(unit.unsqueeze(-1), unit.unsqueeze(-2))
        self._set_row(self.covariance, point, among_points * left)
        self._count(point, -1.0, -residual, where)

    def _match(self, arm: Tensor, time: Tensor | float) -> Tensor:
        """Whether each point (b, n) is of this arm and, under drift, at this time."""
        match = (self.point_arm == arm.unsqueeze(-1)) & (self.point_count > 0)
        return match if self.prior.time_kernel is None else match & (self.point_time == time)

    def _weights(self, now: float) -> Tensor:
        """w: time kernel between the time of each point and now, (b, n); 1 if static."""
        return self.prior.over_time(self.point_time, now).expand(self.point_time.shape)

    def _set_row(self, matrix: Tensor, point: Tensor, row: Tensor) -> None:
        matrix[self._member, point] = row
        matrix[self._member, :, point] = row

    def _count(self, point: Tensor, by: float, residual: Tensor, where: Tensor | None) -> None:
        step = torch.full_like(residual, by) if where is None else where.to(residual.dtype) * by
        total = residual if where is None else torch.where(where, residual, 0.0)
        self.point_count.scatter_add_(-1, point.unsqueeze(-1), step.unsqueeze(-1))
        self.point_total.scatter_add_(-1, point.unsqueeze(-1), total.unsqueeze(-1))
        if by < 0:  # the total of an emptied point is exactly 0
            self.point_total.masked_fill_(self.point_count == 0, 0.0)

    # -- memory, and steps that are captured -------------------------------------------------------------

    def _make_room(self, arm: Tensor, now: float) -> None:
        """Make a row of G for every arm and a free point in every member."""
        if self.blind:
            rows = prior_rows(arm, self.prior_variance, id(self.prior), self.prior.flat_batch)
            self.rows.take_in(arm, self._member, rows)
            return
        if self._points_bound == self.size:
            self._pack(now)
        self.rows.bring(self.prior, arm, self._member, self.point_arm, self.point_count)

    def _pack(self, now: float, spare: int = 32) -> None:
        """Drop negligible points, move the others to the front and leave room for a quarter more, at least ``spare``:
        every step costs the square of the room. If points are dropped, P is computed again from the others: with
        information about the oldest of these that K lacks, refinement diverges."""
        held = live = self.point_count > 0
        if self.prior.time_kernel is not None and not self.keeps_faint_points:
            live = held & (self._weights(now) >= _NEGLIGIBLE * self.prior.present(now))
        lost = (held != live).any(-1).nonzero().flatten().tolist()
        used = int(live.sum(-1).max())
        capacity = used + max(spare, used // 4)
        order = torch.argsort((~live).to(torch.uint8), dim=-1, stable=True)[:, :used]
        live = live.gather(-1, order)
        for name in ("point_arm", "point_time", "point_count", "point_total"):
            packed = getattr(self, name).gather(-1, order) * live
            setattr(self, name, pad(packed, (0, capacity - used)))
        member, row, column = self._member[:, None, None], order.unsqueeze(-1), order.unsqueeze(-2)
        for name in ("covariance", "prior_covariance"):
            packed = getattr(self, name)[member, row, column]
            setattr(self, name, pad(packed, (0, capacity - used, 0, capacity - used)))
        self._points_bound = used
        self._packed += 1
        for m in lost:
            self._dropped_any = True
            self._compute_anew(m)

    def observe(
        self,
        arm: Tensor,
        residual: Tensor,
        now: Tensor | float,
        leaving: Sequence[Tensor] | None,
        books: Books | None,
        blind: bool,
    ) -> None:
        """``add``, then ``remove`` the observation ``leaving`` (arm, residual and time, (b,) each), in every member."""
        each = blind and isinstance(now, Tensor)  # a time for each member, not read on the host
        moment = cast(float, now.expand(len(arm), 1) if each else float(now))  # type: ignore[union-attr]
        self.blind = blind
        self.add(arm, residual, moment)
        if leaving is not None:
            gone, of_gone, then = leaving
            self.remove(gone, of_gone, then, moment, self._every)
        self.blind = False

    def reserve(self, steps: int, now: float, blind: bool) -> int:
        """Prepare the next steps. Returns how many may be played before another call: all of them; with ``blind``,
        which makes room for them, at most so many that they add 64 rows to G, or as many as it has."""
        if not blind:
            return steps
        rows, members = self.rows, len(self._member)
        _PRIORS[id(self.prior)] = self.prior
        self._deep_when_blind = self._deep(now) if self._deep_when_blind is None else self._deep_when_blind
        steps = max(1, min(steps, max(_FEW, rows.bound) // members))
        if self._points_bound + steps > self.size or not rows.has_room(steps * members):
            self._points_bound = int((self.point_count > 0).sum(-1).max())
            if self._points_bound + steps > self.size:
                self._pack(now, 2 * steps)
            rows.reserve(steps * members, self.point_arm[self.point_count > 0])
        return steps

    def played(self, added: int, removed: int) -> None:
        """Count the observations added since ``reserve``, perhaps by a replay of a captured graph: each may have made a
        point, and a row of G, in every member."""
        self._points_bound += added
        self.rows.bound += added * len(self._member)

    @property
    def place(self) -> tuple[int, ...]:
        """A key that differs if blind steps would use other memory."""
        return self._packed, self.rows.packed

    # -- as time passes --------------------------------------------------------------------------------

    def _deep(self, now: float) -> Tensor | None:
        """Whether new points of each member are computed from the latest point of their arm, (b, 1). None: in no member
        (on a GPU, only if static: reading the answer would wait)."""
        if self.prior.time_kernel is None:
            return None
        if self.blind:
            return self._deep_when_blind
        deep = self._depth * self.prior.present(now) > _DEEP
        return None if deep.is_cpu and not bool(deep.any()) else deep

    def _row_since(
        self,
        arm: Tensor,
        own: Tensor,
        prior_to_points: Tensor,
        cross: Tensor,
        at_point: Tensor,
        now: float,
        deep: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The present row of P for ``arm``, with P_jj ``at_point``, computed from the arm's latest point in ``deep``
        members in which it has one; and which these are. In others the row is D (K_points + D)^{-1} ``cross``."""
        held = self.point_count > 0
        same = held & (self.point_arm == arm.unsqueeze(-1))
        seen = same.any(-1, keepdim=True) & deep
        latest = torch.where(same, self.point_time, -torch.inf).argmax(-1)
        s = torch.where(seen, self.point_time.gather(-1, latest.unsqueeze(-1)), now)
        kept, gained = self.prior.transition(s, now)
        _, news = self.prior.transition(s, self.point_time)
        to_now, _ = self.prior.transition(self.point_time, now)
        since = torch.where(held & (self.point_time > s), prior_to_points * news * to_now, 0.0)
        cross = torch.where(seen, since, cross)
        z = self._solve(cross.unsqueeze(-1)).squeeze(-1)
        between = self._spread() * z
        base = torch.where(seen, kept * self.covariance[self._member, latest], 0.0)
        at = latest.unsqueeze(-1)
        variance = kept * (base.gather(-1, at) + 2 * between.gather(-1, at)) + gained * own
        row = (base + between) * held
        return row.scatter(-1, at_point, variance - (cross * z).sum(-1, keepdim=True)), seen.squeeze(-1)

    def _spread(self) -> Tensor:
        """D = lambda / count, (b, n)."""
        return self.noise_variance / self.point_count.clamp_min(1.0)

    def _solve(self, cross: Tensor) -> Tensor:
        """(K_points + D)^{-1} cross, for cross (..., b, n, k) that is 0 at free points; with one step of refinement."""
        precision = (self.point_count / self.noise_variance).unsqueeze(-1)
        z = (cross - self.covariance @ (cross * precision)) * precision
        residual = cross - self.prior_covariance @ z - self._spread().unsqueeze(-1) * z
        return z + (residual - self.covariance @ (residual * precision)) * precision

    # -- rounding errors -------------------------------------------------------------------------------

    def _errors(self, count: Tensor, total: Tensor, now: float) -> tuple[Tensor, Tensor, Tensor]:
        """Of the column of P of the point observed most, and of the means of points at ``now``: O(n^2)."""
        held = self.point_count > 0  # free points hold leftover values, perhaps NaN
        both = held.unsqueeze(-1) & held.unsqueeze(-2)
        K, C = (torch.where(both, value, 0.0) for value in (self.prior_covariance, self.covariance))
        point, weight = self.point_count.argmax(-1), self.point_count / self.noise_variance
        error = column_error(K[self._member, point], K, C[self._member, point], C, weight).abs().amax(-1)
        sums = torch.where(held, self.point_total, 0.0)
        smoothed = (C @ sums.unsqueeze(-1)).squeeze(-1) / self.noise_variance
        off = self.mean.gather(-1, self.point_arm) - smoothed  # an error only at points of the present time
        current = held if self.prior.time_kernel is None else held & (self.point_time == now)
        off = torch.where(current, off, 0.0).abs().amax(-1)
        return error, off, self.prior_variance.amax(-1) * self.prior.present(now).squeeze(-1)

    def _rebuild(self, m: int, count: Tensor, total: Tensor, squares: Tensor, now: float) -> None:
        """O(n^3 + n^2 N)."""
        self.point_total[m] = total
        exact, held = self._compute_anew(m)
        n, y = self.point_count[m, held], self.point_total[m, held]
        weight = self._weights(now)[m, held].unsqueeze(-1)
        self.mean[m], v = exact.at(weight * self.rows.of(self.point_arm[m, held], self._member[m]))
        present = self.prior.present(now).expand(len(self.mean), 1)[m]
        self.variance[m] = self.prior_variance[m] * present - v.square().sum(-2)
        noise = self.noise_variance[m, 0]
        self.gain[m], self.surprise[m] = exact.gain, exact.surprise(n, y, squares, noise)

    def _compute_anew(self, m: int) -> tuple[CountsPosterior, Tensor]:
        """Compute P of member m from the observations of its points. Returns the posterior, and the points."""
        held = (self.point_count[m] > 0).nonzero().squeeze(-1)
        K = self.prior_covariance[m][held][:, held]
        n, y = self.point_count[m, held], self.point_total[m, held]
        exact = posterior_of_counts(K, n, y, self.noise_variance[m, 0])
        self.covariance[m] = 0.0
        self.covariance[m, held.unsqueeze(-1), held] = exact.among()[1]
        return exact, held

    # -- predicting ------------------------------------------------------------------------------------

    def among(self, arm: Tensor, now: float) -> Tensor:
        prior = self.prior.among(arm) * self.prior.present(now).unsqueeze(-1)
        cross = self.rows.between(self.point_arm, arm, self._member)  # (T, b, points, n)
        cross = cross * (self._weights(now) * (self.point_count > 0)).unsqueeze(-1)
        return prior - cross.mT @ self._solve(cross)

    def full(self, now: float) -> Tensor:
        """Only this method makes N x N matrices."""
        prior, present = self.prior.matrix(), self.prior.present(now)
        weight = self._weights(now) * (self.point_count > 0)
        cross = self.rows.of(self.point_arm, self._member.unsqueeze(-1)) * weight.unsqueeze(-1)
        solved = self._solve(cross)
        full = cross.new_empty(len(cross), *prior.shape[1:])
        for m, one in enumerate(full):
            torch.mul(prior[m % len(prior)], present.expand(len(full), 1)[m], out=one)
            one.addmm_(cross[m].mT, solved[m], alpha=-1)
        return full

    # -- state -----------------------------------------------------------------------------------------

    def reset(self, scale: Tensor | float, where: Tensor | None = None) -> None:
        mask = (self._every if where is None else where).unsqueeze(-1)
        self.variance.copy_(torch.where(mask, self.prior_variance * scale, self.variance))
        empty((self.gain, self.surprise, self.removed, self.suspect), where)
        empty((self.mean, self.point_count, self.point_total), where)
        if where is None:
            self._points_bound = 0

    def widen(self, source: Tensor) -> None:
        for name, held in list(self.named_buffers(recurse=False)):
            setattr(self, name, held[source])
        self.rows.widen(source, self.prior.flat_batch)
        self._member = torch.arange(len(source), device=source.device)

    def _measure_depth(self) -> None:
        depth = self.prior_variance.amax(-1, keepdim=True) / self.noise_variance
        self.register_buffer("_depth", depth, persistent=False)
        self._deep_when_blind = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FactorForm:
        """``model.to(float32)`` leaves these tensors in float64, bit for bit."""
        exact = [dict(holder.named_buffers(recurse=False)) for holder in (self, self.rows)]
        super()._apply(fn, recurse)
        vars(self)["prior"] = self._model_prior.in_double()
        for holder, buffers in zip((self, self.rows), exact, strict=True):
            for name, held in buffers.items():
                setattr(holder, name, held.to(getattr(holder, name).device))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        vars(self)["prior"] = self._model_prior.in_double()
        self._measure_depth()
