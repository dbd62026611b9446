"""A lock for an object that threads share."""

from __future__ import annotations

import os
import threading
from typing import Any


class Turn:
    """A reentrant lock for the threads of the process that made it."""

    def __init__(self) -> None:
        self.own()

    def own(self) -> None:
        """Make the present process the owner."""
        if getattr(self, "_process", None) != os.getpid():
            self._lock, self._process = threading.RLock(), os.getpid()

    def any_process(self) -> threading.RLock:
        """Hold the lock, also in a forked child, where a thread that no longer exists may have held the parent's
        lock."""
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
