"""Exact posterior over N arms whose function over time has a state of several numbers: a Kalman filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bandits_torch.kernels.state_space import Component
from bandits_torch.models.arms.factor_form import half_log1p
from bandits_torch.models.arms.members import PENDING
from bandits_torch.models.arms.prior import StateSpacePrior
from bandits_torch.models.online_model import ResizableState, empty, held_elsewhere


class StateSpaceForm(ResizableState):
    """State of ``ArmGP`` with s numbers per arm: mean m and covariance C of the numbers of all arms.

    The numbers z_c of component c, p_c m_c per arm, have

        f(i, t) = sum_c h_c(t)^T z_c(i, t),   Cov z_c(t) = K_c (x) P_c (x) W_c,
        z_c(t + dt) = (A_c(dt) (x) I) z_c(t) + q

    with h_c(t) = h_c (x) waves(t - origin). Cycles are stored in coordinates that rotate with them, so a cycle
    alone does not change, and its periods add no rounding errors. The prior covariance of z is the same at every time.
    With G the product of the A since the last fold,

        C = sum_c K_c (x) P_c (x) W_c - G R G^T - V^T V,

    so the passing of time changes only G, m, V and ``reduction``. A pull of arm i, with g = h(t) at arm i, c = C g and
    v = g^T c + lambda, is Kalman's update:

        m += c (y - g^T m) / v,   V gets the row c / sqrt(v).

    After every 24 observations a fold sets R to G R G^T + V^T V and G to I. The variance of an arm has a relative error
    of k / lambda times machine precision. ``gain`` and ``surprise`` are as in ``CovarianceForm``.

    At a later time f(t) = g^T z(now) + independent noise with g = A^T h(t), so a prediction changes nothing.

    Its methods are those of ``Form``. Memory O(b (s N)^2). Time O(24 s N + s^2 N) for an observation and for a step of
    time, O(24 (s N)^2) for a fold. Prediction of all arms O(s^2 N), jointly O((s N)^2).

    Source: Sarkka, Solin & Hartikainen 2013, section 4 (the Kalman filter over fixed places). G and V are as in
    ``RecursiveMembers``, here with several K, waves, and rows that change with time.
    """

    mean: Tensor  # (b, s, N)
    reduction: Tensor  # (b, s, s, N), the block of each arm in G R G^T + V^T V
    rows: Tensor  # (b, s N, s N), R
    pending: Tensor  # (b, s, 24, N), V
    frame: Tensor  # (b, s, s), G
    gain: Tensor
    surprise: Tensor
    matrix_0: Tensor  # K_0, (q, N, N), and so on
    prior_variance: Tensor  # (q, N)
    _HELD = ("mean", "reduction", "rows", "pending", "gain", "surprise")
    _PLAIN = ("origin", "filled")

    def __init__(self, prior: StateSpacePrior, batch: int, noise_variance: Tensor) -> None:
        super().__init__()
        self.prior: StateSpacePrior
        held_elsewhere(self, prior=prior)
        self.register_buffer("noise_variance", noise_variance.clone(), persistent=False)
        self.noise_variance: Tensor
        self._read_prior()
        s, N = sum(part.dimension for _, part in prior.components()), prior.num_arms
        shapes = (s, N), (s, s, N), (s * N, s * N), (s, PENDING, N), (), ()
        for name, shape in zip(self._HELD, shapes, strict=True):
            self.register_buffer(name, self.matrix_0.new_zeros(batch, *shape))
        self.register_buffer("frame", torch.eye(s).to(self.mean).repeat(batch, 1, 1))
        self.register_buffer("_member", torch.arange(batch, device=self.mean.device), persistent=False)
        self._member: Tensor
        self.filled = 0  # rows of V
        self.origin: float | None = None  # time at which the phases of all waves are 0: the first observation

    def _read_prior(self) -> None:
        for k, matrix in enumerate(self.prior.matrices()):
            self.register_buffer(f"matrix_{k}", matrix)
        self.register_buffer("prior_variance", self.prior.diagonal(), persistent=False)

    @property
    def size(self) -> int:
        """s N."""
        return self.rows.shape[-1]

    @property
    def lasting(self) -> tuple[Any, ...]:
        return self.prior, *(getattr(self, f"matrix_{k}") for k in range(len(self.prior.terms)))

    name = "state-space"
    can_forget = False

    def joint_root(self) -> None:
        """None: no root is kept."""

    # -- learning --------------------------------------------------------------------------------------

    def move(self, now: float, time: float) -> None:
        """Advance from ``now`` to ``time``: Kalman's prediction."""
        if all(part.still for _, part in self.prior.components()):
            return
        kept = self.prior.step(time - now)
        for value in (self.mean, self.pending, self.frame, self.reduction, self.reduction.transpose(1, 2)):
            self._move(value, kept)

    def _parts(self) -> Iterator[tuple[int, Component, slice]]:
        """For each component: the index of its term, the component, and its slice of the s numbers."""
        at = 0
        for term, part in self.prior.components():
            yield term, part, slice(at, at + part.dimension)
            at += part.dimension

    def _move(self, value: Tensor, kept: list[Tensor]) -> None:
        """Multiply ``value`` (b, s, ...) in place by A, component by component."""
        for (_, part, numbers), a in zip(self._parts(), kept, strict=True):
            own, p = value[:, numbers], len(part.measurement)
            if part.still:
                continue
            if p == 1:
                own.mul_(a.reshape(-1, *[1] * (own.dim() - 1)))
            else:
                own.copy_((a @ own.unflatten(1, (p, -1)).flatten(2)).reshape(own.shape))

    def add(self, arm: Tensor, residual: Tensor, now: float, where: Tensor | None = None) -> None:
        """Observe y - prior mean = ``residual`` (b,) at ``arm`` (b,)."""
        if self.origin is None:
            self.origin = now
        g = self.measured(now, now).expand(len(arm), -1)
        column = self._column(arm, g)
        variance = self._at(column, arm, g).clamp_min(0.0)
        total = variance + self.noise_variance
        scale = total.rsqrt() if where is None else total.rsqrt() * where.unsqueeze(-1)
        unit = column * scale.unsqueeze(-1)
        innovation = (residual.unsqueeze(-1) - self._at(self.mean, arm, g)) * scale
        self.mean.addcmul_(unit, innovation.unsqueeze(-1))
        self.surprise.add_(innovation.squeeze(-1).square())
        self.reduction.addcmul_(unit.unsqueeze(2), unit.unsqueeze(1))
        self.pending[:, :, self.filled] = unit
        self.filled += 1
        self.gain.add_(half_log1p(variance / self.noise_variance, where))
        if self.filled == PENDING:
            self.fold()

    def _at(self, value: Tensor, arm: Tensor, g: Tensor) -> Tensor:
        """g^T ``value`` (b, s, N) at each member's arm, (b, 1)."""
        return (value[self._member, :, arm] * g).sum(-1, keepdim=True)

    def _column(self, arm: Tensor, g: Tensor) -> Tensor:
        """Covariance of all numbers with g^T z, g (b, s), of each member's arm: (b, s, N)."""
        parts = []
        for term, part, numbers in self._parts():
            own = g[:, numbers].unflatten(-1, (len(part.measurement), part.width))
            seen = part.covariance.squeeze(1).to(g) @ own * part.wave_weights().to(g)
            K = getattr(self, f"matrix_{term}")
            parts.append(seen.flatten(1).unsqueeze(-1) * K[self._member % len(K), arm].unsqueeze(1))
        before = (g.unsqueeze(1) @ self.frame).squeeze(1)
        of_arm = self.rows.unflatten(1, self.mean.shape[1:])[self._member, :, arm]  # (b, s, s N)
        taken = self.frame @ (before.unsqueeze(1) @ of_arm).reshape(self.mean.shape)
        waiting = self.pending[:, :, : self.filled]
        seen = (waiting[self._member, :, :, arm] * g.unsqueeze(-1)).sum(1)
        return torch.cat(parts, 1) - (taken + (seen[:, None, None] @ waiting).squeeze(-2))

    def fold(self) -> None:
        """Set R to G R G^T + V^T V, V to 0 and G to I."""
        self.rows, self.filled = self.whole(), 0
        self.pending.zero_()
        self.frame.copy_(torch.eye(self.frame.shape[-1]))
        own = self.rows.unflatten(2, self.mean.shape[1:]).unflatten(1, self.mean.shape[1:])
        self.reduction.copy_(own.diagonal(dim1=2, dim2=4))

    def whole(self) -> Tensor:
        """G R G^T + V^T V, (b, s N, s N)."""
        rows, shape = self.rows.clone(), self.mean.shape[1:]
        kept = [
            self.frame[:, own, own][:, :: part.width, :: part.width]  # the waves of a component move alike
            for _, part, own in self._parts()
        ]
        self._move(rows.unflatten(1, shape), kept)
        self._move(rows.unflatten(2, shape).movedim(2, 1), kept)
        new = self.pending[:, :, : self.filled].transpose(1, 2).flatten(2)
        return torch.baddbmm(rows, new.mT, new)

    def reset(self, scale: Tensor | float, where: Tensor | None = None) -> None:
        empty((getattr(self, name) for name in self._HELD), where)
        if where is None:
            self.frame.copy_(torch.eye(self.frame.shape[-1]))
            self.filled, self.origin = 0, None

    def widen(self, source: Tensor) -> None:
        for name, held in list(self.named_buffers(recurse=False)):
            if not name.startswith(("matrix_", "prior_")):
                setattr(self, name, held[source])
        self._read_prior()
        self._member = torch.arange(len(source), device=source.device)

    # -- predicting ------------------------------------------------------------------------------------

    def measured(self, now: float | None, time: float | Tensor) -> Tensor:
        """g with f(time) = g^T z(now) + independent noise: (b, s) or (1, s) for a number, (..., b, n, s) for times
        (..., b, n)."""
        number = not isinstance(time, Tensor)
        times = torch.full((1, 1), time, dtype=torch.float64) if number else time.double()  # type: ignore[union-attr, arg-type]
        times = times.to(self.mean.device)
        since, phase = times - (now or 0.0), times - (self.origin if self.origin is not None else now or 0.0)
        rows = []
        for _, part in self.prior.components():
            over = part.measurement @ part.decay(since)
            rows.append((over.unsqueeze(-1) * part.waves(phase).unsqueeze(-2)).flatten(-2))
        shape = torch.broadcast_shapes(*[row.shape[:-1] for row in rows])
        g = torch.cat([row.expand(*shape, -1) for row in rows], -1).to(self.mean)
        return g.squeeze(-2) if number else g

    def _seen_at(self, now: float | None, time: float | None) -> Tensor:
        """g as a row, (b, 1, s) or (1, 1, s); arguments as for ``Form.at_time``."""
        then = (now or 0.0) if time is None else time
        return self.measured(then if now is None else now, then).unsqueeze(1)

    def at_time(self, now: float | None, time: float | None) -> tuple[Tensor, Tensor]:
        g = self._seen_at(now, time)
        mean = (g @ self.mean).squeeze(1)
        taken = (g @ (g @ self.reduction.flatten(2)).reshape(self.mean.shape)).squeeze(1)
        return mean, self._from_prior(self.prior_variance, taken)

    def joint_at(self, now: float | None, time: float | None) -> Tensor:
        g, shape = self._seen_at(now, time), self.mean.shape[1:]
        half = (g @ self.whole().unflatten(1, shape).flatten(2)).reshape(-1, shape[1], *shape)
        return self._from_prior(self.prior.matrix(), (half * g.unsqueeze(-1)).sum(2))

    def at(self, arm: Tensor, now: float | None, times: Tensor | None) -> tuple[Tensor, Tensor]:
        if times is None:
            times = torch.full(arm.shape, now or 0.0, dtype=torch.float64, device=arm.device)
        now = float(times.min()) if now is None else now
        g, member = self.measured(now, times), self._member[:, None]  # (T, b, n, s)
        mean = (self.mean[member, :, arm] * g).sum(-1)
        if arm.shape[-1] == 1:
            blocks = self.reduction[member, :, :, arm].unsqueeze(-4)  # (T, b, 1, 1, s, s)
        else:
            shape = self.mean.shape[1:]
            whole = self.whole().unflatten(2, shape).unflatten(1, shape)
            blocks = whole[self._member[:, None, None], :, arm.unsqueeze(-1), :, arm.unsqueeze(-2)]
        taken = ((blocks * g[:, :, None, :, None, :]).sum(-1) * g.unsqueeze(-2)).sum(-1)
        return mean, self.prior.in_time(arm, times) - taken

    def _from_prior(self, prior: Tensor, taken: Tensor) -> Tensor:
        """Prior (q, ...) minus the reduction (b, ...)."""
        return (prior - taken.unflatten(0, (-1, len(prior)))).flatten(0, 1)
