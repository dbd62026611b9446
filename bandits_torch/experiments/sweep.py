"""Plays of policies against problems: a race in memory; a sweep that can be interrupted, continued and run in parallel;
and plays from several starts, to compare policies on consecutive stretches of a record."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from torch import Tensor

from bandits_torch import validation
from bandits_torch.experiments.earned import random_regret
from bandits_torch.experiments.engines import (
    Block,
    Cell,
    Failure,
    MakePolicy,
    MakeProblem,
    Outcome,
    find_engine,
    join_blocks,
    keys_of,
    make_cells,
)
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
    """Play each policy against the same problem, one after another, with the same noise.

    ``policies``: by their names in tables and plots; each continues from its current state. Other arguments (problem,
    horizon, seed, first_replicate, progress, capture) as for ``run``. Raises ValueError without a policy, and as
    ``run``.
    """
    validation.by_name("policies", policies, "policy")
    histories = {}
    for name, policy in policies.items():
        how: Any = {"progress": name if progress else False, "capture": capture}
        history = run(policy, problem, horizon, seed=seed, first_replicate=first_replicate, **how)
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
    capture: bool | int | str = False,
) -> dict[str, dict[str, History]]:
    """Race policies on several problems, with new policies for each problem and the same noise for all.

    Args:
        problems: by name, each a ``ProblemSetting`` or a function of a ``Block`` that builds the problem.
        policies: by name, each a ``RecipeSetting`` or a function of a problem and a ``Block`` that builds the policy.
        horizon: T, or the problem's horizon if that is shorter.
        replicates: S of each policy on each problem.
        block: replicates per cell of the sweep; None: all. A window that a recipe takes from the problem's variation
            budget is averaged over a cell, so it depends on this.
        seed: seed of all random numbers.
        engine: ``"local"`` for this process, ``"processes"`` for processes of this machine, or ``"ray"``. Results are
            the same bit for bit, except times.
        threads: torch threads per cell with any engine; results with another number may differ in the last bits.
        jobs: number of parallel cells; None: as many as the CPUs allow. ``"local"`` runs one at a time.
        out: folder for the finished cells, one file each. Cells whose files exist do not run again, so an interrupted
            sweep continues. None: no files.
        progress: show a progress bar on standard error, if that is a terminal.
        capture: as for ``run``.

    Returns the histories by problem, then policy. Raises ``SweepFailed`` if cells failed, after all others have run,
    and ValueError for bad arguments.
    """
    for kind, makers in (("problems", problems), ("policies", policies)):
        validation.by_name(kind, makers, "setting or function")
        for name, one in makers.items():
            validation.function(f"{kind}[{name!r}]", one, "a setting or a function")
    cells = make_cells(problems, policies, Block(replicates, horizon, 0, seed), block, capture)
    where: Any = {"engine": engine, "threads": threads, "jobs": jobs, "out": out}
    outcomes = dict(run_cells(cells, **where, progress=progress))
    failed = {cell.title: one for cell, one in outcomes.items() if isinstance(one, Failure)}
    histories: dict[str, dict[str, History]] = {cell.problem: {} for cell in cells}
    for (problem, policy), blocks in groupby(cells, lambda cell: (cell.problem, cell.policy)):
        parts = [outcomes[cell] for cell in blocks]
        done = [one for one in parts if isinstance(one, History)]
        if len(done) == len(parts):
            histories[problem][policy] = join_blocks(done)
    if failed:
        raise SweepFailed(histories, failed)
    return histories


class SweepFailed(RuntimeError):
    """Some cells of a sweep failed.

    Attributes:
        histories: by problem, then policy, if all their cells succeeded.
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
    """Run cells, or read their files in ``out``; yields each with its history or ``Failure`` as it ends.

    Arguments as for ``sweep``. Cells read from files come first. Files are written atomically.
    """
    validation.require(len(cells) > 0, "cells", list(cells), "at least one problem and one policy")
    runs, at_once = find_engine(engine, threads, jobs)
    keys = [] if out is None else keys_of(cells)
    paths = {cell: Path(str(out), key) for cell, key in zip(cells, keys, strict=False)}
    finished = {cell: path for cell, path in paths.items() if path.exists()}
    waiting = [cell for cell in cells if cell not in finished]
    console, failed = Console(stderr=True), 0
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console)
    task = bar.add_task("cells", total=len(cells))
    with bar if progress and (console.is_terminal or console.is_jupyter) else nullcontext():
        for cell, path in finished.items():
            history = History.load(path)
            bar.advance(task)
            yield cell, history
        for cell, outcome in runs(waiting, threads, at_once) if waiting else ():
            if cell in paths and isinstance(outcome, History):
                outcome.save(paths[cell])
            failed += isinstance(outcome, Failure)
            bar.update(task, advance=1, description=f"cells, {failed} failed" if failed else "cells")
            yield cell, outcome


MOST_STARTS = 10
SHORTEST = 50  # steps from a start to the next
Build = Callable[[Problem, int], Policy]


def _of_other(name: str) -> Any:
    """The method of ``FromStep`` that calls this method of the other problem, at the other's step."""

    def method(self: FromStep, step: int, *given: Any) -> Any:
        self.check_step(step)
        return getattr(self._problem, name)(self._before + step, *given)

    return method


class FromStep(Problem):
    """``horizon`` steps of another problem over arms: step 1 is step ``first`` of the other.

    Prior knowledge and times are those of the other problem.

    Raises ValueError for steps that the problem does not have, and for a problem over the points of a domain.
    """

    def __init__(self, problem: Problem, first: int, horizon: int) -> None:
        validation.instance("problem", problem, Problem, "a Problem")
        validation.require(problem.dim == 0, "problem", type(problem).__name__, "one over arms")
        validation.positive_integer("first", first)
        last = first + validation.positive_integer("horizon", horizon) - 1
        fits = problem.horizon is None or last <= problem.horizon
        validation.require(fits, "horizon", horizon, f"at most the {problem.horizon} steps from {first}")
        self._problem, self._before, self.horizon = problem, first - 1, horizon
        self.arms, self.replicates, self.knowledge = problem.arms, problem.replicates, problem.knowledge
        self.true_prior, self.outcome_names = problem.true_prior, problem.outcome_names

    expected_rewards = _of_other("expected_rewards")
    pull = _of_other("pull")
    noise = _of_other("noise")
    score = _of_other("score")
    measure = _of_other("measure")
    trace = _of_other("trace")
    available = _of_other("available")
    time = _of_other("time")

    def why_not_in_blocks(self) -> str:
        return self._problem.why_not_in_blocks()


@dataclass(frozen=True)
class Starts:
    """Regret of policies that were newly built at each of K starts.

    Attributes:
        regret: by policy, (K,) mean regret per step from each start to the next, averaged over replicates.
        random: (K,) the expected value of the same for drawing arms at random.
        steps: number of steps from one start to the next; 0 if there are no starts.
    """

    regret: Mapping[str, Tensor]
    random: Tensor
    steps: int

    def of_whole(self, regret: Tensor) -> Tensor:
        """(K,) mean regret per step on the same stretches, from the regret (S, T) of one play of the whole record.

        Raises ValueError for a play that ends before the last stretch does.
        """
        K = len(self.random)
        validation.of_shape("regret", regret, ("S", "T"))
        shape = f"(S, T) with T >= {K * self.steps}, the end of the last stretch"
        validation.shape_is("regret", regret, regret.shape[1] >= K * self.steps, shape)
        return regret[:, : K * self.steps].mean(0).reshape(K, self.steps).mean(-1)


def starts_of(horizon: int) -> tuple[int, ...]:
    """The first step of each stretch: at most 10 stretches of equal length, of at least 50 steps, in 1, ..., T."""
    count = min(MOST_STARTS, horizon // SHORTEST)
    return tuple(1 + k * (horizon // count) for k in range(count))


def play_starts(
    problem: Problem,
    policies: Mapping[str, Build],
    horizon: int,
    *,
    seed: int = 0,
    progress: bool = False,
    capture: bool | int | str = False,
) -> Starts:
    """Play policies, newly built at each start, on stretches of a problem that do not overlap.

    Args:
        problem: its first T steps are cut into stretches (``starts_of``).
        policies: by name, each a function of a problem and its number of steps that builds the policy.
        horizon: T.
        seed: seed of the noise; start k = 0, 1, ... plays with ``seed`` + k.
        progress: show a bar for each play.
        capture: as for ``run``.

    Cost: about one play of each policy for T steps. Raises ValueError as ``run``.
    """
    firsts = starts_of(validation.positive_integer("horizon", horizon))
    steps = horizon // len(firsts) if firsts else 0
    regret: dict[str, list[float]] = {name: [] for name in policies}
    by_chance = []
    for k, first in enumerate(firsts):
        stretch = FromStep(problem, first, steps)
        by_chance.append(float(random_regret(stretch, steps).mean()))
        for name, build in policies.items():
            how: Any = {"progress": f"{name} from step {first}" if progress else False, "capture": capture}
            history = run(build(stretch, steps), stretch, steps, seed=seed + k, **how)
            regret[name].append(float(history.regret.mean()))
    numbers = {name: torch.tensor(values, dtype=torch.float64) for name, values in regret.items()}
    return Starts(numbers, torch.tensor(by_chance, dtype=torch.float64), steps)
