"""``bandits-torch race`` and ``rerun``: policies on one problem, a table, a picture and a record."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from bandits_torch import problems, recipes, validation
from bandits_torch.cli.options import different_names, send_options, settable
from bandits_torch.cli.output import one_line_errors, results_table
from bandits_torch.experiments.regret import random_regret
from bandits_torch.experiments.report import read_settings, write_report
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.recorder import versions

DEFAULT_HORIZON = 1000
DEFAULT_EVERY = 1000
_KEPT = "checkpoints"
_SHARED_FROM = 2_000_000  # numbers in the covariances of all replicates; below, one thread serves a step best
DEFAULT_POLICIES = "random,igp_ucb,gp_ts,r_gp_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"


@dataclass(frozen=True)
class Race:
    """What was asked of ``race``, as it is written to ``run.json``."""

    problem: str
    policies: list[str]
    horizon: int
    replicates: int
    seed: int
    device: str
    data: str | None
    options: dict[str, dict[str, Any]]
    problem_horizon: int | None  # what the problem was built for: None leaves it to the problem


def race(
    problem: Annotated[str, typer.Option(help="What to optimise; see `bandits-torch list`.")] = "switching",
    policies: Annotated[
        str,
        typer.Option(
            help="Names separated by commas; see `bandits-torch list`. By default "
            f"{DEFAULT_POLICIES.replace(',', ', ')}.",
            show_default=False,
        ),
    ] = DEFAULT_POLICIES,
    horizon: Annotated[
        int | None,
        typer.Option(
            help=f"Steps; by default {DEFAULT_HORIZON}, or as many as the data have if those are fewer."
        ),
    ] = None,
    replicates: Annotated[int, typer.Option(help="Independent runs, side by side.")] = 10,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads; by default one where a step is too short to share, else all."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for regret.csv, regret.png and run.json.")] = Path("race"),
    data: Annotated[
        Path | None,
        typer.Option(help="File (or its folder) of a problem that replays real data, such as `replay`."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting key=value of the problem or the policies that accept the key; "
            "problem.key=value or POLICY.key=value for one of them, as in sw_gp_ucb.window=150. Repeat for more; "
            "`bandits-torch list NAME` shows what there is."
        ),
    ] = None,
    checkpoint: Annotated[
        int | None,
        typer.Option(help="Steps between checkpoints, kept in OUT until the race is over; none by default."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the race in OUT, asked with the same settings.")
    ] = False,
) -> None:
    """Race policies on a problem.

    Prints a table of regret; writes regret.csv, regret.png and run.json, of which `rerun` makes them again.
    With --checkpoint a race that was cut off goes on with --resume as if nothing had happened.
    """
    with one_line_errors():
        names = different_names("policy", policies, recipes.RECIPES)
        accepted = {
            "problem": _problem_options(problem),
            **{name: settable(recipes.options_of(name)) for name in names},
        }
        sent = send_options(option or [], accepted)
        built_for = DEFAULT_HORIZON if horizon is None and data is None else horizon
        source = None if data is None else str(data)
        asked = Race(problem, names, horizon or 0, replicates, seed, device, source, sent, built_for)
        _prepare(out, checkpoint, resume)
        made = _problem(asked)
        if horizon is None:
            asked = replace(asked, horizon=min(DEFAULT_HORIZON, made.horizon or DEFAULT_HORIZON))
        _set_threads(threads, made.num_arms, replicates)
        _run(asked, made, out, DEFAULT_EVERY if resume and checkpoint is None else checkpoint)


def rerun(
    record: Annotated[Path, typer.Argument(help="run.json of a race.")],
    out: Annotated[Path, typer.Option(help="Folder for regret.csv, regret.png and run.json.")] = Path(
        "rerun"
    ),
    data: Annotated[
        Path | None, typer.Option(help="Where the data are now, if no longer where run.json says.")
    ] = None,
) -> None:
    """Run a race again from its run.json, and say whether its regret came out the same.

    With the same versions, device and kind of machine regret.csv is the same to the last byte. The exit code is 1
    where the regret of some replicate differs.
    """
    with one_line_errors():
        settings = read_settings(record)
        asked = Race(**{field.name: settings[field.name] for field in fields(Race)})
        if data is not None:
            asked = replace(asked, data=str(data))
        found = _checksum(asked.data)
        if found != settings["data_sha256"]:
            raise ValueError(
                f"data must be the file with SHA-256 {settings['data_sha256']}, got {asked.data!r} with {found}"
            )
        changed = [f"{name} {was}" for name, was in settings["versions"].items() if versions()[name] != was]
        if changed:
            typer.echo(
                f"note: written with {', '.join(changed)}: numbers may differ in the last bits", err=True
            )
        _prepare(out)
        torch.set_num_threads(settings["threads"])
        histories = _run(asked, _problem(asked), out)
        other = [
            name
            for name, history in histories.items()
            if history.regret.sum(-1).tolist() != settings["results"][name]["cumulative_regret"]
        ]
    typer.echo(f"regret differs from the record's: {', '.join(other)}" if other else "regret as recorded")
    if other:
        raise typer.Exit(1)


def _problem(asked: Race) -> Problem:
    return problems.make(
        asked.problem,
        replicates=asked.replicates,
        horizon=asked.problem_horizon,
        seed=asked.seed,
        data=asked.data,
        **asked.options["problem"],
    ).to(_device(asked.device))


def _run(asked: Race, problem: Problem, out: Path, every: int | None = None) -> dict[str, History]:
    """Play all policies and write the report; with ``every``, checkpoints on the way."""
    built: dict[str, Policy] = {
        name: recipes.build(
            name,
            problem,
            replicates=asked.replicates,
            horizon=asked.horizon,
            seed=asked.seed,
            **asked.options[name],
        )
        for name in asked.policies
    }
    started, clock, histories = datetime.now(UTC), time.perf_counter(), {}
    for name, policy in built.items():
        saved: dict[str, Any] = {} if every is None else {"checkpoint": out / _KEPT / name, "every": every}
        history = run(policy, problem, asked.horizon, seed=asked.seed, progress=name, **saved)
        history.meta |= {"policy": name, "problem": asked.problem}
        histories[name] = history
    random = random_regret(problem, asked.horizon)
    settings = asdict(asked) | {
        "started": started.isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - clock,
        "device_name": _device_name(problem.arms.device),
        "threads": torch.get_num_threads(),
        "data_sha256": _checksum(asked.data),
    }
    paths = write_report(out, histories, random, settings)
    shutil.rmtree(out / _KEPT, ignore_errors=True)
    console = Console()
    size = f"{asked.horizon} steps, {asked.replicates} replicates, seed {asked.seed}, {asked.device}"
    console.print(results_table(f"{asked.problem}: {size}", histories, random))
    console.print(f"wrote {', '.join(map(str, paths))}", soft_wrap=True, markup=False, highlight=False)
    return histories


def _checksum(data: str | None) -> str | None:
    """SHA-256 of a file; None for no data or a folder of them."""
    if data is None or Path(data).is_dir():
        return None
    with open(data, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _set_threads(threads: int | None, num_arms: int, replicates: int) -> None:
    """Threads that wait for each other cost more than a short step, tens of times more on a busy machine."""
    if threads is not None:
        torch.set_num_threads(threads)
    elif num_arms**2 * replicates < _SHARED_FROM:
        torch.set_num_threads(1)


def _problem_options(name: str) -> list[str]:
    if name not in problems.PROBLEMS:
        raise ValueError(f"problem must be one of {', '.join(problems.PROBLEMS)}, got {name!r}")
    return settable(problems.options_of(name))


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device must be cpu or cuda, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} is not there: torch sees no CUDA device")
    return device


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _prepare(out: Path, every: int | None = None, resume: bool = False) -> None:
    """Make the output folder before the race, not after it."""
    if every is not None:
        validation.positive_integer("checkpoint", every)
    if (out / _KEPT).exists() and not resume:
        raise ValueError(
            f"out holds the checkpoints of a race that was cut off, got {str(out)!r}: "
            f"continue it with --resume, or remove {str(out / _KEPT)!r}"
        )
    out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise ValueError(f"out must be a folder that can be written to, got {str(out)!r}")
