"""The command line: ``bandits-torch list`` and ``bandits-torch race``."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bandits_torch import problems, recipes
from bandits_torch._version import __version__
from bandits_torch.cli_options import send_options
from bandits_torch.experiments.regret import random_regret, summary
from bandits_torch.experiments.report import write_report
from bandits_torch.experiments.sweep import race as race_policies
from bandits_torch.history import History
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem

DEFAULT_HORIZON = 1000
_SHARED_FROM = 2_000_000  # numbers in the covariances of all replicates; below, one thread serves a step best
DEFAULT_POLICIES = "random,igp_ucb,gp_ts,r_gp_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"
_NOT_OPTIONS = {"replicates", "first_replicate", "horizon", "seed"}  # set by flags, or never

app = typer.Typer(
    help="Race bandit algorithms on functions that change with time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"bandits_torch {__version__}")
        raise typer.Exit


@app.command("list")
def list_names() -> None:
    """Name the problems and policies there are, a line on each."""
    described = {
        "problem": problems.describe(),
        "policy": {name: _first_line(recipe) for name, recipe in recipes.RECIPES.items()},
    }
    for kind, lines in described.items():
        table = Table(kind, "what it is", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.columns[0].no_wrap = True
        for name, line in lines.items():
            table.add_row(name, line)
        Console().print(table, "")


@app.command()
def race(
    problem: Annotated[str, typer.Option(help="What to optimise; see `bandits-torch list`.")] = "switching",
    policies: Annotated[str, typer.Option(help="Comma-separated names.")] = DEFAULT_POLICIES,
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
    data: Annotated[Path | None, typer.Option(help="File of a problem that replays real data.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting key=value of the problem or the policies that accept the key; "
            "problem.key=value or POLICY.key=value for one of them. Repeat for more."
        ),
    ] = None,
) -> None:
    """Race policies on a problem.

    Prints a table of regret; writes regret.csv, regret.png and run.json.
    """
    with _one_line_errors():
        names = _names(policies)
        accepted = {"problem": _problem_options(problem), **{name: _recipe_options(name) for name in names}}
        sent = send_options(option or [], accepted)
        _prepare(out)
        made = problems.make(
            problem,
            replicates=replicates,
            horizon=DEFAULT_HORIZON if horizon is None and data is None else horizon,
            seed=seed,
            data=data,
            **sent["problem"],
        ).to(_device(device))
        steps = min(DEFAULT_HORIZON, made.horizon or DEFAULT_HORIZON) if horizon is None else horizon
        asked = Race(problem, names, steps, replicates, seed, device, str(data) if data else None, sent)
        _set_threads(threads, made.num_arms, replicates)
        _run(asked, made, out)


def main() -> None:
    """Run the command line."""
    app(prog_name="bandits-torch")


def _run(asked: Race, problem: Problem, out: Path) -> None:
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
    started, clock = datetime.now(UTC), time.perf_counter()
    histories = race_policies(built, problem, asked.horizon, seed=asked.seed, progress=True)
    for history in histories.values():
        history.meta["problem"] = asked.problem
    random = random_regret(problem, asked.horizon)
    settings = asdict(asked) | {
        "started": started.isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - clock,
        "device_name": _device_name(problem.arms.device),
        "threads": torch.get_num_threads(),
    }
    paths = write_report(out, histories, random, settings)
    console = Console()
    console.print(_table(asked, histories, random))
    console.print(f"wrote {', '.join(map(str, paths))}", soft_wrap=True, markup=False, highlight=False)


def _set_threads(threads: int | None, num_arms: int, replicates: int) -> None:
    """Threads that wait for each other cost more than a short step, tens of times more on a busy machine."""
    if threads is not None:
        torch.set_num_threads(threads)
    elif num_arms**2 * replicates < _SHARED_FROM:
        torch.set_num_threads(1)


def _table(asked: Race, histories: Mapping[str, History], random: Tensor) -> Table:
    """Policies from best to worst, then what playing at random and the oracle come to."""
    at_random = float(random.sum(-1).mean())
    size = f"{asked.horizon} steps, {asked.replicates} replicates, seed {asked.seed}, {asked.device}"
    table = Table(title=f"{asked.problem}: {size}", title_justify="left")
    table.add_column("policy", no_wrap=True)
    for column in ("cumulative regret", "standard error", "% of random", "ms per step"):
        table.add_column(column, justify="right")
    for name, row in summary(histories).sort_values("mean_cumulative_regret").iterrows():
        regret, error, ms = row["mean_cumulative_regret"], row["standard_error"], row["ms_per_step"]
        cells = [
            f"{regret:.2f}",
            "" if error != error else f"{error:.2f}",
            _percent(regret, at_random),
            f"{ms:.3f}",
        ]
        table.add_row(str(name), *cells)
    table.add_section()
    table.add_row(
        "random (expected)", f"{at_random:.2f}", "", _percent(at_random, at_random), "", style="dim"
    )
    table.add_row("oracle", "0.00", "", _percent(0.0, at_random), "", style="dim")
    return table


def _percent(regret: float, at_random: float) -> str:
    return f"{100 * regret / at_random:.1f}" if at_random > 0 else ""


def _names(policies: str) -> list[str]:
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"policies must be different names separated by commas, got {policies!r}")
    for name in names:
        if name not in recipes.RECIPES:
            raise ValueError(f"policy must be one of {', '.join(recipes.RECIPES)}, got {name!r}")
    return names


def _problem_options(name: str) -> list[str]:
    if name not in problems.PROBLEMS:
        raise ValueError(f"problem must be one of {', '.join(problems.PROBLEMS)}, got {name!r}")
    return [key for key in problems.options_of(name) if key not in _NOT_OPTIONS]


def _recipe_options(name: str) -> list[str]:
    return [key for key in recipes.options_of(name) if key not in _NOT_OPTIONS]


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


def _prepare(out: Path) -> None:
    """Make the output folder before the race, not after it."""
    out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise ValueError(f"out must be a folder that can be written to, got {str(out)!r}")


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn any error into one line on standard error and exit code 2."""
    try:
        yield
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except ValueError as error:
        _fail(str(error))
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)
