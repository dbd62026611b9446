"""What a batch of models has observed: the observations it holds, oldest first, and the distinct points among them,
which change as time passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch.models.arms.prior import ArmPrior, PriorRows
from bandits_torch.models.online_model import ResizableState, held_elsewhere

_ROOM = 64  # observations of a member for which memory is first allocated


class ObservationBuffer(ResizableState):
    """A first-in, first-out store of (arm, reward, time) for each of b batch members.

    Members can hold different numbers of observations. Every operation is O(b) but for the rare
    moments when the buffer is full: then it is packed, and doubled if more than half of it is in use.

    Attributes:
        arm, reward, time: (b, capacity); member k holds columns ``start[k] .. end[k] - 1``.
        start, end: (b,) integers.
        noise: (b, capacity), noise variances of single observations, NaN for the model's; None until there is one.
    """

    arm: Tensor
    reward: Tensor
    time: Tensor
    start: Tensor
    end: Tensor
    noise: Tensor | None
    _PLAIN = ("_end_bound",)

    def __init__(self, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("arm", torch.zeros(batch, _ROOM, dtype=torch.long, device=device))
        self.register_buffer("reward", torch.zeros(batch, _ROOM, dtype=dtype, device=device))
        self.register_buffer("time", torch.zeros(batch, _ROOM, dtype=torch.float64, device=device))
        self.register_buffer("start", torch.zeros(batch, dtype=torch.long, device=device))
        self.register_buffer("end", torch.zeros(batch, dtype=torch.long, device=device))
        self.register_buffer("noise", None)
        self._end_bound = 0  # no member's end exceeds it; known without asking the device

    @property
    def count(self) -> Tensor:
        """How many observations each member holds, (b,)."""
        return self.end - self.start

    def append(self, arm: Tensor, reward: Tensor, time: float, where: Tensor | None) -> None:
        """Add one observation to each member (or to those with ``where`` True)."""
        if self._end_bound == self.arm.shape[-1]:
            self._make_room()
        at = self.end.unsqueeze(-1)
        # A member left out is written to as well, just past its end, where nothing is read.
        self.arm.scatter_(-1, at, arm.unsqueeze(-1))
        self.reward.scatter_(-1, at, reward.unsqueeze(-1))
        self.time.scatter_(-1, at, time)
        self.end.add_(1 if where is None else where)
        self.__dict__["_end_bound"] += 1  # past ``__setattr__``, which takes longer than the sum

    def reserve(self, more: int, length: int) -> None:
        """Make room for ``more`` observations of every member; ``length``: the largest present count."""
        if self._end_bound + more > self.arm.shape[-1]:
            self._pack(length, max(self.arm.shape[-1], length + more))

    def extend(self, arm: Tensor, reward: Tensor, times: Tensor, length: int) -> None:
        """Add k observations to each member, arm and reward (b, k), times (k,), oldest first; ``length``: the largest
        count before. O(b k), without a look at the device."""
        k = len(times)
        if self._end_bound + k > self.arm.shape[-1]:
            capacity = self.arm.shape[-1]
            self._pack(length, capacity if 2 * (length + k) <= capacity else 2 * (length + k))
        at = self.end.unsqueeze(-1) + torch.arange(k, device=self.end.device)
        self.arm.scatter_(-1, at, arm)
        self.reward.scatter_(-1, at, reward.to(self.reward))
        self.time.scatter_(-1, at, times.to(self.time).expand_as(at))
        self.end.add_(k)
        self._end_bound += k

    def note_noise(self, noise: Tensor, where: Tensor | None = None) -> None:
        """Set the noise variance (b,) of the observation added next, in the members with ``where`` True."""
        if self._end_bound == self.arm.shape[-1]:
            self._make_room()
        if self.noise is None:
            self.noise = torch.full_like(self.reward, torch.nan)
        noise = noise.to(self.noise)
        noise = noise if where is None else torch.where(where, noise, torch.nan)
        self.noise.scatter_(-1, self.end.unsqueeze(-1), noise.unsqueeze(-1))

    def noises(self, otherwise: Tensor | float, length: int | None = None) -> Tensor | None:
        """The noise variances of the observations ``held``, (b, n); ``otherwise`` (b, 1) where none was given. None if
        none was ever given."""
        if self.noise is None:
            return None
        at, valid = self._columns(length)
        noise = self.noise.gather(-1, at)
        return torch.where(noise.isnan() | ~valid, torch.as_tensor(otherwise).to(noise), noise)

    def pop(self, where: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Remove the oldest observation of the members with ``where`` True that hold any.

        Returns the oldest (arm, reward, time) of each member, (b,) each, meaningless if it is empty, and the mask of
        members that lost one.
        """
        held, at = where & (self.end > self.start), self.start.clamp(max=self.arm.shape[-1] - 1).unsqueeze(-1)
        arm, reward, time = self.arm.gather(-1, at), self.reward.gather(-1, at), self.time.gather(-1, at)
        self.start.add_(held)
        return arm.squeeze(-1), reward.squeeze(-1), time.squeeze(-1), held

    def drop_oldest(self, where: Tensor | int) -> None:
        """Remove the oldest observation of the members with ``where`` True; a number ``where`` removes so many of every
        member."""
        self.start.add_(where)

    def clear(self, where: Tensor | None, but: Tensor | int = 0) -> None:
        """Remove all observations (of the members with ``where`` True, except the latest ``but``)."""
        if where is None:
            self.start.zero_()
            self.end.zero_()
            self._end_bound = 0
            self.noise = None
        else:
            self.start.copy_(torch.where(where, self.end - but, self.start))

    def held(self, length: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(arm, reward, time, valid), each (b, n) with n the largest count (``length``: as it is known); older first,
        padding last."""
        at, valid = self._columns(length)
        return self.arm.gather(-1, at), self.reward.gather(-1, at), self.time.gather(-1, at), valid

    def _columns(self, length: int | None) -> tuple[Tensor, Tensor]:
        """Where each member's observations are, oldest first, and which of these columns it holds, (b, n) each."""
        count = self.count
        column = torch.arange(int(count.max()) if length is None else length, device=count.device)
        at = (self.start.unsqueeze(-1) + column).clamp(max=self.arm.shape[-1] - 1)
        return at, column < count.unsqueeze(-1)

    def _make_room(self) -> None:
        """Pack every member to the front; double the capacity if more than half of it stays in use."""
        length, capacity = int(self.count.max()), self.arm.shape[-1]
        self._pack(length, 2 * capacity if 2 * length > capacity else capacity)

    def _pack(self, length: int, capacity: int) -> None:
        """Every member to the front, none of which holds more than ``length``."""
        arm, reward, time, _ = self.held(length)
        noise = self.noises(torch.nan, length)
        room = (0, capacity - length)
        self.arm, self.reward, self.time = (pad(packed, room) for packed in (arm, reward, time))
        if noise is not None:
            self.noise = pad(noise, room, value=torch.nan)
        self.end.copy_(self.count)
        self.start.zero_()
        self._end_bound = length

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ObservationBuffer:
        """``model.to(float32)`` leaves times in float64: a clock of seconds has more digits than float32."""
        exact = self.time
        super()._apply(fn, recurse)
        self.time = exact.to(self.time.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        incoming = state_dict.get(prefix + "noise")
        self.noise = None if incoming is None else torch.empty_like(self.reward)
        super()._load_from_state_dict(state_dict, prefix, *args)


_NEGLIGIBLE = 1e-12  # a past point whose correlation with the present is below this no longer matters
_DEEP = 1e4  # largest prior variance, in units of the noise, from which it is safe to subtract
ROOM = 32  # points for which memory is first allocated
_FEW = 64  # spare rows that always cost little
_PRIORS: WeakValueDictionary[int, ArmPrior] = WeakValueDictionary()


@torch.library.custom_op("bandits_torch::prior_rows", mutates_args=())
def prior_rows(arm: Tensor, like: Tensor, prior: int, batch: int) -> Tensor:
    """K between the arms (n,) and all N arms, (batch, n, N), for the prior of that number in ``_PRIORS``. It is one
    operation, so that a graph of steps does not trace the kernel."""
    return _PRIORS[prior].rows(arm).contiguous()


@prior_rows.register_fake
def _(arm: Tensor, like: Tensor, prior: int, batch: int) -> Tensor:
    return like.new_empty(batch, len(arm), like.shape[-1])


class ObservedPoints(ResizableState):
    """Points (an arm at a time) of each of b members, with their counts, totals and two matrices among them.

    The points of ``FactorForm``. Always float64. A free point has count 0 and null rows.

    Under drift a new row of P is computed from the latest point l of the same arm i, at time s. There
    f(i, now) = a f(i, s) + g with Var g = c K_ii, and g is independent of everything up to s. Only points after s carry
    information about g, through covariances k_g of the size of c. So, with D = lambda / count,

        P_i = a P_l + D z_g,   z_g = (K_points + D)^{-1} k_g,   P_ii = a^2 P_ll + 2 a (D z_g)_l + c K_ii - k_g^T z_g,

    and the covariance of f(i, now) with any point of row r and z = r / D is a r_l + k_g(its time) - k_g^T z. The prior
    variance at s, which under a Wiener process grows with the time since its start, appears in none of them.

    While the prior variance is moderate compared with the noise, subtracting from it loses few digits. Rows and columns
    are then computed from the prior, as in ``FactorForm``, which saves O(u n) a step under a Wiener kernel.

    Attributes:
        point_arm, point_time, point_count, point_total: (b, capacity).
        covariance, prior_covariance: posterior P and prior K among the points, (b, capacity, capacity).
        rows: prior covariances between the points' arms and all arms.
        keeps_faint_points: whether points are kept however little they still say about the present.
        blind: whether no value may be read on the host, because a step becomes part of a graph. Every step then works
            as if its arm were new, in the room that ``reserve`` made before.
    """

    point_arm: Tensor
    point_time: Tensor
    point_count: Tensor
    point_total: Tensor
    covariance: Tensor
    prior_covariance: Tensor
    _given: ArmPrior  # in the model's dtype
    noise_variance: Tensor
    prior_variance: Tensor
    _depth: Tensor  # (b, 1), the largest prior variance over the arms, in units of the noise

    _deep_held: Tensor | None  # in blind steps, whose prior variance stays what it is
    _PLAIN = ("_points_bound", "keeps_faint_points", "_dropped_any")

    def __init__(self, prior: ArmPrior, diagonal: Tensor, batch: int) -> None:
        super().__init__()
        self.prior: ArmPrior
        held_elsewhere(self, prior=prior.in_double(), _given=prior)
        new = diagonal.new_zeros
        self.rows = PriorRows(diagonal, ROOM)
        self.register_buffer("covariance", new(batch, ROOM, ROOM))
        self.register_buffer("prior_covariance", new(batch, ROOM, ROOM))
        self.register_buffer("point_arm", new(batch, ROOM, dtype=torch.long))
        self.register_buffer("point_time", new(batch, ROOM))
        self.register_buffer("point_count", new(batch, ROOM))
        self.register_buffer("point_total", new(batch, ROOM))
        self.register_buffer("_member", torch.arange(batch, device=diagonal.device), persistent=False)
        self._member: Tensor
        self._points_bound = 0  # an upper bound that needs no look at the device
        self.register_buffer("_deep_held", None, persistent=False)
        self._packed = 0  # how often points moved
        self.keeps_faint_points = self._dropped_any = self.blind = False

    @property
    def size(self) -> int:
        """How many points there is room for."""
        return self.point_arm.shape[-1]

    @property
    def lasting(self) -> tuple[ArmPrior, ...]:
        """Tensors that no observation changes."""
        return self.prior, self._given

    @property
    def can_forget(self) -> bool:
        """An observation can be removed while its point is held: it is part of gain and likelihood, however faint."""
        return not self._dropped_any

    def _match(self, arm: Tensor, time: Tensor | float) -> Tensor:
        """Which of the points (b, n) is this arm (at this time)."""
        match = (self.point_arm == arm.unsqueeze(-1)) & (self.point_count > 0)
        return match if self.prior.time_kernel is None else match & (self.point_time == time)

    def _weights(self, now: float) -> Tensor:
        """w: time kernel between each point's time and now, (b, n); 1 when static."""
        return self.prior.over_time(self.point_time, now).expand(self.point_time.shape)

    def _set_row(self, matrix: Tensor, point: Tensor, row: Tensor) -> None:
        matrix[self._member, point] = row
        matrix[self._member, :, point] = row

    def _count(self, point: Tensor, by: float, residual: Tensor, where: Tensor | None) -> None:
        step = torch.full_like(residual, by) if where is None else where.to(residual.dtype) * by
        total = residual if where is None else torch.where(where, residual, 0.0)
        self.point_count.scatter_add_(-1, point.unsqueeze(-1), step.unsqueeze(-1))
        self.point_total.scatter_add_(-1, point.unsqueeze(-1), total.unsqueeze(-1))
        if by < 0:  # an emptied point keeps no rounding residue
            self.point_total.masked_fill_(self.point_count == 0, 0.0)

    def _make_room(self, arm: Tensor, now: float) -> None:
        """Have a row of G for every arm and a free point in every member."""
        if self.blind:
            rows = prior_rows(arm, self.prior_variance, id(self.prior), self.prior.flat_batch)
            self.rows.take_in(arm, self._member, rows)
            return
        if self._points_bound == self.size:
            self._pack(now)
        self.rows.bring(self.prior, arm, self._member, self.point_arm, self.point_count)

    def reserve(self, steps: int, now: float, blind: bool) -> int:
        """How many of the next steps may be played before another call: all of them; with ``blind``, as many as there
        is room for. Room is made here if little is needed in addition to what is in use. Finding out what is in use
        waits for the device."""
        if not blind:
            return steps
        rows, members = self.rows, len(self._member)
        _PRIORS[id(self.prior)] = self.prior
        self._deep_held = self._deep(now) if self._deep_held is None else self._deep_held
        steps = max(1, min(steps, max(_FEW, rows.bound) // members))
        if self._points_bound + steps > self.size or not rows.has_room(steps * members):
            self._points_bound = int((self.point_count > 0).sum(-1).max())
            if self._points_bound + steps > self.size:
                self._pack(now, 2 * steps)
            rows.reserve(steps * members, self.point_arm[self.point_count > 0])
        return steps

    def played(self, added: int, removed: int) -> None:
        """Note the largest number of points, and of rows for each member, that are new since ``reserve``, perhaps by a
        replay that Python did not see."""
        self._points_bound += added
        self.rows.bound += added * len(self._member)

    @property
    def place(self) -> tuple[int, ...]:
        """A key that differs if blind steps would use other memory."""
        return self._packed, self.rows.packed

    def _pack(self, now: float, spare: int = 32) -> None:
        """Drop the points that no longer matter, move the others to the front and leave room for a quarter more, and
        for at least ``spare``.

        Every step costs the square of the whole room, while moving happens once in many steps: so little room is
        spared.
        """
        held = live = self.point_count > 0
        if self.prior.time_kernel is not None and not self.keeps_faint_points:
            live = held & (self._weights(now) >= _NEGLIGIBLE * self.prior.present(now))
            self._dropped_any = self._dropped_any or bool((held != live).any())
        used = int(live.sum(-1).max())
        capacity = used + max(spare, used // 4)
        order = torch.argsort((~live).to(torch.uint8), dim=-1, stable=True)[:, :used]
        live = live.gather(-1, order)
        for name in ("point_arm", "point_time", "point_count", "point_total"):
            packed = getattr(self, name).gather(-1, order) * live
            setattr(self, name, torch.nn.functional.pad(packed, (0, capacity - used)))
        member, row, column = self._member[:, None, None], order.unsqueeze(-1), order.unsqueeze(-2)
        for name in ("covariance", "prior_covariance"):
            packed = getattr(self, name)[member, row, column]
            setattr(self, name, torch.nn.functional.pad(packed, (0, capacity - used, 0, capacity - used)))
        self._points_bound = used
        self._packed += 1

    # -- as time passes --------------------------------------------------------------------------------

    def _measure_depth(self) -> None:
        depth = self.prior_variance.amax(-1, keepdim=True) / self.noise_variance
        self.register_buffer("_depth", depth, persistent=False)
        self._deep_held = None

    def _deep(self, now: float) -> Tensor | None:
        """The members whose new points are computed from the latest point of their arm, (b, 1). None: none of them, as
        far as is known without waiting for a GPU."""
        if self.prior.time_kernel is None:
            return None
        if self.blind:
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
        """The present row of P for ``arm``, with P_jj ``at_point``, computed from the arm's latest point; and whether
        it has one, in the members that are ``deep``. Elsewhere the row is D (K_points + D)^{-1} ``cross``."""
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
        """``column``, the present covariances (b, N) of all arms with a point at ``time`` (b, 1). In members that are
        ``deep``, those of arms with points are computed as in ``_row_since``: a P_l + c K - k_g^T z for the arm's
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

    # -- device, dtype, state --------------------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ObservedPoints:
        """``model.to(float32)`` leaves these tensors in float64, to the last digit."""
        exact = [dict(holder.named_buffers(recurse=False)) for holder in (self, self.rows)]
        super()._apply(fn, recurse)
        vars(self)["prior"] = self._given.in_double()
        for holder, buffers in zip((self, self.rows), exact, strict=True):
            for name, held in buffers.items():
                setattr(holder, name, held.to(getattr(holder, name).device))
        return self
