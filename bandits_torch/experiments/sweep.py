"""Policies against problems: a race in memory, and a sweep that can be interrupted, continued and spread out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bandits_torch import validation
from bandits_torch.experiments.cells import Block, Cell, MakePolicy, MakeProblem, join_blocks, make_cells
from bandits_torch.experiments.engines import Failure, Outcome, find_engine
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem


def race(
    policies: Mapping[str, Policy],
    problem: Problem,
    horizon: int,
    *,
    seed: int = 0,
    first_replicate: int = 0,
    progress: bool = False,
    capture: bool | int | str = False,
) -> dict[str, History]:
    """Play each policy against the same problem, one after the other, with the same noise.

    Args:
        policies: by their names in tables and plots; each continues from its current state.
        problem, horizon, seed, first_replicate, progress: as for ``run``.
        capture: as for ``run``; "auto" plays many steps at once if possible.

    Raises ValueError for an empty race, and whatever ``run`` refuses.
    """
    validation.require(len(policies) > 0, "policies", dict(policies), "at least one policy")
    histories = {}
    for name, policy in policies.items():
        told: Any = {"progress": name if progress else False, "capture": capture}
        history = run(policy, problem, horizon, seed=seed, first_replicate=first_replicate, **told)
        history.meta["policy"] = name
        histories[name] = history
    return histories


def sweep(
    problems: Mapping[str, MakeProblem],
    policies: Mapping[str, MakePolicy],
    horizon: int,
    *,
    replicates: int = 1,
    block: int | None = None,
    seed: int = 0,
    engine: str = "local",
    threads: int = 1,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> dict[str, dict[str, History]]:
    """Race policies on several problems, with new policies for each problem and the same noise for all.

    Args:
        problems: by name, each a ``ProblemSetting`` or a function of a ``Block`` that builds the problem.
        policies: by name, each a ``RecipeSetting`` or a function of a problem and a ``Block``.
        horizon: T, cut to a problem's own horizon where that is shorter.
        replicates: S of each policy on each problem.
        block: replicates per cell of the sweep; None: all of them.
        seed: of all random numbers.
        engine: ``"local"`` in this process, ``"processes"`` of this machine, or ``"ray"``. Results are the same bit for
            bit, except times.
        threads: torch threads per cell with any engine; results with another number may differ in the last bits.
        jobs: number of parallel cells; None: as many as the CPUs allow. ``"local"`` runs one at a time.
        out: folder for the finished cells, one file each. Cells whose files exist do not run again, so an interrupted
            sweep continues. None: no files.
        progress: show a progress bar on standard error, if that is a terminal.

    Returns the histories by problem, then policy.

    Raises ``SweepFailed`` when cells failed, after all the others have run. Raises ValueError for bad arguments.
    """
    cells = make_cells(problems, policies, Block(replicates, horizon, 0, seed), block)
    done, failed = {}, {}
    where: Any = {"engine": engine, "threads": threads, "jobs": jobs, "out": out}
    for cell, outcome in run_cells(cells, **where, progress=progress):
        if isinstance(outcome, Failure):
            failed[cell] = outcome
        else:
            done[cell] = outcome
    histories = _join(cells, done)
    if failed:
        raise SweepFailed(histories, {cell.title: failure for cell, failure in failed.items()})
    return histories


class SweepFailed(RuntimeError):
    """Some cells of a sweep failed.

    Attributes:
        histories: by problem, then policy, where all cells succeeded.
        failures: error and traceback, by title of the cell.
    """

    def __init__(self, histories: dict[str, dict[str, History]], failures: Mapping[str, Failure]) -> None:
        lines = [f"{title}: {failure.error}" for title, failure in failures.items()]
        super().__init__("\n".join([f"{len(failures)} of the sweep's cells failed", *lines]))
        self.histories, self.failures = histories, dict(failures)


def run_cells(
    cells: Sequence[Cell],
    *,
    engine: str = "local",
    threads: int = 1,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells, or read their files in ``out``; yields each with its history or ``Failure``, as it ends.

    Arguments as for ``sweep``. Files are written atomically. Cells read from files come first.
    """
    validation.require(len(cells) > 0, "cells", list(cells), "at least one problem and one policy")
    runs, at_once = find_engine(engine, threads, jobs)
    paths = {} if out is None else {cell: Path(out) / cell.key for cell in cells}
    finished = [cell for cell in cells if cell in paths and paths[cell].exists()]
    waiting = [cell for cell in cells if cell not in set(finished)]
    with _bar(progress, len(cells)) as advance:
        for cell in finished:
            history = History.load(paths[cell])
            advance(None)
            yield cell, history
        for cell, outcome in runs(waiting, threads, at_once) if waiting else ():
            if cell in paths and isinstance(outcome, History):
                outcome.save(paths[cell])
            advance(outcome)
            yield cell, outcome


def _join(cells: Sequence[Cell], done: Mapping[Cell, History]) -> dict[str, dict[str, History]]:
    """Whole histories by problem, then policy, in the order of the cells, without those that have a failed cell."""
    blocks: dict[tuple[str, str], list[History | None]] = {}
    for cell in cells:
        blocks.setdefault((cell.problem, cell.policy), []).append(done.get(cell))
    histories: dict[str, dict[str, History]] = {problem: {} for problem, _ in blocks}
    for (problem, policy), parts in blocks.items():
        whole = [part for part in parts if part is not None]
        if len(whole) == len(parts):
            histories[problem][policy] = join_blocks(whole)
    return histories


@contextmanager
def _bar(progress: bool, total: int) -> Iterator[Callable[[Outcome | None], None]]:
    """A function to call with every outcome (None: read from a file); it moves a bar, if there is a terminal."""
    console = Console(stderr=True)
    if not progress or not (console.is_terminal or console.is_jupyter):
        yield lambda outcome: None
        return
    failed = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("cells", total=total)

        def advance(outcome: Outcome | None) -> None:
            nonlocal failed
            failed += isinstance(outcome, Failure)
            bar.update(task, advance=1, description=f"cells, {failed} failed" if failed else "cells")

        yield advance
