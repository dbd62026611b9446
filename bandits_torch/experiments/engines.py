"""Where the cells of a sweep run: here, in processes of this machine, or on Ray. The results are the same
everywhere."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bandits_torch import validation
from bandits_torch.experiments.cells import Cell
from bandits_torch.history import History
from bandits_torch.threads import cores, exactly


@dataclass(frozen=True)
class Failure:
    """A cell that raised: the error in a line, and where it happened."""

    error: str
    trace: str

    @staticmethod
    def of(error: Exception) -> Failure:
        """The failure of the error that is being handled."""
        died = isinstance(error, BrokenProcessPool)
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Failure(line, "the process died" if died else traceback.format_exc())


Outcome = History | Failure


def play(cell: Cell, threads: int) -> Outcome:
    """Run a cell with ``threads`` torch threads; an error becomes a ``Failure``, an interruption propagates.

    The number of threads affects the result: sums split over threads round differently.
    """
    try:
        with exactly(threads):
            return cell.run()
    except Exception as error:
        return Failure.of(error)


def here(cells: Sequence[Cell], threads: int, jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """One after the other, in this process."""
    for cell in cells:
        yield cell, play(cell, threads)


def processes(cells: Sequence[Cell], threads: int, jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """``jobs`` processes of this machine, each on ``threads`` threads; yields cells as they end.

    The processes are started afresh, not forked (a fork of a process with threads may hang), so a script that
    sweeps must guard its main part by ``if __name__ == "__main__"``. A process that dies, for example for lack of
    memory, fails all unfinished cells: run the sweep again to continue. The processes end when this process is
    interrupted or ends for any other reason. Raises ValueError for policies or problems defined in a notebook, from
    which the processes cannot import them.

    Joblib is not used: when this process is terminated or killed, joblib's workers finish their cells, and there is no
    public way to let them watch their parent. Outcomes are passed in files: if a process ends while it sends a long
    message, the pool waits for the rest forever.
    """
    _require_importable(cells)
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(jobs, len(cells)), context, _end_with, (theirs,))
    folder = tempfile.TemporaryDirectory(prefix="bandits_torch-")
    try:
        with _interrupts_held_back():
            pairs = [(Path(folder.name) / str(number), cell) for number, cell in enumerate(cells)]
            waiting = {pool.submit(_play_into, *pair, threads): pair for pair in pairs}
        for future in as_completed(waiting):
            file, cell = waiting[future]
            try:
                future.result()
                outcome = pickle.loads(file.read_bytes())  # noqa: S301  # our own process wrote it
                file.unlink()
            except Exception as error:  # the cell could not be sent, or its process died
                outcome = Failure.of(error)
            yield cell, outcome
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()
        folder.cleanup()


def _end_with(parent: Connection) -> None:
    """End this process as soon as the other end of the connection is closed, whatever it is doing."""

    def wait() -> None:
        with suppress(EOFError, OSError):
            parent.recv_bytes()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Delay Ctrl-C until the block is over; processes started in it never see it, and their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def on_ray(cells: Sequence[Cell], threads: int, jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Tasks of Ray, ``threads`` CPUs each; yields cells as they end. Needs the extra ``ray``.

    Uses the Ray instance to which the caller is connected, or else the cluster that ``RAY_ADDRESS`` names (its machines
    need this package and the data's paths). Without either, it starts Ray on this machine with ``jobs`` parallel tasks
    and stops it afterwards.
    """
    ray = _import_ray()
    started = not ray.is_initialized()
    if started and "RAY_ADDRESS" in os.environ:
        ray.init(logging_level="ERROR")
    elif started:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(num_cpus=threads * jobs, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        task = ray.remote(num_cpus=threads, max_retries=1)(_play_packed)
        waiting = {task.remote(cell, threads): cell for cell in cells}
        while waiting:
            (done, *_), _rest = ray.wait(list(waiting))
            cell = waiting.pop(done)
            try:
                outcome = pickle.loads(ray.get(done))  # noqa: S301  # our own task wrote it
            except Exception as error:
                outcome = Failure.of(error)
            yield cell, outcome
    finally:
        if started:
            ray.shutdown()


Engine = Callable[[Sequence[Cell], int, int], Iterator[tuple[Cell, Outcome]]]
ENGINES: dict[str, Engine] = {"local": here, "processes": processes, "ray": on_ray}


def find_engine(name: str, threads: int, jobs: int | None) -> tuple[Engine, int]:
    """The engine of that name and the number of cells that it runs at once, by default as many as the CPUs allow.

    Raises ValueError for an unknown name, more threads than CPUs, or, in processes of this machine, more threads times
    processes than CPUs; ImportError where Ray is not installed.
    """
    validation.require(name in ENGINES, "engine", name, f"one of {', '.join(ENGINES)}")
    validation.positive_integer("threads", threads)
    if name == "ray":
        _import_ray()
    most = cores() // threads
    validation.require(name == "ray" or most >= 1, "threads", threads, f"at most {cores()}, the CPUs")
    if jobs is None:
        return ENGINES[name], max(1, most)
    validation.positive_integer("jobs", jobs)
    expected = f"at most {most}: {threads} threads each on the {cores()} CPUs there are"
    validation.require(name != "processes" or jobs <= most, "jobs", jobs, expected)
    return ENGINES[name], jobs


def _play_packed(cell: Cell, threads: int) -> bytes:
    """``play`` with its outcome as plain bytes, because tensors would be sent as open files."""
    return pickle.dumps(play(cell, threads))


def _play_into(file: Path, cell: Cell, threads: int) -> None:
    """``_play_packed`` into a file."""
    file.write_bytes(_play_packed(cell, threads))


def _require_importable(cells: Sequence[Cell]) -> None:
    """Refuse functions of a notebook or an interactive session, which other processes cannot import."""
    if hasattr(sys.modules["__main__"], "__file__"):
        return
    for cell in cells:
        try:
            packed = pickle.dumps(cell)
        except Exception:  # noqa: S112  # the cell's own outcome will say why it cannot be sent
            continue
        if b"__main__" in packed:
            raise ValueError(
                f"engine must be 'local' or 'ray' where policies or problems are defined in a notebook (here those of "
                f"{cell.title}), got 'processes', which cannot import them: move them into a file.py beside the "
                "notebook and import them from there"
            )


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError('the engine "ray" needs Ray: pip install "ray[tune]"') from error
    return ray
