"""Atomic writes, a lock and delayed interrupts: a reader finds the old file or the new file, never a part of one."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module, util
from pathlib import Path
from typing import Any, BinaryIO

fcntl: Any = import_module("fcntl") if util.find_spec("fcntl") else None  # Windows has none
_PART = ".part"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` if the block succeeds, and is removed if the block fails.

    After the block the file and its name are on the disk and survive a power failure. If the process is killed,
    ``path`` stays as it was and a temporary file remains (``remove_parts`` removes it). If ``path`` is a symbolic link,
    its target is written. An existing file keeps its mode. Missing folders are created. Raises the system's OSError.
    """
    target = _target(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{_PART}")
    try:
        with open(part, "xb") as file:
            if target.exists():
                shutil.copymode(target, part)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if os.name != "nt":  # Windows cannot open a folder
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the block is over. Then the first one received takes effect.

    Python handles signals in the main thread, so in other threads this does nothing. NumPy's archive writers need it:
    after an exception at an arbitrary place some versions print a second traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not None  # None: C code handles it
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


def remove_parts(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files that killed writers of ``path`` left. No other process may be writing ``path``."""
    target = _target(path)
    for part in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}{_PART}"):
        part.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, busy: str | None = None) -> Iterator[bool]:
    """Lock a folder, which is made, against other callers of this function. Yields whether it is locked.

    Waits until the lock is free; with ``busy``, raises ValueError with this message if it is not. The system releases
    the lock when its process ends, even if killed. Yields False on Windows, and on file systems without locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield False
        return
    handle, held = os.open(folder, os.O_RDONLY), False
    try:
        with suppress(OSError):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
            except BlockingIOError:
                raise ValueError(busy) from None
            held = True
        yield held
    finally:
        os.close(handle)


def _target(path: str | os.PathLike[str]) -> Path:
    """``path`` with symbolic links resolved."""
    return Path(os.path.realpath(path))


def checksum(data: str | Path | None) -> str | None:
    """SHA-256 of the data's file; None without data and for a folder."""
    if data is None or Path(data).is_dir():
        return None
    import hashlib  # takes milliseconds, because of OpenSSL

    with open(data, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
