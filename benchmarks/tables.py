"""Tables of results that grow from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from bandits_torch.files import atomic_write

FEWEST = 5  # seeds that a statement may rest on


def keep(path: Path, rows: pd.DataFrame, key: Sequence[str]) -> None:
    """Put rows in a CSV file, in place of those of the same key, in the order of keys; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        rows = replaced(pd.read_csv(path), rows, key)
    rows = rows.sort_values(list(key), kind="stable")
    with atomic_write(path) as file:
        rows.to_csv(file, index=False, float_format="%.6g")


def replaced(table: pd.DataFrame, rows: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """The table with these rows in place of those of the same key."""
    columns = list(key)
    kept = table[~table.set_index(columns).index.isin(rows.set_index(columns).index)]
    return rows if kept.empty else pd.concat([kept, rows], ignore_index=True)


def seeds_told(table: pd.DataFrame, column: str, of: str | None = None, what: str = "seed") -> str:
    """How many seeds a table was played with, and which: ``"6 seeds (0 to 5)"``.

    ``column``: that of the seeds, or of replicates; ``what``: the word for one of them. ``of``: the column of what was
    played; where some have other seeds, each is named: ``"6 seeds (0 to 5) of levy; 1 seed (0) of ackley, shekel"``.
    """
    names: dict[tuple[int, ...], list[str]] = {}
    for name, part in [("", table)] if of is None else table.groupby(of, sort=False):
        names.setdefault(tuple(sorted(map(int, part[column].unique()))), []).append(str(name))
    told = {seeds: f"{len(seeds)} {what}{'s' * (len(seeds) > 1)} ({_which(seeds)})" for seeds in names}
    if len(names) == 1:
        return "".join(told.values())
    return "; ".join(
        f"{told[seeds]} of {', '.join(names[seeds])}" for seeds in sorted(names, key=len, reverse=True)
    )


def too_few(table: pd.DataFrame, column: str, of: str) -> str:
    """A paragraph where something was played with fewer than ``FEWEST`` seeds; else nothing."""
    fewest = table.groupby(of)[column].nunique().min()
    return (
        ""
        if fewest >= FEWEST
        else f"**Fewer than {FEWEST} seeds: no order or verdict that would stand.**\n\n"
    )


def _which(seeds: Sequence[int]) -> str:
    """Ascending numbers, those that follow on each other as a range."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
