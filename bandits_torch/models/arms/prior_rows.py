"""Rows of a prior covariance over N arms, evaluated when an arm is first pulled and shared by all replicates."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.online_model import ResizableState


class PriorRows(ResizableState):
    """G: row K(x_i, arms) of every arm i pulled so far, one copy for each of the q kernels of a batch.

    Memory O(q u N), u the number of distinct arms held. No call but ``pack`` waits for a GPU.
    """

    rows: Tensor
    row_of_arm: Tensor
    used: Tensor

    def __init__(self, like: Tensor, capacity: int) -> None:
        super().__init__()
        q, n = like.shape
        self.register_buffer("rows", like.new_zeros(q, capacity, n))
        self.register_buffer("row_of_arm", torch.full((n,), -1, dtype=torch.long, device=like.device))
        self.register_buffer("used", torch.zeros((), dtype=torch.long, device=like.device))
        self._bound = 0  # an upper bound of ``used`` that needs no look at the device

    def of(self, arm: Tensor, member: Tensor) -> Tensor:
        """K_i of each member's arm (b,): (b, N)."""
        return self.rows[member % self.rows.shape[0], self.row_of_arm[arm]]

    def between(self, held: Tensor, arm: Tensor, member: Tensor) -> Tensor:
        """K between arms held (b, n) and any others (T, b, k): (T, b, n, k)."""
        row = self.row_of_arm[held].clamp_min(0)
        return self.rows[(member % self.rows.shape[0])[:, None, None], row.unsqueeze(-1), arm.unsqueeze(-2)]

    def minus_through(self, column: Tensor, arm: Tensor, z: Tensor, whole: bool = False) -> Tensor:
        """column - G^T z for column (b, N) and z over points (b, n) of the arms (b, n); reads G once for all members,
        ``whole``: with its free rows."""
        row = self.row_of_arm[arm].clamp_min(0)  # free points, whose z is 0, read row 0
        rows = self.rows if whole else self.rows[:, : max(1, self._bound)]
        by_row = z.new_zeros(z.shape[0], rows.shape[1]).scatter_add_(-1, row, z)
        q = rows.shape[0]
        if z.shape[0] == 1:
            return torch.addmv(column[0], rows[0].mT, by_row[0], alpha=-1).unsqueeze(0)
        column, by_row = (value.unflatten(0, (-1, q)).transpose(0, 1) for value in (column, by_row))
        return torch.baddbmm(column, by_row, rows, alpha=-1).transpose(0, 1).flatten(0, 1)

    def bring(
        self, prior: ArmPrior, arm: Tensor, member: Tensor, point_arm: Tensor, point_count: Tensor
    ) -> None:
        """Have a row for every arm (b,). Where room is short, arms of points that count nothing lose theirs."""
        known = self.row_of_arm[arm] >= 0
        if known.is_cpu and bool(known.all()):
            return
        # on a GPU the most there can be
        new = len(arm[~known].unique()) if known.is_cpu else arm.shape[0]
        if self._bound + new > self.rows.shape[1]:
            self.pack(new, point_arm[point_count > 0])
            known = self.row_of_arm[arm] >= 0
        if not arm.is_cpu:  # how many are new is not known here: write all rows again
            self.take_in(arm, member, prior.rows(arm))
        else:
            row, brings = self._places(arm, member, known)
            arm, row = arm[brings], row[brings]
            self.rows[:, row] = prior.rows(arm)
            self.row_of_arm[arm] = row
            self.used += brings.sum()
        self._bound += arm.shape[0]

    def take_in(self, arm: Tensor, member: Tensor, rows: Tensor) -> None:
        """Have these ``rows`` (q, b, N) of the arms (b,), for which there is room, without a look at what is new."""
        known = self.row_of_arm[arm] >= 0
        row, brings = self._places(arm, member, known)
        row = torch.where(known, self.row_of_arm[arm], row)
        self.rows[:, row] = rows
        self.row_of_arm[arm] = row
        self.used += brings.sum()

    def _places(self, arm: Tensor, member: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Where each new arm's row belongs, (b,), and who brings it: the first member that pulls the arm, O(N)."""
        none = torch.full_like(self.row_of_arm, arm.shape[0])
        first = none.scatter_reduce(0, arm, member, "amin")[arm]
        brings = ~known & (first == member)
        return (self.used + brings.cumsum(0) - 1)[first], brings

    def pack(self, new: int, live: Tensor) -> None:
        """Drop the rows of arms not ``live``; leave room for ``new`` rows, and for as many again."""
        held = torch.zeros_like(self.row_of_arm, dtype=torch.bool)
        held[live] = True
        arms = held.nonzero().squeeze(-1)
        used = len(arms)
        room = used + max(2 * new, min(used, 1024))
        rows = self.rows.new_zeros(self.rows.shape[0], max(room, 32), self.rows.shape[2])
        rows[:, :used] = self.rows[:, self.row_of_arm[arms]]
        self.rows = rows
        self.row_of_arm.fill_(-1)
        self.row_of_arm[arms] = torch.arange(used, device=arms.device)
        self.used.fill_(used)
        self._bound = used

    def widen(self, source: Tensor, new_q: int) -> None:
        """Rows of ``new_q`` kernels, member m of the wider batch being what member source[m] was."""
        old_q = self.rows.shape[0]
        if new_q != old_q:
            self.rows = self.rows[source[:new_q] % old_q]

    def get_extra_state(self) -> int:
        """What the tensors alone do not tell."""
        return self._bound

    def set_extra_state(self, state: int) -> None:
        """Counterpart of ``get_extra_state``."""
        self._bound = state
