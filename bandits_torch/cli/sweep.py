"""``bandits-torch sweep``: policies on several problems, in cells that can be spread out and continued."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console

from bandits_torch import problems, recipes
from bandits_torch.cli.options import different_names, send_options, settable
from bandits_torch.cli.output import one_line_errors, results_table
from bandits_torch.experiments.cells import Block, ProblemSetting, RecipeSetting, make_cells
from bandits_torch.experiments.engines import ENGINES
from bandits_torch.experiments.regret import random_regret
from bandits_torch.experiments.sweep import SweepFailed
from bandits_torch.experiments.sweep import sweep as run_sweep
from bandits_torch.files import atomic_write
from bandits_torch.history import History

_POLICIES = "random,igp_ucb,gp_ts,r_gp_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"


def sweep(
    names: Annotated[
        str, typer.Option("--problems", help="Comma-separated names; see `bandits-torch list`.")
    ] = "gp,switching,tv-gp,cosine",
    policies: Annotated[str, typer.Option(help="Comma-separated names.")] = _POLICIES,
    horizon: Annotated[
        int, typer.Option(help="Steps, or as many as a problem has if those are fewer.")
    ] = 1000,
    replicates: Annotated[int, typer.Option(help="Independent runs of each policy on each problem.")] = 10,
    block: Annotated[
        int | None, typer.Option(help="Replicates side by side in a cell; default: all of them.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    engine: Annotated[str, typer.Option(help=f"Where cells run: {', '.join(ENGINES)}.")] = "local",
    threads: Annotated[int, typer.Option(help="CPU threads of a cell.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Cells at once; default: as the CPUs allow.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for sweep.csv and the finished cells.")] = Path("sweep"),
    data: Annotated[
        Path | None, typer.Option(help="File or folder of the problems that replay real data.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting key=value of every problem or policy that accepts the key; "
            "PROBLEM.key=value or POLICY.key=value for one of them. Repeat for more."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the sweep in OUT.")] = False,
) -> None:
    """Race policies on several problems, cell by cell, here, in processes or on Ray.

    Prints a table for each problem; writes sweep.csv, and every finished cell to OUT/cells, from where a sweep that
    was cut off continues with --resume. A cell that fails is named in the end, and the others are kept (exit code 1).
    """
    with one_line_errors():
        asked = different_names("problem", names, problems.PROBLEMS)
        raced = different_names("policy", policies, recipes.RECIPES)
        accepted = {name: settable(problems.options_of(name)) for name in asked}
        accepted |= {name: settable(recipes.options_of(name)) for name in raced}
        sent = send_options(option or [], accepted, problem="")
        places = {name: str(data.resolve()) if data and problems.needs_data(name) else None for name in asked}
        swept = {name: ProblemSetting(name, sent[name], places[name]) for name in asked}
        players = {name: RecipeSetting(name, sent[name]) for name in raced}
        whole = Block(replicates, horizon, 0, seed)
        _check_folder(out, resume, [cell.key for cell in make_cells(swept, players, whole, block)])
        try:
            histories = run_sweep(
                swept,
                players,
                horizon,
                replicates=replicates,
                block=block,
                seed=seed,
                engine=engine,
                threads=threads,
                jobs=jobs,
                out=out / "cells",
                progress=True,
            )
            failures: list[str] = []
        except SweepFailed as failed:
            histories = failed.histories
            failures = [f"{title}: {failure.error}" for title, failure in failed.failures.items()]
        _report(histories, swept, whole, out)
    for line in failures:
        typer.echo(f"failed: {line}", err=True)
    if failures:
        raise typer.Exit(1)


def _check_folder(out: Path, resume: bool, keys: list[str]) -> None:
    """Finished cells are used again only when that is asked for."""
    finished = sum((out / "cells" / key).exists() for key in keys)
    if finished and not resume:
        raise ValueError(
            f"out holds {finished} finished cells of this sweep, got {str(out)!r}: continue it with --resume, "
            f"or remove {str(out / 'cells')!r}"
        )


def _report(
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
        for policy, history in rows.items():
            columns = {
                "problem": name,
                "policy": policy,
                "replicate": range(history.replicates),
                "cumulative_regret": history.regret.sum(-1).numpy(),
                "ms_per_step": history.ms_per_step,
            }
            parts.append(pd.DataFrame(columns))
    if parts:
        with atomic_write(out / "sweep.csv") as file:
            pd.concat(parts, ignore_index=True).to_csv(file, index=False, float_format="%.10g")
        console.print(f"wrote {out / 'sweep.csv'}", soft_wrap=True, markup=False, highlight=False)
