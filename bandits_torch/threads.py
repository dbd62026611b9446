"""The number of CPU threads of a step: one for a small step, unless the user has set a number.

PyTorch uses one thread for each core. Its threads wait for each other by spinning. If another process uses the cores as
well, a step of less than a millisecond on one thread takes tens or hundreds of milliseconds on two threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

# Numbers that a step passes over (``Policy.numbers_per_step``). On two cores that nobody else wanted, two threads were
# 0.6 to 1.4 times as fast as one in steps below, and 1.0 to 1.8 times from there on.
SHARED_FROM = 2_000_000
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_set = threading.local()  # ``depth``: how many blocks of ``exactly`` this thread is in


def cores() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def untouched(threads: int) -> int | None:
    """``threads`` if that is PyTorch's own choice, one for each CPU or each pair that shares a core; else None."""
    return threads if threads in (cores(), cores() // 2) else None


DEFAULT = untouched(torch.get_num_threads())  # at import; None: somebody had set another number before


def threads_for(numbers: int) -> int:
    """The number of threads for a step that reads this many numbers: one if they are few, else PyTorch's number.

    It is always PyTorch's number if the user has set it: by ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS``, by ``exactly``,
    or by ``torch.set_num_threads`` to a number other than the default.
    """
    now = torch.get_num_threads()
    named = any(os.environ.get(name) for name in _VARIABLES) or getattr(_set, "depth", 0) > 0
    return now if numbers >= SHARED_FROM or named or now != DEFAULT else 1


@contextmanager
def fitting(numbers: int) -> Iterator[None]:
    """Within the block, this thread computes on ``threads_for(numbers)`` threads; other threads are not affected."""
    before, wanted = torch.get_num_threads(), threads_for(numbers)
    if wanted == before:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        if threading.active_count() > 1:
            # A thread that uses PyTorch for the first time takes, and keeps, the number that any thread set last.
            with suppress(RuntimeError):  # no thread can be started at the end of a process
                other = threading.Thread(target=torch.set_num_threads, args=(before,))
                other.start()
                other.join()
        yield
    finally:
        if torch.get_num_threads() == wanted:  # else it was set within the block
            torch.set_num_threads(before)


@contextmanager
def exactly(threads: int) -> Iterator[None]:
    """Within the block, this thread computes on this many threads, whatever the steps; afterwards on as many as
    before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    _set.depth = getattr(_set, "depth", 0) + 1
    try:
        yield
    finally:
        _set.depth -= 1
        torch.set_num_threads(before)
