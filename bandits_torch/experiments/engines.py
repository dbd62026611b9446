"""The cells of a sweep, and the engines that run them: this process, processes of this machine, or Ray.

A cell is one policy on one problem, for one block of replicates. Its result is the same wherever it runs.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pickle
import re
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from bandits_torch import problems, recipes, validation
from bandits_torch._version import __version__
from bandits_torch.files import checksum
from bandits_torch.history import PER_REPLICATE, History
from bandits_torch.loop import run
from bandits_torch.naming import counted
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.threads import cores, exactly


@dataclass(frozen=True)
class Block:
    """A batch of replicates.

    Args:
        replicates: how many there are, >= 1.
        horizon: number of steps of each, >= 1.
        first_replicate: number of the first, >= 0.
        seed: seed of all random numbers, >= 0.

    Raises ValueError for numbers out of range.
    """

    replicates: int
    horizon: int
    first_replicate: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        validation.positive_integer("replicates", self.replicates)
        validation.positive_integer("horizon", self.horizon)
        validation.natural("first_replicate", self.first_replicate)
        validation.natural("seed", self.seed)

    def settings(self, taken: Collection[str], options: Mapping[str, Any]) -> dict[str, Any]:
        """Its attributes by name, ``first_replicate`` only if it is ``taken``, and ``options``, which replace them. A
        ``first_replicate`` among the options is that of block 0, to which this block's is added."""
        about = {name: one for name, one in vars(self).items() if name != "first_replicate" or name in taken}
        about |= options
        if "first_replicate" in taken and "first_replicate" in options:
            first = validation.natural("first_replicate", options["first_replicate"])
            about["first_replicate"] = first + self.first_replicate
        return about


@dataclass(frozen=True)
class ProblemSetting:
    """A problem's name and options, from which the problem is built for any block of replicates.

    Args:
        name: a key of ``problems.PROBLEMS``.
        options: plain values (``problems.options_of``).
        data: path of the data, for a problem that replays data; its steps are the rows of the data.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str | Path | None = None

    def __call__(self, block: Block) -> Problem:
        """The problem of these replicates."""
        about = block.settings(problems.options_of(self.name), self.options)
        if self.data is not None:
            about["horizon"] = None
        return problems.make(self.name, data=self.data, **about)


@dataclass(frozen=True)
class RecipeSetting:
    """A recipe's name and options, from which the policy is built for a problem and a block of its replicates.

    Args:
        name: a key of ``recipes.RECIPES``.
        options: plain values (``recipes.options_of``).
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, problem: Problem, block: Block) -> Policy:
        """The policy of these replicates."""
        about = block.settings(recipes.options_of(self.name), self.options)
        return recipes.build(self.name, problem, **about)


MakeProblem = Callable[[Block], Problem]
MakePolicy = Callable[[Problem, Block], Policy]


@dataclass(frozen=True, eq=False)
class Cell:
    """One policy on one problem, for one block of replicates.

    Args:
        problem, policy: their names in tables and files.
        make_problem: ``ProblemSetting``, or any other function of a block.
        make_policy: ``RecipeSetting``, or any other function of a problem and a block.
        block: replicates and number of steps (fewer if the problem ends earlier).
        capture: as for ``run``.
    """

    problem: str
    policy: str
    make_problem: MakeProblem
    make_policy: MakePolicy
    block: Block
    capture: bool | int | str = False

    def run(self) -> History:
        """Build problem and policy, and play. The result depends only on the cell (and the number of torch threads)."""
        problem = self.make_problem(self.block)
        steps = min(self.block.horizon, problem.horizon or self.block.horizon)
        block = replace(self.block, horizon=steps)
        policy = self.make_policy(problem, block)
        which: Any = {"seed": block.seed, "first_replicate": block.first_replicate}
        history = run(policy, problem, steps, **which, capture=self.capture)
        history.meta |= {"problem": self.problem, "policy": self.policy}
        return history

    @property
    def title(self) -> str:
        """Problem, policy and replicates in words."""
        first, count = self.block.first_replicate, self.block.replicates
        return f"{self.problem}, {self.policy}, replicates {first} to {first + count - 1}"


def keys_of(cells: Sequence[Cell]) -> list[str]:
    """File names of the results: readable labels and replicates, then a digest of what determines the result.

    The digest covers problem and policy with all options, block, seed, ``capture``, torch's default dtype and this
    package's version; for data, the path and the content of a file, but not that of a folder. Data are read once for
    all cells. Raises ValueError for settings that cannot be described: a lambda, or an option that is an object.
    """
    made: dict[int, tuple[str, Any]] = {
        id(cell.make_problem): ("problem", cell.make_problem) for cell in cells
    }
    made |= {id(cell.make_policy): ("policy", cell.make_policy) for cell in cells}
    described = {key: _described(name, maker) for key, (name, maker) in made.items()}
    dtype = torch.get_default_dtype()  # in which GPyTorch's kernels round numbers
    keys = []
    for cell in cells:
        labels = [cell.problem, cell.policy]
        parts: dict[str, Any] = {"block": asdict(cell.block), "labels": labels, "version": __version__}
        parts |= {"capture": cell.capture} if cell.capture else {}
        parts |= {} if dtype == torch.float32 else {"dtype": str(dtype)}  # float32 is torch's own default
        parts |= described[id(cell.make_problem)] | described[id(cell.make_policy)]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        first, count = cell.block.first_replicate, cell.block.replicates
        label = re.sub(r"[^\w.=-]+", "_", f"{cell.problem}-{cell.policy}-{first}-{first + count - 1}")
        keys.append(f"{label}-{digest}.npz")
    return keys


def _described(name: str, maker: Any) -> dict[str, str | None]:
    """What determines a problem or a policy, in plain words; of a problem's data the checksum."""
    try:
        parts: dict[str, str | None] = {name: json.dumps(maker, sort_keys=True, default=_plain)}
    except TypeError as error:
        kinds = "a setting, a dataclass or a function of a module"
        expected = f"{kinds}, with plain options, to name its file"
        raise ValueError(f"{name} must be {expected}, got {error}") from error
    data = getattr(maker, "data", None)
    if name == "problem" and isinstance(data, str | Path) and Path(data).is_file():
        parts["sha256"] = checksum(data)
    return parts


def make_cells(
    problems: Mapping[str, MakeProblem],
    policies: Mapping[str, MakePolicy],
    block: Block,
    size: int | None = None,
    capture: bool | int | str = False,
) -> list[Cell]:
    """Every policy on every problem, problem by problem, in blocks of at most ``size`` replicates (None: one block).

    Results may depend on ``size``: a policy may choose a setting, such as a window, by an average over its block.
    """
    size = block.replicates if size is None else validation.positive_integer("block", size)
    end = block.first_replicate + block.replicates
    blocks = [
        replace(block, replicates=min(size, end - first), first_replicate=first)
        for first in range(block.first_replicate, end, size)
    ]
    return [
        Cell(problem, policy, make_problem, make_policy, part, capture)
        for problem, make_problem in problems.items()
        for policy, make_policy in policies.items()
        for part in blocks
    ]


def join_blocks(histories: Sequence[History]) -> History:
    """The history of all replicates of consecutive blocks; seconds are summed over the blocks. Names that are not in
    every block's trace are left out."""
    if len(histories) == 1:
        return histories[0]
    ends = {history.horizon for history in histories}
    validation.require(len(ends) == 1, "histories", sorted(ends), "of the same number of steps")
    each = {name: torch.cat([getattr(history, name) for history in histories]) for name in PER_REPLICATE}
    trace = {
        name: torch.cat([h.trace[name].expand(h.replicates, h.horizon) for h in histories])
        for name in histories[0].trace
        if all(name in h.trace for h in histories)
    }
    seconds = torch.stack([history.seconds for history in histories]).sum(0)
    wall = sum(float(history.meta["wall_seconds"]) for history in histories)
    meta = histories[0].meta | {"wall_seconds": wall}
    return History(**each, times=histories[0].times, seconds=seconds, trace=trace, meta=meta)


def _plain(value: Any) -> Any:
    """Plain values for what JSON cannot write: tensors, mappings, paths, dataclasses and functions, the last two by
    name."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        content = {item.name: getattr(value, item.name) for item in fields(value)}
        return {"class": f"{type(value).__module__}.{type(value).__qualname__}", **content}
    name = getattr(value, "__qualname__", "<")
    if "<" in name:  # an object, a lambda or a local function
        raise TypeError(repr(value))
    return f"{value.__module__}.{name}"


@dataclass(frozen=True)
class Failure:
    """The outcome of a cell that raised: its error in one line, and the traceback."""

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
    """Run the cells one after another in this process; ``jobs`` is ignored."""
    for cell in cells:
        yield cell, play(cell, threads)


def processes(cells: Sequence[Cell], threads: int, jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Run the cells in ``jobs`` processes of this machine, each on ``threads`` threads; yields cells as they end.

    The processes are spawned, not forked (a fork of a process with threads may hang), so a script that sweeps must
    guard its main part by ``if __name__ == "__main__"``. If a process dies, for example for lack of memory, all
    unfinished cells fail: run the sweep again to continue. The processes end when this process ends, for any reason.
    Raises ValueError for policies or problems defined in a notebook, because the processes cannot import them.

    Joblib is not used: if this process is killed, joblib's workers finish their cells, and there is no public way to
    let them watch their parent. Outcomes are passed in files, because the pool would wait forever for the rest of a
    long message from a process that has died.
    """
    _require_importable(cells)
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(jobs, len(cells)), context, _end_with, (theirs,))
    folder = tempfile.TemporaryDirectory(prefix="bandits_torch-")
    warned: dict[Any, Any] = {}
    try:
        with _interrupts_held_back():
            dtype = torch.get_default_dtype()
            pairs = [(Path(folder.name) / str(number), cell) for number, cell in enumerate(cells)]
            waiting = {pool.submit(_play_into, *pair, threads, dtype): pair for pair in pairs}
        for future in as_completed(waiting):
            file, cell = waiting[future]
            try:
                future.result()
                outcome = _unpacked(file.read_bytes(), warned)
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
    """End this process as soon as the other end of the connection is closed."""

    def wait() -> None:
        with suppress(EOFError, OSError):
            parent.recv_bytes()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Delay Ctrl-C until the block is over. Processes started within it ignore Ctrl-C; their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def on_ray(cells: Sequence[Cell], threads: int, jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Run the cells as tasks of Ray, ``threads`` CPUs each; yields cells as they end. Needs the extra ``ray``.

    Uses the Ray instance to which the caller is connected, or else the cluster named by ``RAY_ADDRESS`` (its machines
    need this package and the data at the same paths). Without either, starts Ray on this machine for ``jobs`` parallel
    tasks, and stops it afterwards.
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
        dtype = torch.get_default_dtype()
        waiting = {task.remote(cell, threads, dtype): cell for cell in cells}
        warned: dict[Any, Any] = {}
        while waiting:
            (done, *_), _rest = ray.wait(list(waiting))
            cell = waiting.pop(done)
            try:
                outcome = _unpacked(ray.get(done), warned)
            except Exception as error:
                outcome = Failure.of(error)
            yield cell, outcome
    finally:
        if started:
            ray.shutdown()


Engine = Callable[[Sequence[Cell], int, int], Iterator[tuple[Cell, Outcome]]]
ENGINES: dict[str, Engine] = {"local": here, "processes": processes, "ray": on_ray}


def find_engine(name: str, threads: int, jobs: int | None) -> tuple[Engine, int]:
    """The engine of this name and the number of cells that it runs at once, by default as many as the CPUs allow.

    Raises ValueError for an unknown name, for more threads than CPUs (except on Ray), and for processes with more
    threads in all than CPUs; ImportError if Ray is needed but not installed.
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
    expected = f"at most {most}: {counted(threads, 'thread')} each on the {cores()} CPUs there are"
    validation.require(name != "processes" or jobs <= most, "jobs", jobs, expected)
    return ENGINES[name], jobs


def _play_packed(cell: Cell, threads: int, dtype: torch.dtype) -> bytes:
    """``play`` under the caller's default ``dtype``, in which GPyTorch's kernels round numbers. The outcome is pickled,
    because tensors would be sent as open files, and with it the warnings of the cell."""
    torch.set_default_dtype(dtype)
    with warnings.catch_warnings(record=True) as given:
        outcome = play(cell, threads)
    said = [(str(one.message), one.category, one.filename, one.lineno) for one in given]
    return pickle.dumps((outcome, said))


def _unpacked(packed: bytes, warned: dict[Any, Any]) -> Outcome:
    """The outcome from ``_play_packed``. The warnings of the cell are given here, each once for all cells with the same
    ``warned``, as Python does within a process."""
    outcome, said = pickle.loads(packed)  # noqa: S301  # our own process wrote it
    for message, category, file, line in said:
        warnings.warn_explicit(message, category, file, line, registry=warned)
    return outcome


def _play_into(file: Path, *given: Any) -> None:
    file.write_bytes(_play_packed(*given))


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
                f"engine must be 'local' or 'ray' if policies or problems are defined in a notebook (here those of "
                f"{cell.title}), got 'processes', which cannot import them: move them into a file.py beside the "
                "notebook and import them from there"
            )


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError('the engine "ray" needs Ray: pip install "ray[tune]"') from error
    return ray
