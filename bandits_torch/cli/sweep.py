"""Runs a sweep whose arguments were read: plays its cells, and prints and writes its tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.console import Console

from bandits_torch.cli.catalogue import catalogue
from bandits_torch.cli.folder import enter
from bandits_torch.cli.output import says_how_to_go_on
from bandits_torch.experiments.cells import Block, ProblemSetting, RecipeSetting, make_cells
from bandits_torch.experiments.regret import random_regret
from bandits_torch.experiments.report import results_table, why_no_error
from bandits_torch.experiments.sweep import SweepFailed, sweep
from bandits_torch.files import atomic_write
from bandits_torch.history import History

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
    _report(histories, swept, whole, out)
    return failures


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
        click.echo("".join(f"{line}\n" for line in why_no_error(rows)), nl=False)
        for policy, history in rows.items():
            totals = history.regret.sum(-1).numpy()
            columns = (name, policy, range(history.replicates), totals, history.ms_per_step)
            parts.append(pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True))))
    if parts:
        with atomic_write(out / _TABLE) as file:
            pd.concat(parts, ignore_index=True).to_csv(file, index=False, float_format="%.10g")
        click.echo(f"wrote {out / _TABLE}")
