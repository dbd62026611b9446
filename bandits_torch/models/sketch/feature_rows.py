"""A matrix that gains rows, many columns wide: in one piece while it is small, in blocks that nobody copies above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ONE_PIECE = 2**26  # bytes


class GrowingRows:
    """Rows (m, N) in blocks of memory with room for more, a quarter of what there is.

    Up to 64 MiB a block that is full is copied into a larger one, so that products read one matrix; above, the next
    block stands beside it, so that memory never holds the rows twice.

    Args:
        like: an empty tensor of N columns: dtype and device.
    """

    def __init__(self, like: Tensor) -> None:
        self._blocks = [like[:0]]
        self._last = 0  # rows in use of the last block; the others are full

    @property
    def size(self) -> int:
        """m."""
        return sum(len(block) for block in self._blocks[:-1]) + self._last

    def append(self, rows: Tensor) -> None:
        """Join rows (j, N)."""
        room = len(self._blocks[-1]) - self._last
        first, rest = rows[:room], rows[room:]
        self._blocks[-1][self._last : self._last + len(first)] = first
        self._last += len(first)
        if len(rest):
            self._add_room(len(rest))
            self._blocks[-1][self._last : self._last + len(rest)] = rest
            self._last += len(rest)

    def start(self, size: int) -> None:
        """``size`` rows to be assigned; what there was is lost, and its memory used again if it is enough."""
        if len(self._blocks) > 1 or size > len(self._blocks[0]):
            self._blocks, self._last = [self._blocks[0][:0].clone()], 0  # free the old before the new is made
            self._add_room(size)
        self._last = size

    def assign(self, columns: slice, values: Tensor) -> None:
        """Write some columns (m, n) of all rows."""
        start = 0
        for block in self._used():
            block[:, columns] = values[start : start + len(block)]
            start += len(block)

    def columns(self, index: Tensor | slice) -> Tensor:
        """Some columns, (m, n)."""
        parts = [block[:, index] for block in self._used()]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def product(self, left: Tensor) -> Tensor:
        """left @ rows for ``left`` (q, m): (q, N)."""
        parts = self._used()
        total, start = left[:, : len(parts[0])] @ parts[0], len(parts[0])
        for block in parts[1:]:
            total.addmm_(left[:, start : start + len(block)], block)
            start += len(block)
        return total

    def _used(self) -> list[Tensor]:
        return [*self._blocks[:-1], self._blocks[-1][: self._last]]

    def _add_room(self, more: int) -> None:
        last, size = self._blocks[-1], self.size
        one_piece = len(self._blocks) == 1 and size * last.shape[1] * last.element_size() <= _ONE_PIECE
        kept = self._last if one_piece else 0
        block = last.new_empty(kept + more + max(16, size // 4), last.shape[1])
        block[:kept] = last[:kept]
        if one_piece:
            self._blocks = [block]
        else:
            self._blocks.append(block)
        self._last = kept

    # -- state -----------------------------------------------------------------------------------------

    def apply(self, change: Callable[[Tensor], Tensor]) -> None:
        """To another device or dtype."""
        self._blocks = [change(block) for block in self._blocks]

    def state_dict(self) -> dict[str, Any]:
        """The rows, block by block, and the room of the blocks."""
        return {
            "rows": [block.clone() for block in self._used()],
            "room": [len(block) for block in self._blocks],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of ``state_dict``."""
        like, blocks = self._blocks[0], []
        for rows, room in zip(state["rows"], state["room"], strict=True):
            block = like.new_empty(room, like.shape[1])
            block[: len(rows)] = rows
            blocks.append(block)
        self._blocks, self._last = blocks, len(state["rows"][-1])
