"""A factor that grows by rows, kept in one piece of memory for solves, without a copy of it at every row."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.models.algebra.rank_one import solve_transposed

FROM = 512  # rows, below which a copy at every row costs little
_STEP = 64  # rows between two copies


class PaddedFactor:
    """L^T of t rows in the first ones of P = [[L^T, 0], [0, I]], contiguous, of the next multiple of 64 rows above t.

    LAPACK takes no view of a larger matrix. A copy of t^2 numbers at every new row, most of it into fresh pages, takes
    longer than a solve with some 20 columns. Here a new row costs O(t), and a solve at most 128 / t more than without
    the rows of I, which leave the solution of the others as it is. How many there are hangs on t alone, so that figures
    do not hang on the past.

    Methods are told of L^T as ``upper``, ``batch x c x c``, a buffer of which ``size`` rows and columns count.
    """

    def __init__(self, upper: Tensor, size: int) -> None:
        self.solid = upper.new_zeros(*upper.shape[:-2], 0, 0)
        self.take(upper, size)

    def take(self, upper: Tensor, size: int) -> None:
        """Copy what is not held, into the memory that is there if it fits. O(t^2), or nothing to do."""
        if self.holds(upper, size):
            return
        shape = (*upper.shape[:-2], _padded(size), _padded(size))
        if self.solid.shape != shape or self.solid.dtype != upper.dtype or self.solid.device != upper.device:
            self.solid = upper.new_empty(shape)
        self.solid[..., size:] = 0.0
        self.solid[..., size:, :size] = 0.0
        self.solid.diagonal(dim1=-2, dim2=-1)[..., size:] = 1.0
        self.solid[..., :size, :size] = upper[..., :size, :size]
        self._seen(upper, size)

    def holds(self, upper: Tensor, size: int) -> bool:
        """Whether it is of these rows of this buffer, which nothing has changed since."""
        same = self.solid.shape[-1] > 0 and self._upper is upper
        return same and self._version == upper._version and self._size == size

    def append(self, upper: Tensor, size: int) -> None:
        """Copy the rows behind those that it held until they were written, if there is room. O(t) each."""
        if _padded(size) == self.solid.shape[-1]:
            old = self._size
            self.solid[..., :size, old:size] = upper[..., :size, old:size]
            self._seen(upper, size)

    def _seen(self, upper: Tensor, size: int) -> None:
        self._upper, self._version, self._size = upper, upper._version, size

    def solve(self, right: Tensor) -> Tensor:
        """L^{-1} right, ``batch x t x n``. O(t^2) a column."""
        wide = right.new_zeros(*right.shape[:-2], self.solid.shape[-1], right.shape[-1])
        wide[..., : self._size, :] = right
        return solve_transposed(self.solid, wide)[..., : self._size, :]


def _padded(size: int) -> int:
    return _STEP * (size // _STEP + 1)


def pays(upper: Tensor, size: int) -> bool:
    """Whether solves with so many rows of the buffer go by a ``PaddedFactor``: where no gradient is recorded."""
    return size >= FROM and not torch.is_grad_enabled() and not upper.is_inference()
