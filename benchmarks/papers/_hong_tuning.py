"""How the settings of Hong, Li & Tewari (2023) were tuned here: on one switch, then left alone.

    python -m benchmarks.papers hong tuning

Each algorithm starts from the published setting (MASTER, which the paper does not run, from one that two runs
suggested) and goes through the options of ``GRIDS`` in the order they stand there, once: all values of an option are
tried with the others held, and the one of lowest mean regret stays. Environment sphere-one-switch, T = 10 000, the
first ``REPLICATES`` of ``TUNING_SEED``: other arms, functions and noise than in any reported run. The other
environments are never looked at. Every setting tried is a row of ``tuning.csv``; a last row marked "chosen" ends each
algorithm, and is what ``ALGORITHMS``, ``Constants.tuned`` and ``MasterThresholds.calibrated`` hold.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from bandits_torch.policies.master import MasterThresholds
from bandits_torch.policies.opkb.constants import Constants
from benchmarks.papers._hong_environments import (
    ALGORITHMS,
    HORIZON,
    PUBLISHED,
    PUBLISHED_SLIDING,
    TUNING_SEED,
    play,
)

TUNED_ON = "sphere-one-switch"
REPLICATES = {"SW-GP-UCB": 6, "WGP-UCB": 3, "ADA-OPKB": 20, "MASTER": 2}  # fewer of the slower
COLUMNS = ("algorithm", "option", "setting", "regret", "standard_error", "chosen")
Grid = dict[str, tuple[Any, ...]]

STARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "SW-GP-UCB": ("sw_gp_ucb", PUBLISHED_SLIDING),
    "WGP-UCB": ("w_gp_ucb", {"noise_variance": 0.05, "width": 1.81, "discount": 0.9995}),
    "ADA-OPKB": ("ada_opkb", PUBLISHED),
    "MASTER": (
        "master_gp_ucb",
        {"noise_variance": 0.05, "width": 1.81, "inflation": 4.0, "rise": 1.0, "fall": 1.0, "learnt": 0.1},
    ),
}
GRIDS: dict[str, Grid] = {
    "SW-GP-UCB": {
        "window": (2000, 2500, 3000),
        "width": (0.5, 1.0, 1.4, 1.81, 2.5),
        "noise_variance": (0.01, 0.02, 0.05, 0.1, 0.2),
    },
    "WGP-UCB": {
        "discount": (0.999, 0.9995, 0.9999),
        "width": (1.0, 1.81),
    },
    "ADA-OPKB": {
        "c0": (1.0, 3.0, 9.2),
        "c1": (0.03, 0.1, 0.2),
        "c3": (0.01, 0.02),
        "c2": (1.0, 1.81, 4.0),
        "first_replay": (2, 4),
        "sigma": (50.0, 100.0, 200.0),
    },
    "MASTER": {"inflation": (2.0, 4.0)},
}


def options_of(algorithm: str, setting: dict[str, Any]) -> dict[str, Any]:
    """The recipe's options for a setting: dataclasses of constants are put together, the rest passes."""
    wrapped = {"ADA-OPKB": ("constants", Constants), "MASTER": ("thresholds", MasterThresholds)}
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


def tune(algorithm: str, path: Path, fast: bool = False) -> dict[str, Any]:
    """Search an algorithm's grid, each setting tried appended to the CSV file; the setting chosen."""
    recipe, start = STARTS[algorithm]
    horizon, replicates = (60, 2) if fast else (HORIZON, REPLICATES[algorithm])
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

    grid = (
        {name: values[:2] for name, values in list(GRIDS[algorithm].items())[:1]}
        if fast
        else GRIDS[algorithm]
    )
    best = search(grid, start, score)
    note("all", best, chosen=True)
    return best


def chosen(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The setting of each algorithm that tuning.csv ends with."""
    rows = table[table["chosen"] == "chosen"]
    return {a: json.loads(setting) for a, setting in zip(rows["algorithm"], rows["setting"], strict=True)}


def as_raced(algorithm: str) -> dict[str, Any]:
    """The setting that the reported runs have, in the terms of ``STARTS``."""
    if algorithm == "ADA-OPKB":
        held: dict[str, Any] = vars(Constants.tuned())
    elif algorithm == "MASTER":
        held = vars(MasterThresholds.calibrated()) | ALGORITHMS["MASTER"][1]
    else:
        held = ALGORITHMS[algorithm][1]
    return {option: held[option] for option in STARTS[algorithm][1]}
