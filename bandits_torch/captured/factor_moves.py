"""Captured moves of ``FactorForm``, in segments of fixed room."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from bandits_torch.captured.opaque_rows import opaque_rows
from bandits_torch.captured.steps import Books, Given
from bandits_torch.models.arms.belief import ArmBelief
from bandits_torch.models.arms.factor_form import FactorForm

_FEW = 64  # rows to spare that cost little beside those in use


class FactorMoves:
    """Observations come and go by the form's own ``add`` and ``remove``.

    The form grows: a row for every new arm, a point for every new arm (under drift, for every observation). Within a
    segment its room is fixed and every step works as if all were new, which needs no look at what is; the host looks
    once a block at what room is left, and moves to a larger one when it is short.

    Args:
        static: whether no value may be looked at; else, on a CPU, the form looks, and does only what is needed.
    """

    def __init__(self, belief: ArmBelief, static: bool = True) -> None:
        assert isinstance(belief.form, FactorForm)
        self.form: FactorForm = belief.form
        self.belief, self.static = belief, static
        self._all = torch.ones_like(self.form.frail)
        self._rows_of = opaque_rows(self.form.prior)
        self.segments = 0  # so often was room made

    def most(self, wanted: int) -> int:
        """As many as leave the spare rows few beside those in use; makes room for them."""
        form, rows, members = self.form, self.form.rows, len(self.form.mean)
        if not self.static:
            return wanted
        wanted = max(1, min(wanted, max(_FEW, rows._bound) // members))
        if form._points_bound + wanted > form.size or rows._bound + wanted * members > rows.rows.shape[1]:
            self._make_room(wanted)
        return wanted

    def _make_room(self, steps: int) -> None:
        """Look at what is in use; take a larger room if it leaves too little for so many steps."""
        form, rows, members = self.form, self.form.rows, len(self.form.mean)
        form._points_bound = int((form.point_count > 0).sum(-1).max())
        if form._points_bound + steps > form.size:
            form._pack(self.belief.now or 0.0, 2 * steps)
            self.segments += 1
        rows._bound = int(rows.used)
        if rows._bound + steps * members > rows.rows.shape[1]:
            rows.pack(steps * members, form.point_arm[form.point_count > 0])
            self.segments += 1
        form._deep_held = form._deep(self.belief.now or 0.0)

    def given(self, times: Sequence[float]) -> Given:
        """The times, which are part of the points' names."""
        return {"now": torch.tensor(times, dtype=torch.float64, device=self.form.mean.device)}

    def key(self) -> Hashable:
        """Which room: the next may be as large, and lies elsewhere."""
        return self.segments, self.form.size, self.form.rows.rows.data_ptr()

    def tell(self, given: Given, j: int, arm: Tensor, residual: Tensor, books: Books) -> None:
        """Observe ``residual`` (b,) of ``arm`` (b,); the oldest observation leaves, if any is given."""
        form, now = self.form, self._now(given, j)
        if self.static:
            form.captured_rows = self._rows_of
        form.add(arm, residual, now)  # type: ignore[arg-type]
        if "leaving_arm" in given:
            gone = given["leaving_arm"][j], given["leaving"][j], given["leaving_time"][j]
            form.remove(*gone, now, self._all)  # type: ignore[arg-type]
        form.captured_rows = None

    def _now(self, given: Given, j: int) -> Tensor | float:
        if self.form.prior.time_kernel is None:
            return 0.0
        now = given["now"][j]
        return now.expand(len(self.form.mean), 1) if self.static else float(now)

    def close(self, books: Books) -> None:
        """Nothing: the form keeps its books at every step."""

    def after(self, steps: int, rows: int) -> None:
        """At most so many points and rows are new."""
        if self.static:
            self.form._points_bound += steps
            self.form.rows._bound += steps * len(self.form.mean)
