"""Plays a race and writes its report, or runs a sweep and writes its table; and decides what either may overwrite,
resume and delete in its folder: never a file that no race or sweep wrote."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
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
from bandits_torch.checkpoint import warn_of_versions
from bandits_torch.cli.asked import DEFAULT_HORIZON, Race, says_option
from bandits_torch.cli.catalogue import catalogue
from bandits_torch.cli.output import says_how_to_go_on
from bandits_torch.description import description, is_structure, said_differences, shown
from bandits_torch.experiments.comparison import (
    compare,
    is_compared_from_starts,
    policies_for,
    snippet,
    unseen_cycles,
)
from bandits_torch.experiments.earned import earned, random_regret
from bandits_torch.experiments.engines import (
    Block,
    ProblemSetting,
    RecipeSetting,
    find_engine,
    keys_of,
    make_cells,
)
from bandits_torch.experiments.page import page
from bandits_torch.experiments.report import (
    REPORT,
    earned_table,
    read_settings,
    results_table,
    why_no_error,
    write_report,
)
from bandits_torch.experiments.sweep import SweepFailed, starts_of, sweep
from bandits_torch.files import atomic_write, checksum, locked, remove_parts
from bandits_torch.history import History, versions
from bandits_torch.loop import run
from bandits_torch.naming import counted
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.diagnosis import Diagnosis, diagnose, unit_of
from bandits_torch.problems.problem import Knowledge, Problem
from bandits_torch.problems.replay import Replay
from bandits_torch.state_files import read_state
from bandits_torch.threads import exactly, threads_for

DEFAULT_EVERY = 1000
_TRIAL = 30  # steps that are timed to estimate how long a race takes


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
    """Play the race and write its report into ``out``; None if the race to resume is already complete.

    ``fitting``: whether policies that fit a table's rewards replace those asked for, unless a policy has options.
    """
    problem = _problem(asked)
    found = diagnose(problem.record()) if isinstance(problem, Replay) else None
    if found is not None:
        click.echo(str(found))
    if found is not None and fitting and not any(asked.options[name] for name in asked.policies):
        names, why = policies_for(found)
        options = {"problem": asked.options["problem"], **{name: {} for name in names}}
        asked = replace(asked, policies=names, options=options)
        click.echo(f"{why}: {', '.join(names)} are raced; --policies selects others.")
    click.echo("\n".join([*problem.summary(), *unseen_cycles(problem, found), ""]), nl=False)
    by_default = not asked.horizon
    if by_default:  # all rows of a record
        most = problem.horizon or DEFAULT_HORIZON
        asked = replace(asked, horizon=min(most, DEFAULT_HORIZON) if asked.data is None else most)
    with exactly(threads or threads_for(problem.num_arms**2 * asked.replicates)):
        built = {name: _policy(name, asked, problem, asked.horizon) for name in asked.policies}
        every = DEFAULT_EVERY if resume and checkpoint is None else checkpoint
        folder = RaceFolder(out, asked.settings())
        with _alone(out):
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
                    how: dict[str, Any] = {"seed": asked.seed, "progress": name, "capture": asked.blocks}
                    history = run(policy, problem, asked.horizon, **saved, **how)
                    history.meta |= {"policy": name, "problem": asked.problem}
                    histories[name] = history
                _report(asked, problem, found, histories, started, clock, folder)
                if every is not None:
                    folder.leave()
    return histories


def play_again(record: Path, out: Path, data: Path | None, overwrite: bool) -> list[str]:
    """Repeat a race from its ``run.json``, and return the policies whose regret differs."""
    settings = read_settings(record)
    if (out / "run.json").exists() and (out / "run.json").samefile(record):
        raise ValueError(f"out must be another folder than the record's, got {str(out)!r}")
    asked = Race.of(settings)
    if data is not None:
        asked = replace(asked, data=str(data))
    wanted, found = settings["data_sha256"], checksum(asked.data)
    if found != wanted:
        raise ValueError(f"data must be the file with SHA-256 {wanted}, got {asked.data!r} with {found}")
    warn_of_versions(str(record), settings["versions"])
    histories = play(asked, out, threads=settings["threads"], overwrite=overwrite) or {}
    return [
        name
        for name, history in histories.items()
        if history.regret.sum(-1).tolist() != settings["results"][name]["cumulative_regret"]
    ]


def _problem(asked: Race) -> Problem:
    """Build the problem. Errors about the reading of a table name the command-line option."""
    device = torch.device(asked.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {asked.device!r} is not available: torch finds no CUDA device")
    settable = () if asked.data is None else catalogue().problems[asked.problem].options
    with says_option(settable):
        problem = problems.make(
            asked.problem,
            replicates=asked.replicates,
            horizon=asked.problem_horizon,
            seed=asked.seed,
            data=asked.data,
            **asked.options["problem"],
        )
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
    """A line that says how long the race takes, estimated from ``_TRIAL`` steps."""
    seconds = 0.0
    for name in asked.policies:
        for _ in range(1 + asked.capture):  # the first trial of blocks may compile
            policy = _policy(name, asked, problem, asked.horizon)
            tried = run(policy, problem, _TRIAL, seed=asked.seed, capture=asked.blocks)
        seconds += asked.horizon * tried.meta["wall_seconds"] / _TRIAL
    starts = starts_of(asked.horizon) if is_compared_from_starts(asked.policies, problem) else ()
    plays = f", each once through and once from {len(starts)} starts" if starts else ""
    seconds *= 2 if starts else 1
    unit, size = unit_of(seconds)
    steps = f"{asked.horizon} steps of {counted(len(asked.policies), 'policy', 'policies')}{plays}"
    return f"{steps}: about {counted(float(f'{seconds / size:.2g}'), unit)}; --horizon sets fewer steps"


def _how_to_go_on(
    interrupt: KeyboardInterrupt, policies: Sequence[str], played: int, folder: RaceFolder, every: int | None
) -> str:
    said = " before the report was written"
    kept = [f"{counted(played, 'policy', 'policies')} played"] if played else []
    if played < len(policies):
        name = policies[played]
        said = f" in {name}, policy {played + 1} of {len(policies)}"
        said += "".join(f", {words}" for words in interrupt.args)
        kept += [f"the last checkpoint of {name}"] if folder.checkpoint(name).exists() else []
    if every is None:
        return f"{said}: nothing is kept; a race with --checkpoint STEPS can be continued with --resume"
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
    random = random_regret(problem, asked.horizon)
    gained = earned(problem, histories, random)

    def build(name: str, part: Problem, steps: int) -> Policy:
        return _policy(name, asked, part, steps)

    compared = compare(problem, histories, random, build, asked.seed, gained, asked.blocks)
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
        "arm_names": list(problem.arm_names) or None,
        "diagnosis": None if found is None else found.to_dict(),
        "earned": gained.record(),
        "advice": None if compared is None else compared.record() | {"python": python},
    }
    facts = {
        "played": settings["started"].replace("T", " "),
        "took": f"{settings['seconds']:.0f} s on {settings['device_name']}",
        "seed": asked.seed,
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "other files": "regret.csv, step by step; run.json, all settings, from which `rerun` repeats the race",
    }
    heading = Path(asked.data).name if asked.data else asked.problem
    text = page(histories, random, problem, heading, compared, python, facts, gained, found)
    folder.begin_report()
    paths = write_report(folder.out, histories, random, settings, page=text)
    size = f"{counted(asked.horizon, 'step')}, {counted(asked.replicates, 'replicate')}"
    size += f", seed {asked.seed}, {asked.device}"
    console = Console()
    console.print(earned_table(f"{asked.problem}: earned in {counted(asked.horizon, 'step')}", gained))
    console.print(results_table(f"{asked.problem}: {size}", histories, random, gained.unavoidable))
    lines = [*gained.about_regret(), *why_no_error(histories), f"wrote {', '.join(map(str, paths))}"]
    if compared is not None:
        lines += ["", *compared.sentences, *([] if python is None else ["", python])]
    click.echo("\n".join(lines))


def _known(knowledge: Knowledge) -> dict[str, Any]:
    """The prior knowledge by path, as JSON values; matrices and structure as text."""
    known = description(knowledge, "knowledge")
    return {
        path.removeprefix("knowledge."): _plain(leaf)
        for path, leaf in known.items()
        if "_constraint" not in path  # ranges of hyperparameters in gpytorch's kernels
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
    capture: bool | str,
    **engine: Any,
) -> list[str]:
    """Sweep over problems and policies, given with their options; print and write the results.

    ``capture`` and ``engine``: further arguments of ``sweep``. Returns a line per cell that failed.
    """
    needs_data = [name for name in problems if catalogue().problems[name].needs_data]
    places = dict.fromkeys(needs_data, str(data.resolve())) if data else {}
    swept = {name: ProblemSetting(name, options, places.get(name)) for name, options in problems.items()}
    players = {name: RecipeSetting(name, options) for name, options in policies.items()}
    whole = Block(replicates, horizon, 0, seed)
    cells = [out / "cells" / key for key in keys_of(make_cells(swept, players, whole, block, capture))]
    find_engine(engine["engine"], engine["threads"], engine["jobs"])  # refused before the folder is made
    with _alone(out):
        finished, table = [path for path in cells if path.exists()], out / _TABLE
        head = ",".join(_COLUMNS).encode()
        is_ours = table.is_file() and table.read_bytes().splitlines()[:1] == [head]
        asked = {f"{one},{other},{k}" for one in swept for other in players for k in range(replicates)}
        is_other = is_ours and not _is_of(finished, asked, table)
        unfinished = f"{len(finished)} finished cells of this sweep", f"remove {str(out / 'cells')!r}"
        enter(
            out,
            "sweep",
            foreign=[_TABLE] if table.exists() and not is_ours else [],
            unfinished=unfinished if finished and not is_other else None,
            other=f"the {_TABLE} of another sweep" if is_other else None,
            resume=resume,
            overwrite=overwrite and is_other,
        )
        for path in (*(cell for cell in cells if not cell.exists()), table):
            remove_parts(path)  # a sweep that was killed may leave them

        def how_to_go_on(_: KeyboardInterrupt) -> str:
            now = sum(path.exists() for path in cells)
            done = f"{now} of {len(cells)} cells are finished in {str(out / 'cells')!r}"
            return f": {done}; continue with the same command and --resume"

        which: Any = {"replicates": replicates, "block": block, "seed": seed, "capture": capture}
        failures: list[str] = []
        try:
            with says_how_to_go_on(how_to_go_on):
                histories = sweep(
                    swept, players, horizon, out=out / "cells", progress=True, **which, **engine
                )
        except SweepFailed as failed:
            histories = failed.histories
            failures = [f"{title}: {failure.error}" for title, failure in failed.failures.items()]
        console = Console()
        played: list[History] = []
        for name, rows in histories.items():
            if not rows:
                continue
            steps = next(iter(rows.values())).horizon
            random = random_regret(swept[name](whole), steps)
            title = f"{name}: {counted(steps, 'step')}, {counted(whole.replicates, 'replicate')}, seed {whole.seed}"
            console.print(results_table(title, rows, random))
            click.echo("".join(f"{line}\n" for line in why_no_error(rows)), nl=False)
            played += rows.values()
        if played:
            with atomic_write(table) as file:
                file.write(_csv(played).encode())
            click.echo(f"wrote {table}")
        return failures


def _csv(histories: Sequence[History]) -> str:
    """The table of these histories."""
    parts = []
    for history in histories:
        first, totals = history.meta["first_replicate"], history.regret.sum(-1).numpy()
        replicates = range(first, first + history.replicates)
        columns = (history.meta["problem"], history.meta["policy"], replicates, totals, history.ms_per_step)
        parts.append(pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True))))
    return pd.concat(parts).to_csv(index=False, float_format="%.10g")


def _is_of(cells: Sequence[Path], rows: set[str], table: Path) -> bool:
    """Whether the table is of the sweep with these finished cells and ``rows`` (problem, policy, replicate): it has no
    other rows, and one of a cell."""

    def totals(csv: str) -> set[str]:  # the last column is a time
        return {line.rpartition(",")[0] for line in csv.splitlines()[1:]}

    there = totals(table.read_text(encoding="utf-8", errors="replace"))
    fits = {line.rpartition(",")[0] for line in there} <= rows
    return fits and any(there & totals(_csv([History.load(cell)])) for cell in cells)


# --- the folder ---

_FORMAT = "bandits_torch race in progress"
_OPTION = "option "


def _alone(out: Path) -> AbstractContextManager[bool]:
    """Lock the folder, which is made, against other races and sweeps. Raises ValueError if one plays in it."""
    expected = "a folder in which no other race or sweep is playing now"
    return locked(out, f"out must be {expected}, got {str(out)!r}")


def enter(
    out: Path,
    work: str,
    *,
    foreign: Sequence[str],
    unfinished: tuple[str, str] | None,
    other: str | None,
    over: bool = False,
    resume: bool,
    overwrite: bool,
) -> str:
    """``"begin"``, ``"resume"``, or ``"over"`` if the work to resume is complete. Raises ValueError if the folder or
    its files must not be used: ``foreign`` ones, which no race or sweep wrote; or those of work that is ``unfinished``,
    in words, with how to begin again, or of ``other`` work. ``over``: whether the work asked for is complete."""
    if over and resume:
        click.echo(f"nothing to resume: the {work} in {out} is complete", err=True)
        return "over"
    place = f"got {str(out)!r}"
    if foreign:
        raise ValueError(
            f"out holds {', '.join(foreign)}, which no {work} of this version wrote, {place}: rename or remove it, or "
            "give another --out"
        )
    if unfinished is not None and not (resume or overwrite):
        words, afresh = unfinished
        raise ValueError(f"out holds {words}, {place}: continue it with --resume, or {afresh}")
    if other is not None and not overwrite:
        raise ValueError(f"out holds {other}, {place}: give another --out, or --overwrite")
    if resume and unfinished is not None:
        return "resume"
    if resume:
        click.echo(f"note: nothing to resume in {out}: the {work} begins at its first step", err=True)
    return "begin"


class RaceFolder:
    """The folder ``out``, with the report of a complete race, the checkpoints of an unfinished one, or neither.

    A race with checkpoints has ``checkpoints/race.json``, with its settings, and a state file for each policy it
    started. Only these, and remains of interrupted writes, are ever deleted.
    """

    def __init__(self, out: Path, settings: Mapping[str, Any]) -> None:
        self.out, self._settings = out, dict(settings)
        self.kept = out / "checkpoints"
        self._record = self.kept / "race.json"

    def checkpoint(self, policy: str) -> Path:
        """The state file of the policy's run."""
        return self.kept / policy

    def enter(self, *, keep: bool, resume: bool = False, overwrite: bool = False) -> str:
        """Make the folder ready, or refuse it and change nothing; ``keep``: whether the race writes checkpoints.

        Returns ``"begin"``, ``"resume"``, or ``"over"`` if the race asked for is to be resumed and has its report
        already. Raises ValueError, and OSError for a folder that cannot be made.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        if not os.access(self.out, os.W_OK | os.X_OK):
            raise ValueError(f"out must be a folder that can be written to, got {str(self.out)!r}")
        record = self.in_progress()
        standing = enter(self.out, "race", **self._contents(record, keep), resume=resume, overwrite=overwrite)
        if standing == "over":
            return standing
        if record is not None and standing == "begin":
            self._remove(record["asked"])
        for name in REPORT:
            remove_parts(self.out / name)
        if keep and standing == "begin":
            self._write_record(reporting=False)
        return standing

    def begin_report(self) -> None:
        """Record that report files may exist from now on."""
        if self.in_progress() is not None:
            self._write_record(reporting=True)

    def leave(self) -> None:
        """Delete the checkpoints of the complete race."""
        if self.in_progress() is not None:
            self._remove(self._settings)

    def in_progress(self) -> dict[str, Any] | None:
        """The record of the race in progress; None if there is none, or if no race wrote it."""
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        asked = record.get("asked") if isinstance(record, dict) and record.get("format") == _FORMAT else None
        return record if isinstance(asked, dict) and isinstance(asked.get("policies"), list) else None

    def _contents(self, record: Mapping[str, Any] | None, keep: bool) -> dict[str, Any]:
        """The contents of the folder, as arguments of ``enter``."""
        there = [name for name in REPORT if (self.out / name).exists()]
        foreign = [name for name in there if not (self.out / name).is_file()]
        try:
            written = read_settings(self.out / "run.json")
        except (OSError, ValueError):
            written = None
            if record is None or record.get("reporting") is not True or "run.json" in there:
                foreign = there
        if keep and record is None and self.kept.exists():
            remove_parts(self._record)  # a race that was killed early may leave them
            if not self.kept.is_dir() or any(self.kept.iterdir()):
                foreign.append(str(self.kept))
        held = written if record is None else record["asked"]
        differs = "" if held is None else self._differences(held)
        work = "another race" if record is None else "the checkpoints of another race"
        interrupted = "the checkpoints of an interrupted race", "start again with --overwrite"
        return {
            "foreign": foreign,
            "unfinished": None if record is None else interrupted,
            "other": f"{work} ({differs})" if differs else None,
            "over": record is None and held is not None and not differs and len(there) == len(REPORT),
        }

    def _differences(self, written: Mapping[str, Any]) -> str:
        """How the settings of a race differ from those of the one asked for; empty if they do not."""
        was, now = _flat(written), _flat(self._settings)
        keys = {**now, **{key: None for key in was if key.startswith(_OPTION)}}
        if self._settings["data_sha256"] is not None:  # the path of the same file may differ
            keys.pop("data")
        return said_differences({key: was.get(key) for key in keys}, {key: now.get(key) for key in keys})

    def _write_record(self, *, reporting: bool) -> None:
        record = {"format": _FORMAT, "asked": self._settings, "reporting": reporting}
        with atomic_write(self._record) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode())

    def _remove(self, race: Mapping[str, Any]) -> None:
        """Delete the state files of this race, its record last. Raises ValueError, with none deleted, for a foreign
        file."""
        a_name = r"([A-Za-z_][\w.]*:)?[A-Za-z_][\w-]*"  # with its module, if that was given; never a path
        names = [str(name) for name in race["policies"] if re.fullmatch(a_name, str(name))]
        for path in map(self.checkpoint, names):
            if path.exists():
                read_state(path, "run")
        for path in map(self.checkpoint, names):
            path.unlink(missing_ok=True)
            remove_parts(path)
        self._record.unlink()
        remove_parts(self._record)
        if not any(self.kept.iterdir()):
            self.kept.rmdir()


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name; those of ``--option`` by the names that it takes."""
    options = settings.get("options")
    takers = options if isinstance(options, Mapping) else {}
    plain = {key: value for key, value in settings.items() if key != "options"}
    return plain | {
        f"{_OPTION}{taker}.{key}": value
        for taker, given in takers.items()
        if isinstance(given, Mapping)
        for key, value in given.items()
    }
