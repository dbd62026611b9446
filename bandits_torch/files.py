"""Writing files so that a reader finds the old file or the new one, whole, and never half of it."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

try:
    import fcntl as _fcntl
except ImportError:  # Windows
    fcntl: ModuleType | None = None
else:
    fcntl = _fcntl

_PART = ".part"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that becomes ``path`` when the block ends well and vanishes when it does not.

    Once the block is over the file outlasts a loss of power: it is on the disk, and so is its name. A process that
    is killed leaves ``path`` as it was, and a part behind (``remove_parts``). Where ``path`` is a symbolic link, the
    file that it leads to is written; a file that is there keeps its mode.
    Folders on the way that are missing are made. OSError as the system raises it.
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
    _flush_folder(target.parent)


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """SIGINT and SIGTERM wait until the block is over, and then have the effect they would have had at once.

    In the main thread, where Python handles signals; elsewhere nothing interrupts a block. NumPy's writers of archives
    do not survive an exception at an arbitrary place: some versions print a traceback of their own.
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
    """Remove what writers of ``path`` left behind that were killed; nobody else may be writing it."""
    target = _target(path)
    for part in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}{_PART}"):
        part.unlink(missing_ok=True)


@contextmanager
def writing_alone(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Keep other processes that ask for the same from the folder of ``path`` meanwhile; whether that is so.

    The lock is the system's and ends with its holder, however that ends. False, at once, where there is no such lock:
    on Windows, and on file systems that know none.
    """
    folder = _target(path).parent
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            locked = True
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(handle)


def _target(path: str | os.PathLike[str]) -> Path:
    """The file that is meant, past symbolic links."""
    return Path(os.path.realpath(path))


def _flush_folder(folder: Path) -> None:
    if os.name == "nt":  # which knows no such call, and needs none
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
