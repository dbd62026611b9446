"""How the settings of Hong, Li & Tewari (2023) were tuned here: on one switch, then left alone.

    python -m benchmarks.papers hong tuning
    python -m benchmarks.papers hong grids

Each algorithm starts from the published setting (MASTER, which the paper does not run, from one that two runs
suggested) and goes through the options of its grid in the order they stand there, once: all values of an option are
tried with the others held, and the one of lowest mean regret stays. Environment sphere-one-switch, T = 10 000, the
first replicates of ``TUNING_SEED``: other arms, functions and noise than in any reported run. The other
environments are never looked at. Every setting tried is a row of a CSV file; a last row marked "chosen" ends each
algorithm.

``TUNING`` (tuning.csv) is what ``ALGORITHMS``, ``Constants.tuned`` and ``MasterThresholds.calibrated`` hold; its grids
differ in size, and ADA-OPNN has none. ``EQUAL_GRIDS`` (grids.csv), fixed before any of its runs, gives each algorithm
that the paper tunes as many settings to try; what it chose is raced as "..., equal grid".
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bandits_torch.policies.detection import MasterThresholds
from bandits_torch.policies.opkb.opkb import Constants
from benchmarks.papers._hong_environments import (
    ALGORITHMS,
    HORIZON,
    NEURAL,
    PUBLISHED,
    PUBLISHED_SLIDING,
    TUNING_SEED,
    play,
)

TUNED_ON = "sphere-one-switch"
COLUMNS = ("algorithm", "option", "setting", "regret", "standard_error", "chosen")
Grid = dict[str, tuple[Any, ...]]


class Search(NamedTuple):
    """A recipe, the setting it starts from, the values tried and on how many replicates (fewer of the slower)."""

    recipe: str
    start: dict[str, Any]
    grid: Grid
    replicates: int


_WEIGHTED = {"noise_variance": 0.05, "width": 1.81, "discount": 0.9995}
_MASTER = {"noise_variance": 0.05, "width": 1.81, "inflation": 4.0, "rise": 1.0, "fall": 1.0, "learnt": 0.1}
TUNING = {
    "SW-GP-UCB": Search(
        "sw_gp_ucb",
        PUBLISHED_SLIDING,
        {
            "window": (2000, 2500, 3000),
            "width": (0.5, 1.0, 1.4, 1.81, 2.5),
            "noise_variance": (0.01, 0.02, 0.05, 0.1, 0.2),
        },
        6,
    ),
    "WGP-UCB": Search("w_gp_ucb", _WEIGHTED, {"discount": (0.999, 0.9995, 0.9999), "width": (1.0, 1.81)}, 3),
    "ADA-OPKB": Search(
        "ada_opkb",
        PUBLISHED,
        {
            "c0": (1.0, 3.0, 9.2),
            "c1": (0.03, 0.1, 0.2),
            "c3": (0.01, 0.02),
            "c2": (1.0, 1.81, 4.0),
            "first_replay": (2, 4),
            "sigma": (50.0, 100.0, 200.0),
        },
        20,
    ),
    "MASTER": Search("master_gp_ucb", _MASTER, {"inflation": (2.0, 4.0)}, 2),
}
# Each has ``GRID_SIZE`` values beside its start: of every option on both sides of the published value, of a constant of
# ADA-OPKB half a decade away, and a whole one towards the theorem's.
GRID_SIZE = 18
EQUAL_GRIDS = {
    "SW-GP-UCB": Search(
        "sw_gp_ucb",
        PUBLISHED_SLIDING,
        {
            "window": (500, 1000, 2000, 4000, 5000, 10_000),
            "width": (0.2, 0.5, 1.0, 1.4, 2.5, 4.0),
            "noise_variance": (0.01, 0.02, 0.1, 0.2, 0.5, 1.0),
        },
        12,
    ),
    "WGP-UCB": Search(
        "w_gp_ucb",
        _WEIGHTED,
        {
            "discount": (0.99, 0.995, 0.999, 0.9999),  # with the start the paper's
            "width": (0.2, 0.5, 1.0, 1.4, 2.5, 4.0, 6.0),
            "noise_variance": (0.01, 0.02, 0.1, 0.2, 0.5, 1.0, 2.0),
        },
        3,
    ),
    "ADA-OPKB": Search(
        "ada_opkb",
        PUBLISHED,
        {
            "c0": (0.1, 1.0, 3.0),
            "c1": (0.03, 0.3, 1.0),
            "c3": (0.006, 0.06, 0.2),
            "c2": (0.2, 0.6, 6.0),
            "sigma": (10.0, 30.0, 300.0),
            "c4": (0.04, 0.4, 1.25),
        },
        12,
    ),
    "ADA-OPNN": Search(
        "ada_opnn",
        PUBLISHED | NEURAL | {"regulariser": 0.01},
        {
            "c0": (1.0, 3.0),  # both towards the theorem's, which is above 40
            "c1": (0.03, 0.3),
            "c3": (0.006, 0.06),
            "c2": (0.6, 6.0),
            "sigma": (30.0, 300.0),
            "c4": (0.04, 0.4),
            "training_steps": (20, 100, 200),
            "regulariser": (0.001, 0.1, 1.0),
        },
        8,
    ),
}


def options_of(algorithm: str, setting: dict[str, Any]) -> dict[str, Any]:
    """The recipe's options for a setting: dataclasses of constants are put together, the rest passes."""
    wrapped: dict[str, tuple[str, Any]] = {
        "ADA-OPKB": ("constants", Constants),
        "ADA-OPNN": ("constants", Constants),
        "MASTER": ("thresholds", MasterThresholds),
    }
    if algorithm not in wrapped:
        return setting
    name, kind = wrapped[algorithm]
    own = {field.name for field in fields(kind)}
    inner = {key: value for key, value in setting.items() if key in own}
    return {key: value for key, value in setting.items() if key not in own} | {name: kind(**inner)}


def search(
    grid: Grid, start: dict[str, Any], score: Callable[[str, dict[str, Any]], float]
) -> dict[str, Any]:
    """One pass of coordinate search: each option in turn takes its value of lowest score, which is asked once each."""
    best, lowest = dict(start), score("start", start)
    for option, values in grid.items():
        held = dict(best)
        for value in values:
            if value == held[option]:
                continue
            setting = held | {option: value}
            found = score(option, setting)
            if found < lowest:
                best, lowest = setting, found
    return best


def tune(algorithm: str, plan: Search, path: Path, fast: bool = False) -> dict[str, Any]:
    """Search an algorithm's grid, each setting tried appended to the CSV file; the setting chosen."""
    recipe, start, grid, replicates = plan
    horizon = HORIZON
    if fast:
        horizon, replicates = 60, 2
        grid = {name: values[:2] for name, values in list(grid.items())[:1]}
    known: dict[str, tuple[float, float]] = {}

    def note(option: str, setting: dict[str, Any], chosen: bool) -> None:
        regret, error = known[json.dumps(setting)]
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(COLUMNS)
            figures = (f"{regret:.1f}", f"{error:.1f}", "chosen" if chosen else "")
            writer.writerow((algorithm, option, json.dumps(setting), *figures))

    def score(option: str, setting: dict[str, Any]) -> float:
        options = options_of(algorithm, setting)
        history = play(TUNED_ON, recipe, options, horizon, replicates, seed=TUNING_SEED)
        known[json.dumps(setting)] = (history.mean_cumulative_regret, history.standard_error)
        note(option, setting, chosen=False)
        print(f"{algorithm:10} {json.dumps(setting)} {history.mean_cumulative_regret:8.0f}", flush=True)
        return history.mean_cumulative_regret

    best = search(grid, start, score)
    note("all", best, chosen=True)
    return best


def chosen(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The setting of each algorithm that tuning.csv ends with."""
    rows = table[table["chosen"] == "chosen"]
    return {a: json.loads(setting) for a, setting in zip(rows["algorithm"], rows["setting"], strict=True)}


def as_raced(algorithm: str) -> dict[str, Any]:
    """The setting that the reported runs have, in the terms of ``TUNING``."""
    if algorithm == "ADA-OPKB":
        held: dict[str, Any] = vars(Constants.tuned())
    elif algorithm == "MASTER":
        held = vars(MasterThresholds.calibrated()) | ALGORITHMS["MASTER"][1]
    else:
        held = ALGORITHMS[algorithm][1]
    return {option: held[option] for option in TUNING[algorithm].start}
