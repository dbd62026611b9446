"""``python -m benchmarks.cycles``: do cycles and smooth drift lose less than exponential forgetting on records that
have days? Settings are chosen on an earlier part of each record, a later one is reported."""

from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import problems, recipes, run
from bandits_torch.experiments import random_regret
from bandits_torch.kernels import ExponentialForgettingKernel, MaternTimeKernel, QuasiPeriodicKernel
from bandits_torch.problems import Replay
from benchmarks import options, pages
from benchmarks.auto.days import scaled
from benchmarks.leaderboard.environments import Record

_HOUR = 3_600
_HISTORY = 90 * 24  # hours that the kernel over arms is learned from


@dataclass(frozen=True)
class Part:
    """Rows that are played, from the day ``first`` on (days on the Intel records): ``starts`` runs of ``horizon``
    steps, evenly spread over them, which overlap where they do not fit."""

    first: str
    rows: int
    starts: int
    horizon: int


# Hourly rows without a gap: runs of three weeks that do not overlap. Ten-minute rows: between the outage of 10 and
# 11 March and the end there are ten days, so runs of three days overlap.
_BEIJING = {"development": Part("2013-06-01", 12_000, 20, 500), "report": Part("2015-03-01", 17_000, 34, 500)}
_INTEL = {"development": Part("2004-03-05", 5, 5, 432), "report": Part("2004-03-12", 10, 10, 432)}
RECORDS = {
    "beijing-pm25": _BEIJING,
    "beijing-o3": _BEIJING,
    "intel-temperature": _INTEL,
    "intel-humidity": _INTEL,
    "intel-light": _INTEL,
}


def steps_of_a_day(record: str) -> int:
    """Rows in 24 hours."""
    return 24 if record.startswith("beijing") else 144


@cache
def _replay(record: str, part: str, data: Path) -> Replay:
    played = RECORDS[record][part]
    if record.startswith("intel"):
        return problems.make(record, data=str(data), day=played.first, days=played.rows)
    name = record.removeprefix("beijing-")
    with np.load(data / "beijing_air.npz", allow_pickle=False) as arrays:
        values, seen, time = (arrays[key] for key in (name, f"{name}_observed", "time"))
    start = int(np.datetime64(played.first, "s").astype(np.int64))
    past = (time >= start - _HISTORY * _HOUR) & (time < start)
    rows = np.flatnonzero(time >= start)[: played.rows]
    return Replay(_tensor(values[rows]), history=_tensor(np.where(seen, values, np.nan)[past]))


def problem(record: str, part: str, data: Path) -> Record:
    """The runs of a part as replicates of one problem: see ``Record``."""
    played = RECORDS[record][part]
    return Record(_replay(record, part, data), played.horizon, played.starts, 0, played.starts)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float64))


WIDTHS = (1.0, 2.0)
_HARMONICS = 3  # of a day, in the quasi-periodic model
_DAYS_KEPT = 5.0  # length-scale in days with which a day's shape changes


@dataclass(frozen=True)
class Setting:
    """A kernel over time by its family and numbers, and the width played with."""

    family: str
    first: float
    second: float
    width: float

    @property
    def name(self) -> str:
        share = f", share {self.second:g}" if self.family == "quasi-periodic" else ""
        return f"{self.first:g}{share}, width {self.width:g}"

    def kernel(self, day: int) -> Kernel:
        """The kernel over time in steps, with a day of so many."""
        if self.family == "exponential":
            return ExponentialForgettingKernel(self.first)
        if self.family == "matern-3/2":
            return MaternTimeKernel(self.first, 1.5)
        cycle = QuasiPeriodicKernel(float(day), 1.0, _DAYS_KEPT * day, order=_HARMONICS)
        return scaled(cycle, self.second) + scaled(ExponentialForgettingKernel(self.first), 1 - self.second)


# Rates and length-scales over the same range: 2 / rate is the length of exponential forgetting. Grids of equal size.
FAMILIES: dict[str, list[tuple[float, float]]] = {
    "exponential": [(rate, 0.0) for rate in (0.003, 0.01, 0.03, 0.06, 0.1, 0.3)],
    "matern-3/2": [(length, 0.0) for length in (7.0, 15.0, 30.0, 60.0, 150.0, 400.0)],
    "quasi-periodic": [(rate, share) for share in (0.3, 0.7) for rate in (0.01, 0.03, 0.1)],
}


def settings(family: str) -> list[Setting]:
    return [Setting(family, *numbers, width) for numbers, width in product(FAMILIES[family], WIDTHS)]


def play(record: str, part: str, setting: Setting, data: Path) -> pd.DataFrame:
    """A row per run: total regret, and time of a step of all runs together."""
    torch.manual_seed(0)
    world = problem(record, part, data)
    known = world.knowledge
    policy = recipes.tv_gp_ucb(
        world.arms,
        known.kernel,
        known.noise_variance,
        time_kernel=setting.kernel(steps_of_a_day(record)),
        width=setting.width,
        replicates=world.replicates,
    )
    history = run(policy, world, world.horizon, seed=0)
    regret = history.regret.sum(-1)
    return _rows(record, part, setting.family, setting.name, regret, history.ms_per_step)


def at_random(record: str, part: str, data: Path) -> pd.DataFrame:
    """The expected regret of random play in each run."""
    world = problem(record, part, data)
    regret = random_regret(world, world.horizon).sum(-1)
    return _rows(record, part, "random", "", regret, float("nan"))


def _rows(
    record: str, part: str, family: str, setting: str, regret: Tensor, ms_per_step: float
) -> pd.DataFrame:
    own = {"record": record, "part": part, "family": family, "setting": setting, "run": range(len(regret))}
    return pd.DataFrame({**own, "regret": regret.numpy(), "ms_per_step": ms_per_step})


def compare(record: str, data: Path) -> pd.DataFrame:
    """Every setting on the development part, and each family's best of them on the other."""
    tables = [at_random(record, "report", data)]
    for family in FAMILIES:
        tried = {setting: play(record, "development", setting, data) for setting in settings(family)}
        best = min(tried, key=lambda setting: tried[setting]["regret"].mean())
        tables += [*tried.values(), play(record, "report", best, data)]
        means = [table["regret"].mean() for table in (tried[best], tables[-1])]
        pages.say(f"{record}, {family}: {best.name}, {means[0]:.1f} -> {means[1]:.1f}")
    return pd.concat(tables, ignore_index=True)


def overlap(record: str) -> int:
    """How many of the next runs share rows with a run of the reported part."""
    part = RECORDS[record]["report"]
    rows = part.rows if record.startswith("beijing") else part.rows * steps_of_a_day(record)
    apart = (rows - part.horizon) / (part.starts - 1)
    return max(0, int(np.ceil(part.horizon / apart)) - 1)


def standard_error(differences: np.ndarray, lags: int) -> float:
    """Of the mean of runs in order, with the covariances of runs up to ``lags`` apart (Hansen & Hodrick 1980), but
    never below that of independent runs: with few runs the covariances may add up to anything."""
    n, centred = len(differences), differences - differences.mean()
    variance = centred @ centred / (n - 1)
    for lag in range(1, lags + 1):
        variance += 2 * (centred[lag:] @ centred[:-lag]) / (n - 1)
    return float(np.sqrt(max(variance, centred @ centred / (n - 1)) / n))


def write_page(folder: Path) -> Path:
    table = pd.read_csv(folder / "totals.csv")
    rows, records = [], [name for name in RECORDS if (table["record"] == name).any()]
    for record in records:
        own = table[(table["record"] == record) & (table["part"] == "report")]
        runs = own.pivot(index="run", columns="family", values="regret")
        random = runs.pop("random").mean()
        for family in runs:
            row = {"record": record, "family": family, "runs": len(runs), "random": random}
            row |= {"regret": runs[family].mean(), "chosen": own[own["family"] == family].iloc[0]}
            if family != "exponential":
                difference = (runs[family] - runs["exponential"]).to_numpy()
                row |= {"less": difference.mean(), "error": standard_error(difference, overlap(record))}
            rows.append(row)
    shown = {"rows": rows, "ahead": [row for row in rows if row.get("less", 0) < -2 * row.get("error", 0)]}
    return pages.render(folder / "RESULTS.md", "cycles/RESULTS.md.jinja", records=len(records), **shown)


@options.with_page(write_page)
def main(
    folder: Path,
    records: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(RECORDS)}.")] = "",
    data: options.Data = options.DATA,
) -> None:
    """Play, and write what came of it; other records of the table stay."""
    for record in options.chosen(records, RECORDS, "records"):
        pages.keep(folder / "totals.csv", compare(record, data), ("record",))


if __name__ == "__main__":
    options.command(main)()
