"""Plays what was asked for, when all arguments were read: a race and its report, or the cells of a sweep and their
tables."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pandas as pd
import torch
from rich.console import Console
from torch import Tensor

from bandits_torch import problems, recipes
from bandits_torch.cli.asked import DEFAULT_HORIZON, MOST_THREADS, Race, checksum, whole_number
from bandits_torch.cli.catalogue import catalogue
from bandits_torch.cli.folder import RaceFolder, enter
from bandits_torch.cli.output import says_how_to_go_on
from bandits_torch.description import description, is_structure, shown
from bandits_torch.experiments.comparison import (
    compare,
    is_compared_from_starts,
    policies_for,
    snippet,
    unseen_cycles,
)
from bandits_torch.experiments.earned import earned, random_regret
from bandits_torch.experiments.engines import Block, ProblemSetting, RecipeSetting, make_cells
from bandits_torch.experiments.page import page
from bandits_torch.experiments.report import (
    earned_table,
    read_settings,
    results_table,
    why_no_error,
    write_report,
)
from bandits_torch.experiments.sweep import SweepFailed, starts_of, sweep
from bandits_torch.files import atomic_write
from bandits_torch.history import History, versions
from bandits_torch.loop import run
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.diagnosis import Diagnosis, diagnose
from bandits_torch.problems.problem import Knowledge, Problem
from bandits_torch.problems.replay import Replay
from bandits_torch.threads import exactly, threads_for

DEFAULT_EVERY = 1000
_TRIAL = 30  # steps, by which it is told how long a race takes


def play(
    asked: Race,
    out: Path,
    *,
    threads: int | None = None,
    checkpoint: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    fitting: bool = False,
) -> dict[str, History] | None:
    """Play the race and write its report into ``out``; None if a race to resume is complete already.

    ``fitting``: whether a table adds the policies that fit its rewards, unless options are for policies.
    """
    problem = _problem(asked)
    found = diagnose(problem.record()) if isinstance(problem, Replay) else None
    if found is not None:
        click.echo(str(found))
    if found is not None and fitting and not any(asked.options[name] for name in asked.policies):
        names, why = policies_for(found)
        options = {"problem": asked.options["problem"], **{name: {} for name in names}}
        asked = replace(asked, policies=names, options=options)
        click.echo(f"{why}: {', '.join(names)} are raced; --policies names others.")
    click.echo("\n".join([*problem.summary(), *unseen_cycles(problem, found), ""]), nl=False)
    by_default = not asked.horizon
    if by_default:  # all rows of a record
        most = problem.horizon or DEFAULT_HORIZON
        asked = replace(asked, horizon=min(most, DEFAULT_HORIZON) if asked.data is None else most)
    with exactly(threads or threads_for(problem.num_arms**2 * asked.replicates)):
        built = {name: _policy(name, asked, problem, asked.horizon) for name in asked.policies}
        every = DEFAULT_EVERY if resume and checkpoint is None else checkpoint
        folder = RaceFolder(out, asked.settings())
        standing = folder.enter(keep=every is not None, resume=resume, overwrite=overwrite)
        if standing == "over":
            return None
        if by_default and standing == "begin" and asked.horizon > DEFAULT_HORIZON:
            click.echo(_how_long(asked, problem))
        histories: dict[str, History] = {}
        with says_how_to_go_on(
            lambda interrupt: _how_to_go_on(interrupt, asked.policies, len(histories), folder, every)
        ):
            started, clock = datetime.now(UTC), time.perf_counter()
            for name, policy in built.items():
                at = folder.checkpoint(name)
                saved: dict[str, Any] = {} if every is None else {"checkpoint": at, "every": every}
                history = run(policy, problem, asked.horizon, seed=asked.seed, progress=name, **saved)
                history.meta |= {"policy": name, "problem": asked.problem}
                histories[name] = history
            _report(asked, problem, found, histories, started, clock, folder)
            if every is not None:
                folder.leave()
    return histories


def play_again(record: Path, out: Path, data: Path | None, overwrite: bool) -> list[str]:
    """Play a race again from its ``run.json``, and return the policies whose regret differs."""
    settings = read_settings(record)
    if "threads" in settings and isinstance(settings["threads"], int):
        whole_number("threads of run.json", settings["threads"], 1, MOST_THREADS)
    if (out / "run.json").exists() and (out / "run.json").samefile(record):
        raise ValueError(f"out must be another folder than the record's, got {str(out)!r}")
    asked = Race.of(settings)
    if data is not None:
        asked = replace(asked, data=str(data))
    wanted, found = settings["data_sha256"], checksum(asked.data)
    if found != wanted:
        raise ValueError(f"data must be the file with SHA-256 {wanted}, got {asked.data!r} with {found}")
    now = versions()
    changed = [f"{name} {was}" for name, was in settings["versions"].items() if now.get(name) != was]
    if changed:
        click.echo(f"note: written with {', '.join(changed)}: numbers may differ in the last bits", err=True)
    histories = play(asked, out, threads=settings["threads"], overwrite=overwrite) or {}
    return [
        name
        for name, history in histories.items()
        if history.regret.sum(-1).tolist() != settings["results"][name]["cumulative_regret"]
    ]


def _problem(asked: Race) -> Problem:
    """Build the problem. Errors name command-line options where they concern how a table is read."""
    device = torch.device(asked.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {asked.device!r} is not there: torch sees no CUDA device")
    try:
        problem = problems.make(
            asked.problem,
            replicates=asked.replicates,
            horizon=asked.problem_horizon,
            seed=asked.seed,
            data=asked.data,
            **asked.options["problem"],
        )
    except ValueError as error:
        settable = catalogue().problems[asked.problem].options
        named = [name for name in settable if re.search(rf"\b{name}(=| must be )", str(error))]
        said = ", ".join(f"--option {name}=..." for name in named)
        here = f" (here: {said})" if said and asked.data is not None else ""
        raise ValueError(f"{error}{here}") from error
    return problem.to(device)


def _policy(name: str, asked: Race, problem: Problem, horizon: int) -> Policy:
    """Build the policy. Errors name the policy and its options."""
    common = {"replicates": asked.replicates, "horizon": horizon, "seed": asked.seed}
    options = asked.options[name]
    try:
        return recipes.build(name, problem, **common, **options)
    except ValueError as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise ValueError(f"{name}({given}): {error}" if given else f"{name}: {error}") from error


def _how_long(asked: Race, problem: Problem) -> str:
    """An estimate of how long a race takes, from a trial of a few steps."""
    seconds = 0.0
    for name in asked.policies:
        tried = run(_policy(name, asked, problem, asked.horizon), problem, _TRIAL, seed=asked.seed)
        seconds += asked.horizon * tried.meta["wall_seconds"] / _TRIAL
    starts = starts_of(asked.horizon) if is_compared_from_starts(asked.policies, problem) else ()
    plays = f", each once through and once from {len(starts)} starts" if starts else ""
    seconds *= 2 if starts else 1
    size, unit = next(((n, unit) for n, unit in ((3600, "h"), (60, "min")) if seconds > 1.5 * n), (1, "s"))
    steps = f"{asked.horizon} steps of {_policies(len(asked.policies))}{plays}"
    return f"{steps}: about {seconds / size:.2g} {unit}; --horizon plays fewer"


def _policies(count: int) -> str:
    return "1 policy" if count == 1 else f"{count} policies"


def _how_to_go_on(
    interrupt: KeyboardInterrupt, policies: Sequence[str], played: int, folder: RaceFolder, every: int | None
) -> str:
    """How far an interrupted race came, what is kept, and how to continue it."""
    said, kept = " before the report was written", [f"{_policies(played)} played"] if played else []
    if played < len(policies):
        name = policies[played]
        said = f" in {name}, policy {played + 1} of {len(policies)}"
        said += "".join(f", {words}" for words in interrupt.args)
        kept += [f"the last checkpoint of {name}"] if folder.checkpoint(name).exists() else []
    if every is None:
        return f"{said}: nothing is kept; with --checkpoint STEPS a race keeps what it has, for --resume to go on"
    are = "are" if played > 1 or len(kept) > 1 else "is"
    where = f"{' and '.join(kept)} {are} kept in {str(folder.kept)!r}" if kept else "nothing is kept yet"
    return f"{said}: {where}; continue with the same command and --resume"


def _report(
    asked: Race,
    problem: Problem,
    found: Diagnosis | None,
    histories: Mapping[str, History],
    started: datetime,
    clock: float,
    folder: RaceFolder,
) -> None:
    """Compare the policies, write the files of the report, and print tables and advice."""
    random = random_regret(problem, asked.horizon)
    gained = earned(problem, histories, random)

    def build(name: str, part: Problem, steps: int) -> Policy:
        return _policy(name, asked, part, steps)

    compared = compare(problem, histories, random, build, asked.seed, gained)
    python = None
    if compared is not None and compared.taken and asked.problem == "replay" and asked.data is not None:
        options = asked.options
        python = snippet(compared.taken, asked.data, options["problem"], options[compared.taken])
    device = problem.arms.device
    settings = {
        **asked.settings(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - clock,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "knowledge": _known(problem.knowledge),
        "arm_names": list(getattr(problem, "arm_names", ())) or None,
        "diagnosis": None if found is None else found.to_dict(),
        "earned": gained.record(),
        "advice": None if compared is None else compared.record() | {"python": python},
    }
    facts = {
        "played": settings["started"].replace("T", " "),
        "took": f"{settings['seconds']:.0f} s on {settings['device_name']}",
        "seed": asked.seed,
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "beside this file": "regret.csv, step by step; run.json, all settings, from which `rerun` repeats the race",
    }
    heading = Path(asked.data).name if asked.data else asked.problem
    text = page(histories, random, problem, heading, compared, python, facts, gained, found)
    folder.begin_report()
    paths = write_report(folder.out, histories, random, settings, page=text)
    size = f"{asked.horizon} steps, {asked.replicates} replicates, seed {asked.seed}, {asked.device}"
    attainable = gained.maximum - gained.attainable if gained.noisy else None
    console = Console()
    console.print(earned_table(f"{asked.problem}: earned in {asked.horizon} steps", gained))
    console.print(results_table(f"{asked.problem}: {size}", histories, random, attainable=attainable))
    lines = [*gained.about_regret(), *why_no_error(histories), f"wrote {', '.join(map(str, paths))}"]
    if compared is not None:
        lines += ["", *compared.sentences, *([] if python is None else ["", python])]
    click.echo("\n".join(lines))


def _known(knowledge: Knowledge) -> dict[str, Any]:
    """The prior knowledge by path, as JSON values; matrices and structure are described in words."""
    known = description(knowledge, "knowledge")
    return {
        path.removeprefix("knowledge."): _plain(leaf)
        for path, leaf in known.items()
        if "_constraint" not in path  # of a hyperparameter's range, as gpytorch's kernels name it
    }


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, float):
        return leaf if math.isfinite(leaf) else shown(leaf)
    if isinstance(leaf, Tensor):
        numbers = leaf.squeeze()
        return numbers.tolist() if numbers.dim() <= 1 and numbers.isfinite().all() else shown(leaf)
    return shown(leaf) if is_structure(leaf) else leaf


_TABLE = "sweep.csv"
_COLUMNS = ("problem", "policy", "replicate", "cumulative_regret", "ms_per_step")


def run_sweep(
    problems: Mapping[str, Mapping[str, Any]],
    policies: Mapping[str, Mapping[str, Any]],
    *,
    data: Path | None,
    horizon: int,
    replicates: int,
    block: int | None,
    seed: int,
    out: Path,
    resume: bool,
    overwrite: bool,
    **engine: Any,
) -> list[str]:
    """Sweep over problems and policies, each with its options, and print and write the results.

    ``engine``: as for ``sweep``. Returns a line for each cell that failed.
    """
    needs_data = [name for name in problems if catalogue().problems[name].needs_data]
    places = dict.fromkeys(needs_data, str(data.resolve())) if data else {}
    swept = {name: ProblemSetting(name, options, places.get(name)) for name, options in problems.items()}
    players = {name: RecipeSetting(name, options) for name, options in policies.items()}
    whole = Block(replicates, horizon, 0, seed)
    cells = [out / "cells" / cell.key for cell in make_cells(swept, players, whole, block)]
    finished, table = sum(path.exists() for path in cells), out / _TABLE
    there = table.exists()
    is_ours = table.is_file() and table.read_bytes()[:200].splitlines()[:1] == [",".join(_COLUMNS).encode()]
    unfinished = f"{finished} finished cells of this sweep", f"remove {str(out / 'cells')!r}"
    enter(
        out,
        "sweep",
        foreign=[_TABLE] if there and not is_ours else [],
        unfinished=unfinished if finished else None,
        other=f"the {_TABLE} of another sweep" if there and not finished else None,
        resume=resume,
        overwrite=overwrite and not finished,
    )

    def how_to_go_on(_: KeyboardInterrupt) -> str:
        now = sum(path.exists() for path in cells)
        done = f"{now} of {len(cells)} cells are finished in {str(out / 'cells')!r}"
        return f": {done}; continue with the same command and --resume"

    asked = {"replicates": replicates, "block": block, "seed": seed, "out": out / "cells", **engine}
    failures: list[str] = []
    try:
        with says_how_to_go_on(how_to_go_on):
            histories = sweep(swept, players, horizon, progress=True, **asked)
    except SweepFailed as failed:
        histories = failed.histories
        failures = [f"{title}: {failure.error}" for title, failure in failed.failures.items()]
    _sweep_report(histories, swept, whole, out)
    return failures


def _sweep_report(
    histories: Mapping[str, Mapping[str, History]],
    swept: Mapping[str, ProblemSetting],
    whole: Block,
    out: Path,
) -> None:
    """A table on the screen for each problem, and one row per problem, policy and replicate in ``sweep.csv``."""
    console, parts = Console(), []
    for name, rows in histories.items():
        if not rows:
            continue
        steps = next(iter(rows.values())).horizon
        random = random_regret(swept[name](whole), steps)
        title = f"{name}: {steps} steps, {whole.replicates} replicates, seed {whole.seed}"
        console.print(results_table(title, rows, random))
        click.echo("".join(f"{line}\n" for line in why_no_error(rows)), nl=False)
        for policy, history in rows.items():
            totals = history.regret.sum(-1).numpy()
            columns = (name, policy, range(history.replicates), totals, history.ms_per_step)
            parts.append(pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True))))
    if parts:
        with atomic_write(out / _TABLE) as file:
            pd.concat(parts, ignore_index=True).to_csv(file, index=False, float_format="%.10g")
        click.echo(f"wrote {out / _TABLE}")
