"""``bandits-torch sweep``: policies on several problems, in cells that can be spread out and continued."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bandits_torch.cli.asked import DEFAULT_POLICIES
from bandits_torch.cli.catalogue import catalogue
from bandits_torch.cli.options import (
    FILE,
    MOST_THREADS,
    different_names,
    known_name,
    send_options,
    whole_number,
)
from bandits_torch.cli.output import draw_to_files, one_line_errors, says_how_to_go_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bandits_torch.experiments.cells import Block, ProblemSetting
    from bandits_torch.history import History


@click.command(short_help="Algorithms on several problems, resumable.")
@click.option(
    "--problems",
    "names",
    default="gp,switching,tv-gp,cosine",
    help="Comma-separated names; see `bandits-torch list`.",
)
@click.option("--policies", default=DEFAULT_POLICIES, help="Comma-separated names.")
@click.option("--horizon", default=1000, help="Steps, or as many as a problem has if those are fewer.")
@click.option("--replicates", default=10, help="Independent runs of each policy on each problem.")
@click.option("--block", type=int, help="Replicates side by side in a cell; default: all of them.")
@click.option("--seed", default=0, help="Of everything random.")
@click.option("--engine", default="local", help=f"Where cells run: {', '.join(catalogue().engines)}.")
@click.option("--threads", default=1, help="CPU threads of a cell.")
@click.option("--jobs", type=int, help="Cells at once; default: as the CPUs allow.")
@click.option("--out", type=FILE, default=Path("sweep"), help="Folder for sweep.csv and the finished cells.")
@click.option("--data", type=FILE, help="File or folder of the problems that replay real data.")
@click.option(
    "--option",
    multiple=True,
    help="A setting key=value of every problem or policy that accepts the key; PROBLEM.key=value or "
    "POLICY.key=value for one of them. Repeat for more.",
)
@click.option("--resume", is_flag=True, help="Continue the sweep in OUT.")
@click.option("--overwrite", is_flag=True, help="Replace the table that another sweep left in OUT.")
def sweep(
    names: str,
    policies: str,
    horizon: int,
    replicates: int,
    block: int | None,
    seed: int,
    engine: str,
    threads: int,
    jobs: int | None,
    out: Path,
    data: Path | None,
    option: tuple[str, ...],
    resume: bool,
    overwrite: bool,
) -> None:
    """Race algorithms (policies) on several problems, cell by cell, here, in processes or on Ray.

    Prints a table for each problem; writes sweep.csv, and every finished cell to OUT/cells, from where a sweep that
    was cut off continues with --resume. A cell that fails is named in the end, and the others are kept (exit code 1).
    """
    with one_line_errors():
        asked = different_names("problem", names, catalogue().problems)
        raced = different_names("policy", policies, catalogue().policies)
        for name, value, least in (
            ("horizon", horizon, 1),
            ("replicates", replicates, 1),
            ("block", block, 1),
        ):
            whole_number(name, value, least)
        for name, value, least in (("seed", seed, 0), ("jobs", jobs, 1)):
            whole_number(name, value, least)
        whole_number("threads", threads, 1, MOST_THREADS)
        known_name("engine", engine, catalogue().engines)
        if resume and overwrite:
            raise ValueError("resume and overwrite exclude each other, got both")
        takers = {name: catalogue().problems[name] for name in asked}
        takers |= {name: catalogue().policies[name] for name in raced}
        sent = send_options(option, {name: one.options for name, one in takers.items()}, problem="")

        draw_to_files()
        from bandits_torch.experiments.cells import Block, ProblemSetting, RecipeSetting, make_cells
        from bandits_torch.experiments.sweep import SweepFailed
        from bandits_torch.experiments.sweep import sweep as run_sweep

        places = {name: str(data.resolve()) if data and takers[name].needs_data else None for name in asked}
        swept = {name: ProblemSetting(name, sent[name], places[name]) for name in asked}
        players = {name: RecipeSetting(name, sent[name]) for name in raced}
        whole = Block(replicates, horizon, 0, seed)
        keys = [cell.key for cell in make_cells(swept, players, whole, block)]
        _check_folder(out, keys, resume=resume, overwrite=overwrite)
        try:
            with says_how_to_go_on(lambda _: _how_to_go_on(out, keys)):
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
        click.echo(f"failed: {line}", err=True)
    if failures:
        raise SystemExit(1)


def _how_to_go_on(out: Path, keys: list[str]) -> str:
    return (
        f": {_finished(out, keys)} of {len(keys)} cells are finished in {str(out / 'cells')!r}; continue with the same "
        "command and --resume"
    )


def _finished(out: Path, keys: list[str]) -> int:
    return sum((out / "cells" / key).exists() for key in keys)


def _check_folder(out: Path, keys: list[str], *, resume: bool, overwrite: bool) -> None:
    """Finished cells are used again, and a table is replaced, only when that is asked for."""
    finished = _finished(out, keys)
    if finished and not resume:
        raise ValueError(
            f"out holds {finished} finished cells of this sweep, got {str(out)!r}: continue it with --resume, "
            f"or remove {str(out / 'cells')!r}"
        )
    if (out / "sweep.csv").exists() and not finished and not overwrite:
        raise ValueError(
            f"out holds the sweep.csv of another sweep, got {str(out)!r}: give another --out, or --overwrite"
        )
    if resume and not finished:
        click.echo(f"note: nothing to resume in {out}: the sweep begins with its first cell", err=True)


def _report(
    histories: Mapping[str, Mapping[str, History]],
    swept: Mapping[str, ProblemSetting],
    whole: Block,
    out: Path,
) -> None:
    """A table on the screen for each problem, and one row per problem, policy and replicate in ``sweep.csv``."""
    import pandas as pd
    from rich.console import Console

    from bandits_torch.cli.results import results_table, why_no_error
    from bandits_torch.experiments.regret import random_regret
    from bandits_torch.files import atomic_write

    console, parts = Console(), []
    for name, rows in histories.items():
        if not rows:
            continue
        steps = next(iter(rows.values())).horizon
        random = random_regret(swept[name](whole), steps)
        title = f"{name}: {steps} steps, {whole.replicates} replicates, seed {whole.seed}"
        console.print(results_table(title, rows, random))
        for line in why_no_error(rows):
            console.print(line, soft_wrap=True, markup=False, highlight=False)
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
