"""Points whose covariances with now are written from the latest point of each arm, not from the start of time."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.models.arms.observed_points import ObservedPoints

_DEEP = 1e4  # so large may the prior variance be, in units of the noise, before a difference with it costs too much


class PointsInTime(ObservedPoints):
    """P among points of a function that moves on.

    With s the time of the latest point l of arm i and f(i, now) = a f(i, s) + g, Var g = c K_ii, the part g is
    independent of all up to s: only points after s tell of it, by covariances k_g of the size of c. So, with
    D = lambda / count,

        P_i = a P_l + D z_g,   z_g = (K_points + D)^{-1} k_g,   P_ii = a^2 P_ll + 2 a (D z_g)_l + c K_ii - k_g^T z_g,

    and the covariance of f(i, now) with any point of row r and z = r / D is a r_l + k_g(its time) - k_g^T z. The prior
    variance at s, which under a Wiener process is as large as the clock stands high, appears in none of them.

    While the prior variance is not that large beside the noise, a difference with it costs figures nobody misses, and
    rows and columns are written from the prior, as ``FactorForm`` says: O(u n) less a step under a Wiener kernel.
    """

    noise_variance: Tensor
    prior_variance: Tensor
    _depth: Tensor  # (b, 1), the largest prior variance over the arms, in units of the noise

    _deep_held: Tensor | None = None  # in a captured step: as the host has seen it before

    def _measure_depth(self) -> None:
        depth = self.prior_variance.amax(-1, keepdim=True) / self.noise_variance
        self.register_buffer("_depth", depth, persistent=False)

    def _deep(self, now: float) -> Tensor | None:
        """In which members points are written from the latest of their arms, (b, 1); None: in none of them, as far as
        can be told without waiting for a GPU."""
        if self.prior.time_kernel is None:
            return None
        if self.captured_rows is not None:
            return self._deep_held
        deep = self._depth * self.prior.present(now) > _DEEP
        return None if deep.is_cpu and not bool(deep.any()) else deep

    @property
    def _wanders(self) -> bool:
        """Whether the prior variance grows with time."""
        return self.prior.time_kernel is not None and not self.prior.time_kernel.is_stationary

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
        """Row of P of ``arm`` now, with P_jj ``at_point``, by what happened since its latest point; and where it has
        one, in the members that are ``deep``. Elsewhere the row is D (K_points + D)^{-1} ``cross``."""
        held = self.point_count > 0
        same = held & (self.point_arm == arm.unsqueeze(-1))
        seen = same.any(-1, keepdim=True) & deep
        latest = torch.where(same, self.point_time, -torch.inf).argmax(-1)
        s = torch.where(seen, self.point_time.gather(-1, latest.unsqueeze(-1)), now)
        kept, gained = self.prior.transition(s, now)
        news, to_now = (
            self.prior.transition(s, self.point_time)[1],
            self.prior.transition(self.point_time, now)[0],
        )
        since = torch.where(held & (self.point_time > s), prior_to_points * news * to_now, 0.0)
        cross = torch.where(seen, since, cross)
        # Where the prior variance wanders off, a residual of k_g has its rounding errors and would do harm.
        refine = ~seen.unsqueeze(-1) if self._wanders else None
        z = self._solve(cross.unsqueeze(-1), refine).squeeze(-1)
        told, base = self._spread() * z, torch.where(seen, kept * self.covariance[self._member, latest], 0.0)
        at = latest.unsqueeze(-1)
        variance = kept * (base.gather(-1, at) + 2 * told.gather(-1, at)) + gained * own
        row = (base + told) * held
        return row.scatter(-1, at_point, variance - (cross * z).sum(-1, keepdim=True)), seen.squeeze(-1)

    def _column_since(
        self, column: Tensor, row: Tensor, z: Tensor, own_row: Tensor, time: Tensor, now: float, deep: Tensor
    ) -> Tensor:
        """``column``, covariances (b, N) of all arms now with a point at ``time`` (b, 1), with those of the arms that
        have points, in members that are ``deep``, written as in ``_row_since``: a P_l + c K - k_g^T z for the arm's
        latest point l. ``row`` and ``z``: of that point. O(u n)."""
        held = (self.point_count > 0) & deep
        times = torch.where(held, self.point_time, -torch.inf)
        last = torch.full_like(column, -torch.inf).scatter_reduce(-1, self.point_arm, times, "amax")
        latest = held & (self.point_time == last.gather(-1, self.point_arm))
        u = max(1, int(latest.sum(-1).max())) if latest.is_cpu else self.size
        at = torch.argsort(latest.to(torch.uint8), dim=-1, descending=True, stable=True)[:, :u]
        arm, s, latest = self.point_arm.gather(-1, at), self.point_time.gather(-1, at), latest.gather(-1, at)
        ends = torch.cat([self.point_time, time], -1)  # of k_g: the points, and that of the column
        pairs = (value.flatten(-2) for value in torch.broadcast_tensors(s.unsqueeze(-1), ends.unsqueeze(-2)))
        news = self.prior.transition(*pairs)[1].unflatten(-1, (u, -1))
        news = news * self.prior.transition(ends, now)[0].unsqueeze(-2)
        K = self.rows.between(arm, self.point_arm.unsqueeze(0), self._member)[0]
        K = torch.cat([K, own_row.gather(-1, arm).unsqueeze(-1)], -1)
        k_g = torch.where(ends.unsqueeze(-2) > s.unsqueeze(-1), K * news, 0.0)
        value = self.prior.transition(s, now)[0] * row.gather(-1, at) + k_g[..., -1]
        value = value - (k_g[..., :-1] @ (z * held).unsqueeze(-1)).squeeze(-1)
        return column.scatter_add(-1, arm, torch.where(latest, value - column.gather(-1, arm), 0.0))

    def _spread(self) -> Tensor:
        """D = lambda / count, (b, n)."""
        return self.noise_variance / self.point_count.clamp_min(1.0)

    def _solve(self, cross: Tensor, refine: Tensor | None = None) -> Tensor:
        """(K_points + D)^{-1} cross, for cross (..., b, n, k) that is 0 at free points; one step of refinement, in the
        members with ``refine`` (b, 1, 1) True."""
        precision, spread = (
            (self.point_count / self.noise_variance).unsqueeze(-1),
            self._spread().unsqueeze(-1),
        )
        z = (cross - self.covariance @ (cross * precision)) * precision
        if refine is not None and refine.is_cpu and not bool(refine.any()):
            return z
        residual = cross - self.prior_covariance @ z - spread * z
        finer = z + (residual - self.covariance @ (residual * precision)) * precision
        return finer if refine is None else torch.where(refine, finer, z)
