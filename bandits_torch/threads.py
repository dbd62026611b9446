"""Threads: the number of CPU threads of a step, and a lock for an object that threads share.

PyTorch uses one thread for each core. Its threads wait for each other by spinning. If another process uses the cores,
too, a step of less than a millisecond on one thread takes tens or hundreds of milliseconds on two threads. So a small
step uses one thread, unless the user has set a number.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


class Turn:
    """A reentrant lock for the threads of one process; entering it in a fork of that process raises RuntimeError."""

    def __init__(self) -> None:
        self.own()

    def own(self) -> None:
        """Make the current process the one that may enter."""
        if getattr(self, "_process", None) != os.getpid():
            self._lock, self._process = threading.RLock(), os.getpid()

    def any_process(self) -> threading.RLock:
        """The lock, or in a fork a new one: a thread that does not exist there may have held the lock."""
        return self._lock if self._process == os.getpid() else threading.RLock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                "this AskTell was made in another process, of which this one is a fork: both would ask questions of "
                "the same numbers. Load the file that they share (load_policy), or build an AskTell here"
            )
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Turn:
        return Turn()

    def __reduce__(self) -> tuple[Any, ...]:
        return Turn, ()


# Numbers that a step reads (``Policy.numbers_per_step``) from which on it uses several threads. On two idle cores, two
# threads were 0.6 to 1.4 times as fast as one for smaller steps, and 1.0 to 1.8 times for larger ones.
SHARED_FROM = 2_000_000
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_set = threading.local()  # ``depth``: number of nested blocks of ``exactly`` in this thread


def cores() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def untouched(threads: int) -> int | None:
    """``threads`` if it is PyTorch's default, one for each CPU or each pair of CPUs that shares a core; else None."""
    return threads if threads in (cores(), cores() // 2) else None


DEFAULT = untouched(torch.get_num_threads())  # at import; None: another number was set before


def threads_for(numbers: int) -> int:
    """The number of threads for a step that reads this many numbers: one below two million, else the current number.

    It is always the current number if the user has set it: by ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS``, by
    ``exactly``, or by ``torch.set_num_threads`` to a number other than the default.
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
            with suppress(RuntimeError):  # at the end of a process no thread can be started
                other = threading.Thread(target=torch.set_num_threads, args=(before,))
                other.start()
                other.join()
        yield
    finally:
        if torch.get_num_threads() == wanted:  # else it was set within the block
            torch.set_num_threads(before)


@contextmanager
def exactly(threads: int) -> Iterator[None]:
    """Within the block, this thread computes on ``threads`` threads, however small its steps."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    _set.depth = getattr(_set, "depth", 0) + 1
    try:
        yield
    finally:
        _set.depth -= 1
        torch.set_num_threads(before)
