"""Exact posterior over N arms as the prior minus a low-rank term over the points observed: no N x N matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.models.arm_prior import ArmPrior
from bandits_torch.models.covariance_form import half_log1p
from bandits_torch.models.online_model import ResizableState

_NEGLIGIBLE = 1e-12  # a past point whose correlation with the present is below this no longer matters


class FactorForm(ResizableState):
    """State of ``ArmGP`` over n distinct observed points, for b flattened batch members.

    A point is an arm at a time (at any time, when the prior is static), observed ``count`` times with
    residuals (reward - prior mean) summing to ``total``. With w_s the time kernel between the point's
    time and now, D = lambda / count, G_s = K(x_s, arms) and the inverse A = (K_points + D)^{-1}:

        mean = sum_s w_s G_s (A total/count)_s,    C = p K - (w G)^T A (w G),

    p = the time kernel of now with itself. Mean and variance are carried along, O(N) a step; C is never
    formed. One observation of arm i needs its column C_i and one rank-one update of A. With z = A k_i
    for a new point, and z = -D_j A_j (exactly, no solve) for point j seen before,

        C_i = [p K_i if new] - G^T (w z),   s = C_ii + lambda,   v = z - [e_new if new],
        A += v v^T / s,   mean += C_i (y - mean_i) / s,   variance -= C_i^2 / s;

    both cases are the same rank-one update, by the block inverse and by Sherman and Morrison. Removing
    one of the n_j observations of point j is its exact inverse, kappa = 1 / (A_jj + n_j (n_j - 1) / lambda):

        A -= kappa A_j A_j^T,   variance += kappa (G^T (w A_j))^2,   mean -= kappa/D_j (y - E_j) G^T (w A_j),

    with E_j = total_j/n_j - D_j A_j (total/count) the smoothed value at the point; every term under the
    division is positive, so nothing cancels however small lambda is, and it holds under drift too.

    Against keeping the rows W = L^{-1} K(X_t, arms): G is stored once per distinct arm and shared by all
    replicates, repeated pulls add no row, and an observation leaves without Givens rotations through W.

    Cost of a step, u distinct arms pulled and n points: reads u N numbers of G (once for all replicates),
    reads and writes n^2 of A for each member. Memory O(q u N + b n^2). Under a fading time kernel points
    older than correlation 1e-12 are dropped, so n stops growing: about 55 / forgetting_rate points.
    """

    mean: Tensor
    variance: Tensor
    gain: Tensor
    noise_variance: Tensor
    rows: Tensor
    row_of_arm: Tensor
    rows_used: Tensor
    inverse: Tensor
    point_arm: Tensor
    point_time: Tensor
    point_count: Tensor
    point_total: Tensor

    can_forget = True

    def __init__(self, prior: ArmPrior, batch: int, noise_variance: Tensor, capacity: int = 32) -> None:
        super().__init__()
        self.prior = prior
        self.register_buffer("noise_variance", noise_variance)
        diagonal = prior.diagonal()
        q, n = diagonal.shape
        new = diagonal.new_zeros
        self.register_buffer("prior_variance", diagonal.repeat(batch // q, 1))
        self.prior_variance: Tensor
        self.register_buffer("mean", new(batch, n))
        self.register_buffer("variance", self.prior_variance.clone())
        self.register_buffer("gain", new(batch))
        self.register_buffer("rows", new(q, capacity, n))
        self.register_buffer("row_of_arm", torch.full((n,), -1, dtype=torch.long, device=diagonal.device))
        self.register_buffer("rows_used", torch.zeros((), dtype=torch.long, device=diagonal.device))
        self.register_buffer("inverse", new(batch, capacity, capacity))
        self.register_buffer("point_arm", torch.zeros(batch, capacity, dtype=torch.long, device=diagonal.device))
        self.register_buffer("point_time", new(batch, capacity))
        self.register_buffer("point_count", new(batch, capacity))
        self.register_buffer("point_total", new(batch, capacity))
        self._rows_bound = self._points_bound = 0  # upper bounds that need no look at the device

    # -- the three moves ------------------------------------------------------------------------------

    def advance(self, kept: Tensor, gained: Tensor) -> None:
        """Let time pass: f <- kept * f + independent GP of covariance gained * K; both (b, 1) or (1, 1)."""
        self.mean.mul_(kept)
        self.variance.mul_(kept * kept).addcmul_(self.prior_variance, gained)

    def add(self, arm: Tensor, residual: Tensor, now: float, where: Tensor | None = None) -> None:
        """Observe y - prior mean = ``residual`` (b,) at ``arm`` (b,) at time ``now``."""
        self._make_room(arm, now)
        at = arm.unsqueeze(-1)
        own_row = self._row(arm)  # K_i: (b, N)
        match = self._match(arm, now)
        known = match.any(-1, keepdim=True)
        free = self.point_count == 0
        point = torch.where(known, match.to(torch.uint8).argmax(-1, keepdim=True), _first(free))

        weight = self._weights(now)
        inverse_j = self._inverse_row(point)
        spread = self.noise_variance / self.point_count.gather(-1, point).clamp_min(1.0)  # D_j
        cross = own_row.gather(-1, self.point_arm) * weight * ~free  # k between the points and arm i now
        z = torch.where(known, -spread * inverse_j, torch.matmul(self.inverse, cross.unsqueeze(-1)).squeeze(-1))
        present = self.prior.over_time(now, now)
        column = own_row * (present * ~known) - self._through_rows(weight * z)
        variance = column.gather(-1, at)
        scale = (variance + self.noise_variance).rsqrt_()
        if where is not None:
            scale = scale * where.unsqueeze(-1)

        unit = column * scale
        innovation = (residual.unsqueeze(-1) - self.mean.gather(-1, at)) * scale
        self.mean.addcmul_(unit, innovation)
        self.variance.addcmul_(unit, unit, value=-1)
        self.gain.add_(half_log1p(variance / self.noise_variance, where))
        v = z.scatter_add(-1, point, -(~known).to(z.dtype)) * scale
        self.inverse.addcmul_(v.unsqueeze(-1), v.unsqueeze(-2))
        self._count(point, 1.0, residual, where)
        # A member left out writes to a free point, which stays free, or writes what stands there already.
        self.point_arm.scatter_(-1, point, arm.unsqueeze(-1))
        self.point_time.scatter_(-1, point, now)

    def remove(self, arm: Tensor, residual: Tensor, time: Tensor, now: float, where: Tensor) -> None:
        """Undo the observation ``residual`` (b,) of ``arm`` (b,) made at ``time`` (b,), where ``where`` is True."""
        match = self._match(arm, time.unsqueeze(-1))
        where = where & match.any(-1)  # a point too faint to matter may be gone already
        point = match.to(torch.uint8).argmax(-1, keepdim=True)
        count = self.point_count.gather(-1, point)
        inverse_j = self._inverse_row(point)
        rest = inverse_j.gather(-1, point) + count * (count - 1) / self.noise_variance  # 1 / kappa
        scale = torch.where(where.unsqueeze(-1), rest, 1.0).rsqrt() * where.unsqueeze(-1)
        spread = self.noise_variance / count.clamp_min(1.0)
        averages = self.point_total / self.point_count.clamp_min(1.0)
        smoothed = averages.gather(-1, point) - spread * (inverse_j * averages).sum(-1, keepdim=True)

        unit = self._through_rows(self._weights(now) * inverse_j) * scale
        self.mean.addcmul_(unit, (residual.unsqueeze(-1) - smoothed) * scale / spread, value=-1)
        self.variance.addcmul_(unit, unit)
        # without the observation its predictive variance over lambda is 1 / (D_j^2 rest / lambda) - 1
        self.gain.add_(half_log1p(spread * spread * rest / self.noise_variance - 1.0, where))
        v = inverse_j * scale
        self.inverse.addcmul_(v.unsqueeze(-1), v.unsqueeze(-2), value=-1)
        self._count(point, -1.0, -residual, where)
        stays = (self.point_count.gather(-1, point) > 0) | ~where.unsqueeze(-1)
        member, at = torch.arange(arm.shape[0], device=arm.device), point.squeeze(-1)
        self.inverse[member, at] *= stays  # an emptied point leaves exact zeros
        self.inverse[member, :, at] *= stays

    def reset(self, scale: Tensor | float, where: Tensor | None = None) -> None:
        """Back to the prior, whose covariance is now ``scale`` (a number, (b, 1) or (1, 1)) times K."""
        everywhere = where is None
        mask = torch.ones_like(self.gain, dtype=torch.bool) if where is None else where
        column = mask.unsqueeze(-1)
        self.variance.copy_(torch.where(column, self.prior_variance * scale, self.variance))
        self.gain.masked_fill_(mask, 0.0)
        for state in (self.mean, self.point_count, self.point_total):
            state.masked_fill_(column, 0.0)
        self.inverse.masked_fill_(column.unsqueeze(-1), 0.0)
        if everywhere:
            self._points_bound = 0

    # -- what the posterior asks ----------------------------------------------------------------------

    def among(self, arm: Tensor, now: float) -> Tensor:
        """C among the points of each member: arm (T, b, n) -> (T, b, n, n)."""
        k = self.prior.among(arm) * torch.as_tensor(self.prior.over_time(now, now), dtype=self.mean.dtype).unsqueeze(-1)
        q = self.rows.shape[0]
        member = torch.arange(arm.shape[1], device=arm.device) % q
        row = self.row_of_arm[self.point_arm].clamp_min(0)
        cross = self.rows[member[:, None, None], row.unsqueeze(-1), arm.unsqueeze(-2)]  # (T, b, points, n)
        live = self._weights(now) * (self.point_count > 0)
        cross = cross * live.unsqueeze(-1)
        return k - cross.mT @ (self.inverse @ cross)

    def full(self, now: float) -> Tensor:
        """C over all arms: (b, N, N). The one place where an N x N matrix is made."""
        arm = torch.arange(self.mean.shape[-1], device=self.mean.device)
        return self.among(arm.expand(1, self.mean.shape[0], -1), now).squeeze(0)

    # -- points, rows and room for them ---------------------------------------------------------------

    def _match(self, arm: Tensor, time: Tensor | float) -> Tensor:
        """Which of the points (b, n) is this arm (at this time)."""
        match = (self.point_arm == arm.unsqueeze(-1)) & (self.point_count > 0)
        return match if self.prior.time_kernel is None else match & (self.point_time == time)

    def _weights(self, now: float) -> Tensor | float:
        """w: time kernel between each point's time and now, (b, n); 1 when static."""
        return 1.0 if self.prior.time_kernel is None else self.prior.over_time(self.point_time, now)

    def _inverse_row(self, point: Tensor) -> Tensor:
        index = point.unsqueeze(-1).expand(-1, 1, self.inverse.shape[-1])
        return self.inverse.gather(-2, index).squeeze(-2)

    def _count(self, point: Tensor, by: float, residual: Tensor, where: Tensor | None) -> None:
        step = torch.full_like(residual, by) if where is None else where.to(residual.dtype) * by
        total = residual if where is None else torch.where(where, residual, 0.0)
        self.point_count.scatter_add_(-1, point, step.unsqueeze(-1))
        self.point_total.scatter_add_(-1, point, total.unsqueeze(-1))
        if by < 0:  # an emptied point keeps no rounding residue
            self.point_total.masked_fill_(self.point_count == 0, 0.0)

    def _row(self, arm: Tensor) -> Tensor:
        """K_i of each member's arm: (b, N)."""
        q = self.rows.shape[0]
        if q == 1:
            return self.rows[0, self.row_of_arm[arm]]
        member = torch.arange(arm.shape[0], device=arm.device) % q
        return self.rows[member, self.row_of_arm[arm]]

    def _through_rows(self, z: Tensor) -> Tensor:
        """G^T z for z over the points, (b, n) -> (b, N); the rows are read once for all replicates."""
        used = max(self._rows_bound, 1)
        row = self.row_of_arm[self.point_arm].clamp_min(0)
        by_row = z.new_zeros(z.shape[0], used).scatter_add_(-1, row, z)
        rows = self.rows[:, :used]
        q = rows.shape[0]
        if z.shape[0] == 1:
            return torch.mv(rows[0].mT, by_row[0]).unsqueeze(0)
        if q == 1:
            return by_row @ rows[0]
        return (by_row.unflatten(0, (-1, q)).transpose(0, 1) @ rows).transpose(0, 1).flatten(0, 1)

    def _make_room(self, arm: Tensor, now: float) -> None:
        """Have a row of G for every arm and a free point in every member."""
        if self._points_bound == self.point_arm.shape[-1]:
            self._pack(now)
        self._points_bound += 1
        known = self.row_of_arm[arm] >= 0
        if not known.is_cuda and bool(known.all()):
            return
        if self._rows_bound + arm.shape[0] > self.rows.shape[1]:
            self._rows_bound = int(self.rows_used)
            short = self._rows_bound + arm.shape[0] - self.rows.shape[1]
            if short > 0:
                more = max(short, min(self.rows.shape[1], 4096))
                self.rows = torch.cat([self.rows, self.rows.new_zeros(self.rows.shape[0], more, self.rows.shape[2])], 1)
        # Two replicates that pull the same new arm get two equal rows; either one serves.
        row = torch.where(known, self.row_of_arm[arm], self.rows_used + torch.cumsum(~known, 0) - 1)
        self.rows[:, row] = self.prior.rows(arm)
        self.row_of_arm[arm] = row
        self.rows_used += (~known).sum()
        self._rows_bound += arm.shape[0]

    def _pack(self, now: float) -> None:
        """Drop the points that no longer matter, move the others to the front, and invert afresh.

        O(n^3), once in at least n/2 steps: amortised O(n^2) a step, and rounding starts over.
        """
        present = torch.as_tensor(self.prior.over_time(now, now), dtype=self.mean.dtype, device=self.mean.device)
        weight = torch.as_tensor(self._weights(now), dtype=self.mean.dtype, device=self.mean.device)
        live = (self.point_count > 0) & (weight.expand_as(self.point_count) >= _NEGLIGIBLE * present)
        used, capacity = int(live.sum(-1).max()), live.shape[-1]
        capacity = 2 * capacity if 2 * used > capacity else capacity
        order = torch.argsort((~live).to(torch.uint8), dim=-1, stable=True)[:, :used]
        live = live.gather(-1, order)
        for name in ("point_arm", "point_time", "point_count", "point_total"):
            old = getattr(self, name).gather(-1, order) * live
            new = old.new_zeros(old.shape[0], capacity)
            new[:, :used] = old
            setattr(self, name, new)
        self._points_bound = used
        self.inverse = self.mean.new_zeros(self.mean.shape[0], capacity, capacity)
        self.inverse[:, :used, :used] = self._invert(used)

    def _invert(self, used: int) -> Tensor:
        """A over the first ``used`` points from scratch; rows and columns of empty points are zero."""
        arm, live = self.point_arm[:, :used], self.point_count[:, :used] > 0
        time = self.point_time[:, :used]
        q = self.rows.shape[0]
        member = torch.arange(arm.shape[0], device=arm.device) % q
        row = self.row_of_arm[arm].clamp_min(0)
        k = self.rows[member[:, None, None], row.unsqueeze(-1), arm.unsqueeze(-2)]
        if self.prior.time_kernel is not None:
            b = arm.shape[0]
            earlier, later = time.unsqueeze(-1).expand(b, used, used), time.unsqueeze(-2).expand(b, used, used)
            between = self.prior.over_time(earlier.reshape(b, -1), later.reshape(b, -1))
            k = k * between.reshape(k.shape)  # type: ignore[union-attr]
        both = live.unsqueeze(-1) & live.unsqueeze(-2)
        spread = torch.where(live, self.noise_variance / self.point_count[:, :used].clamp_min(1.0), 1.0)
        factor = torch.linalg.cholesky(torch.where(both, k, 0.0) + torch.diag_embed(spread))
        return torch.cholesky_inverse(factor) * both

    def get_extra_state(self) -> dict[str, int]:
        """What the tensors alone do not tell."""
        return {"rows_bound": self._rows_bound, "points_bound": self._points_bound}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Counterpart of ``get_extra_state``."""
        self._rows_bound, self._points_bound = state["rows_bound"], state["points_bound"]


def _first(free: Tensor) -> Tensor:
    """Index of the first free point of each member, (b, 1)."""
    return free.to(torch.uint8).argmax(-1, keepdim=True)
