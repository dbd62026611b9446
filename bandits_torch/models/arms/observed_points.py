"""The distinct points that a batch of models has observed, and the room for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.arms.prior_rows import PriorRows
from bandits_torch.models.online_model import ResizableState, held_elsewhere

_NEGLIGIBLE = 1e-12  # a past point whose correlation with the present is below this no longer matters


class ObservedPoints(ResizableState):
    """Points (an arm at a time) of each of b members, with their counts, totals and two matrices among them.

    What ``FactorForm`` keeps its books in. Always float64. A free point has count 0 and null rows.

    Attributes:
        point_arm, point_time, point_count, point_total: (b, capacity).
        covariance, prior_covariance: posterior P and prior K among the points, (b, capacity, capacity).
        rows: prior covariances between the points' arms and all arms.
        keeps_faint_points: whether points are kept however little they still say of the present.
    """

    point_arm: Tensor
    point_time: Tensor
    point_count: Tensor
    point_total: Tensor
    covariance: Tensor
    prior_covariance: Tensor
    _given: ArmPrior  # in the model's dtype

    def __init__(self, prior: ArmPrior, diagonal: Tensor, batch: int, capacity: int) -> None:
        super().__init__()
        self.prior: ArmPrior
        held_elsewhere(self, prior=prior.in_double(), _given=prior)
        new = diagonal.new_zeros
        self.rows = PriorRows(diagonal, capacity)
        self.register_buffer("covariance", new(batch, capacity, capacity))
        self.register_buffer("prior_covariance", new(batch, capacity, capacity))
        self.register_buffer("point_arm", new(batch, capacity, dtype=torch.long))
        self.register_buffer("point_time", new(batch, capacity))
        self.register_buffer("point_count", new(batch, capacity))
        self.register_buffer("point_total", new(batch, capacity))
        self.register_buffer("_member", torch.arange(batch, device=diagonal.device), persistent=False)
        self._member: Tensor
        self._points_bound = 0  # an upper bound that needs no look at the device
        self.keeps_faint_points = self._dropped_any = False
        # In a captured step (``bandits_torch.captured``): the prior's rows as one operation. Room is then made before,
        # and no value is looked at.
        self.captured_rows: Callable[[Tensor], Tensor] | None = None

    @property
    def size(self) -> int:
        """How many points there is room for."""
        return self.point_arm.shape[-1]

    @property
    def lasting(self) -> tuple[ArmPrior, ...]:
        """What no observation changes."""
        return self.prior, self._given

    @property
    def can_forget(self) -> bool:
        """An observation can be removed as long as its point is there: gain and likelihood know it, however faint."""
        return not self._dropped_any

    def _match(self, arm: Tensor, time: Tensor | float) -> Tensor:
        """Which of the points (b, n) is this arm (at this time)."""
        match = (self.point_arm == arm.unsqueeze(-1)) & (self.point_count > 0)
        return match if self.prior.time_kernel is None else match & (self.point_time == time)

    def _weights(self, now: float) -> Tensor | float:
        """w: time kernel between each point's time and now, (b, n); 1 when static."""
        return 1.0 if self.prior.time_kernel is None else self.prior.over_time(self.point_time, now)

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
        if self.captured_rows is not None:
            self.rows.take_in(arm, self._member, self.captured_rows(arm))
            return
        if self._points_bound == self.size:
            self._pack(now)
        self.rows.bring(self.prior, arm, self._member, self.point_arm, self.point_count)

    def _pack(self, now: float, spare: int = 32) -> None:
        """Drop the points that no longer matter, move the others to the front and leave room for a quarter more, and
        for at least ``spare``.

        Every step works on the whole room squared, while moving is paid once in many steps: so little to spare.
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

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ObservedPoints:
        """``model.to(float32)`` leaves what is in here in float64, to the last figure."""
        exact = [dict(holder.named_buffers(recurse=False)) for holder in (self, self.rows)]
        super()._apply(fn, recurse)
        vars(self)["prior"] = self._given.in_double()
        for holder, buffers in zip((self, self.rows), exact, strict=True):
            for name, held in buffers.items():
                setattr(holder, name, held.to(getattr(holder, name).device))
        return self

    def get_extra_state(self) -> dict[str, int]:
        """What the tensors alone do not tell."""
        names = ("_points_bound", "keeps_faint_points", "_dropped_any")
        return {name: getattr(self, name) for name in names}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Counterpart of ``get_extra_state``."""
        for name, value in state.items():
            setattr(self, name, value)
