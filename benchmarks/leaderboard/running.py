"""Playing the leaderboard's cells, and the tables of what came of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

import numpy as np
import pandas as pd

from bandits_torch import History
from bandits_torch.experiments import Block
from bandits_torch.experiments.engines import Cell, Failure
from bandits_torch.experiments.sweep import run_cells
from bandits_torch.history import standard_error
from benchmarks.leaderboard import settings
from benchmarks.pages import read, replaced, save

TOTALS = ("environment", "policy", "replicate", "horizon", "regret", "ms_per_step")
CURVES = ("environment", "policy", "step", "mean_cumulative_regret", "standard_error")
_POINTS = 25  # of a curve
_SECONDS_BETWEEN_SAVES = 30


class Tables:
    """``totals.csv`` and ``curves.csv``, of the first block of replicates: rows of cells that are played again replace
    the old ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.totals, self.curves = self._read("totals.csv", TOTALS), self._read("curves.csv", CURVES)

    def add(self, cell: Cell, history: History) -> None:
        self.totals = replaced(self.totals, _totals(cell, history), ("environment", "policy", "replicate"))
        if cell.block.first_replicate == 0:
            self.curves = replaced(self.curves, _curve(cell, history), ("environment", "policy"))

    def save(self) -> None:
        for name, table in (("totals.csv", self.totals), ("curves.csv", self.curves)):
            save(_in_order(table), self.folder / name)

    def _read(self, name: str, columns: Sequence[str]) -> pd.DataFrame:
        table = read(self.folder / name)
        return pd.DataFrame(columns=list(columns)) if table is None else table


def cells(
    environments: Sequence[str],
    policies: Sequence[str] | None,
    data: Path | None,
    horizon: int,
    replicates: int,
    more: int = 0,
) -> list[Cell]:
    """Every policy that races in these environments, or those asked for: a block of replicates and, in ranked
    environments that are drawn, one of ``more``. The dear policies last, so that an interrupted run has whole columns
    to compare."""
    known, first = settings.environments(data), Block(replicates, horizon, 0, settings.SEED)
    priors = settings.WITH_PRIORS
    both = [first, Block(more, horizon, replicates, settings.SEED)] if more else [first]
    made = [
        Cell(name, policy, known[name], make, block)
        for name in environments
        if name in known
        for policy, make in (settings.PRIOR_POLICIES if name in priors else settings.POLICIES).items()
        if policies is None or policy in policies
        for block in (both if name in settings.DRAWN else [first])
    ]
    turn = list(settings.POLICIES)
    return sorted(made, key=lambda cell: turn.index(cell.policy) if cell.policy in turn else -1)


def play(
    chosen: Sequence[Cell], out: Path, cache: Path, progress: bool = False
) -> Iterator[tuple[Cell, Failure | None]]:
    """Run the cells, or read them from ``cache``, and put them in the tables of ``out``, one by one."""
    tables, saved = Tables(out), monotonic()
    try:
        for cell, outcome in run_cells(chosen, out=cache, progress=progress):
            if isinstance(outcome, History):
                tables.add(cell, outcome)
            yield cell, outcome if isinstance(outcome, Failure) else None
            if monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                tables.save()
                saved = monotonic()
    finally:
        tables.save()


def _totals(cell: Cell, history: History) -> pd.DataFrame:
    first = cell.block.first_replicate
    columns = {
        "environment": cell.problem,
        "policy": cell.policy,
        "replicate": range(first, first + history.replicates),
        "horizon": history.horizon,
        "regret": history.regret.sum(-1).numpy(),
        "ms_per_step": history.ms_per_step,
    }
    return pd.DataFrame(columns)


def _curve(cell: Cell, history: History) -> pd.DataFrame:
    steps = np.unique(np.linspace(1, history.horizon, min(_POINTS, history.horizon)).round().astype(int))
    cumulative = history.cumulative_regret[:, steps - 1]
    columns = {
        "environment": cell.problem,
        "policy": cell.policy,
        "step": steps,
        "mean_cumulative_regret": cumulative.mean(0).numpy(),
        "standard_error": standard_error(cumulative).numpy(),
    }
    return pd.DataFrame(columns)


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order of the settings, then of replicates or steps: no file depends on what was played when."""
    environments = (*settings.RANKED, *settings.WITH_PRIORS)
    policies = settings.POLICIES | settings.PRIOR_POLICIES
    known = {name: i for i, name in enumerate([*environments, *policies])}
    last = "replicate" if "replicate" in table else "step"
    by = ["environment", "policy", last]
    return table.sort_values(by, key=lambda of: of if of.name == last else of.map(known), kind="stable")
