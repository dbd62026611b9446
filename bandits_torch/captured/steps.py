"""What the captured steps of a policy are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

import torch
from torch import Tensor

Given = dict[str, Tensor]  # what the host lays out for a block, by name; first dimension k
Pull = Callable[[Tensor], Tensor]  # arms (S,) to rewards (S,)
Books = dict[str, list[Tensor]]  # what steps leave for the end of the block


class CapturedSteps(ABC):
    """The steps of one policy as functions of tensors. They change the state of the policy in place. Between blocks it
    is the same as after as many plain steps.

    The loop calls ``most`` and ``given``, launches every ``step`` and then ``close`` as one block, and calls ``after``.
    """

    static = True  # whether no value may be read in a block; in a plain call on a CPU it may

    def begin(self, steps: int, most: int) -> None:
        """Prepare for ``steps`` steps, in blocks of at most ``most``."""
        return

    @abstractmethod
    def most(self, times: Sequence[float]) -> int:
        """How many of the steps at these times, the next ones, can be captured; 0: the first has to be a plain step."""

    @abstractmethod
    def given(self, times: Sequence[float]) -> Given:
        """The inputs of the steps at these times that the host computes."""

    def key(self) -> Hashable:
        """A key that differs between blocks that are different functions or work on different tensors."""
        return ()

    @abstractmethod
    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """Step j of a block: choose, ``pull``, learn. The arms (S,), and what to record, each () or (S,)."""

    def close(self, books: Books) -> None:
        """Write what is written once a block, at its end."""
        return

    @abstractmethod
    def after(self, times: Sequence[float], rows: Given) -> None:
        """Update what the host keeps, after a block whose rows are (k, S)."""

    def finish(self) -> tuple[str, ...]:
        """The end of the run. Returns the names of rows that a plain run records as one number a step."""
        return ()


class NotCaptured(ValueError):
    """The steps of a policy or a problem cannot be captured. Raised before the first step."""


def refused(what: str, why: str) -> NotCaptured:
    """The error for a policy or a problem whose steps cannot be captured."""
    return NotCaptured(f"capture=True: {what} cannot be captured: {why}")


def write_back(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy new tensors to old ones, (old, new) each: one copy for all tensors of a dtype. They must not share
    memory."""
    by_dtype: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for old, new in pairs:
        olds, news = by_dtype[old.dtype]
        olds.append(old)
        news.append(new)
    for olds, news in by_dtype.values():
        torch._foreach_copy_(olds, news)
