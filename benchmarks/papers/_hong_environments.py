"""Environments and algorithms of Hong, Li & Tewari (2023), one run of one on the other, and how settings were tuned.

Tuning (``python -m benchmarks.papers hong tuning``, ``... grids``) is on one switch, then settings are left alone. Each
algorithm starts from the published setting (MASTER, which the paper does not run, from one that two runs
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

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.policies.detection import MasterThresholds
from bandits_torch.policies.opkb.opkb import Constants
from bandits_torch.problems import Problem, make
from benchmarks.pages import append, say

HORIZON, REPLICATES = 10_000, 25
MORE = {"cosine-stationary": 50}  # replicates of an environment that the paper gave more (appendix J.2)
FEW = {"OPNN, m = 2048": 3, "OPNN0, m = 2048": 3}  # of an algorithm of which one takes minutes
TUNING_SEED, SEED = 0, 1  # arms, functions, noise and draws of tuning runs, and of those that are reported

# Environment: problem, its options, steps of the true changes as shares of T.
ENVIRONMENTS: dict[str, tuple[str, dict[str, Any], tuple[float, ...]]] = {
    "sphere-one-switch": ("sphere-one-switch", {}, (0.3,)),
    "sphere-two-switches": ("sphere-two-switches", {}, (0.15, 0.5)),
    "correlated-d2": ("switching", {"switches": (0.15, 0.5), "dim": 2, "lengthscale": 0.2}, (0.15, 0.5)),
    "correlated-d3": ("switching", {"switches": (0.15, 0.5), "dim": 3, "lengthscale": 1.0}, (0.15, 0.5)),
    "cosine": ("cosine", {}, ()),
    "cosine-stationary": ("cosine", {"stationary": True}, ()),
    "slow-drift": ("tv-gp", {"forgetting_rate": 1e-4}, ()),
}
# Published: sigma 100, mixture 0.2, E x 0.01, beta x 50, mu x 0.2, thresholds x 0.005, no replay below index 4.
PUBLISHED = {
    "sigma": 100.0, "delta": None, "c0": 0.276, "c1": 0.1, "c2": 1.81, "c3": 0.02, "c4": 0.125,
    "design_share": 0.2, "first_replay": 4,
}  # fmt: skip
PUBLISHED_SLIDING = {"noise_variance": 0.05, "width": 1.81, "window": 3000}
SLIDING = {"noise_variance": 0.05, "width": 1.4, "window": 3000}
WEIGHTED = {"noise_variance": 0.05, "width": 1.81, "discount": 0.999}
NEURAL = {"hidden": 64, "training_steps": 50}  # of ADA-OPNN, which trains after every restart
WIDER = {"hidden": 256, "training_steps": 200}  # the recipe's own
FULL_WIDTH = {"hidden": 2048, "training_steps": 50}
# Algorithm: recipe and options, the same everywhere; ``TUNING`` says where those of the tuned ones come from.
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "SW-GP-UCB": ("sw_gp_ucb", SLIDING),
    "SW-GP-UCB published": ("sw_gp_ucb", PUBLISHED_SLIDING),
    "SW-GP-UCB, window 1000": ("sw_gp_ucb", SLIDING | {"window": 1000}),
    "WGP-UCB": ("w_gp_ucb", WEIGHTED),
    "WGP-UCB published": ("w_gp_ucb", WEIGHTED | {"discount": 0.9995}),
    "ADA-OPKB tuned": ("ada_opkb", {}),
    "ADA-OPKB published": ("ada_opkb", {"constants": Constants(**PUBLISHED)}),
    "ADA-OPKB calibrated": ("ada_opkb_calibrated", {}),
    "ADA-OPNN": ("ada_opnn", NEURAL),
    "MASTER": ("master_gp_ucb", {"noise_variance": 0.05, "width": 1.81}),
    "GP-UCB": ("gp_ucb", {"noise_variance": 0.05, "width": 1.4}),
    "OPKB": ("opkb", {}),
    "OPNN": ("opnn", WIDER),
    "OPNN0": ("opnn", WIDER | {"training_steps": 0}),
    "OPNN, m = 64": ("opnn", NEURAL),
    "OPNN0, m = 64": ("opnn", NEURAL | {"training_steps": 0}),
    "OPNN, m = 2048": ("opnn", FULL_WIDTH),
    "OPNN0, m = 2048": ("opnn", FULL_WIDTH | {"training_steps": 0}),
}
# What grids of equal size chose (``EQUAL_GRIDS``), where it is not what the name has already: SW-GP-UCB and WGP-UCB
# came out as they were, and so GP-UCB, which has SW-GP-UCB's; OPKB has what ADA-OPKB chose, OPNN what ADA-OPNN did.
EQUAL = ", equal grid"
_BALANCED = {"constants": Constants(**PUBLISHED | {"c0": 3.0})}
_NETWORK = {"constants": Constants(**PUBLISHED | {"c0": 3.0, "sigma": 300.0}), **NEURAL, "regulariser": 0.01}
ALGORITHMS |= {
    f"ADA-OPKB{EQUAL}": ("ada_opkb", _BALANCED),
    f"OPKB{EQUAL}": ("opkb", _BALANCED),
    f"ADA-OPNN{EQUAL}": ("ada_opnn", _NETWORK),
    f"OPNN{EQUAL}": ("opnn", _NETWORK),
    f"OPNN0{EQUAL}": ("opnn", _NETWORK | {"training_steps": 0}),
}
RACED = ("SW-GP-UCB", "ADA-OPKB tuned", "ADA-OPKB calibrated", "WGP-UCB", "MASTER", "ADA-OPNN")


def environment(name: str, horizon: int, replicates: int, seed: int = SEED) -> tuple[Problem, list[int]]:
    """The problem and the steps at which it changes."""
    problem, options, shares = ENVIRONMENTS[name]
    made = make(problem, horizon=horizon, replicates=replicates, seed=seed, **options)
    return made, [round(share * horizon) for share in shares]


def replicates_of(name: str, algorithm: str, asked: int = REPLICATES) -> int:
    """How many replicates a race plays, where ``asked`` is for all that are not told apart."""
    few = FEW.get(algorithm, MORE.get(name, REPLICATES))
    return few if asked == REPLICATES else min(asked, few)


def play(
    name: str, recipe: str, options: dict[str, Any], horizon: int, replicates: int, seed: int = SEED
) -> History:
    """One recipe on one environment; CPU seconds, which a busy machine leaves alone, are in ``meta``."""
    problem, _ = environment(name, horizon, replicates, seed)
    begun = process_time()
    policy = recipes.build(recipe, problem, replicates=replicates, horizon=horizon, seed=seed, **options)
    history = run(policy, problem, horizon, seed=seed, capture="auto")
    history.meta |= {"problem": name, "cpu_seconds": process_time() - begun}
    return history


def path_of(name: str, algorithm: str, horizon: int, replicates: int, folder: Path) -> Path:
    words = f"{name} {algorithm} {horizon} {replicates}".replace(",", "").split()
    return folder / f"{'_'.join(words)}.npz"


def kept(name: str, algorithm: str, horizon: int, replicates: int, folder: Path) -> History:
    """The run that is in ``folder``, or else a new one, which is put there."""
    path = path_of(name, algorithm, horizon, replicates, folder)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        play(name, *ALGORITHMS[algorithm], horizon, replicates).save(path)
    return History.load(path)


def detections(history: History, switches: Sequence[int]) -> dict[str, float]:
    """False alarms and restarts a replicate, changes missed a replicate, and the median delay of the others.

    The first detection after a change and before the next is that change's; any other is a false alarm.
    """
    nan = float("nan")
    if "restarts" not in history.trace:
        return {"false_alarms": nan, "missed": nan, "median_delay": nan, "restarts": 0.0}
    restarts = float(history.trace["restarts"][:, -1].mean())
    detected = history.trace.get("detected")
    if detected is None or not switches:
        return {"false_alarms": nan, "missed": nan, "median_delay": nan, "restarts": restarts}
    false, missed, delays = 0, 0, []
    for row in detected:
        steps = [int(t) + 1 for t in (row > 0).nonzero().flatten()]
        false += sum(t < switches[0] for t in steps)
        for start, end in pairwise([*switches, history.horizon + 1]):
            inside = [t for t in steps if start <= t < end]
            false += max(0, len(inside) - 1)
            missed += not inside
            delays += [inside[0] - start] if inside else []
    S = history.replicates
    median = float(torch.tensor(delays, dtype=torch.float64).median()) if delays else nan
    return {"false_alarms": false / S, "missed": missed / S, "median_delay": median, "restarts": restarts}


def row(name: str, algorithm: str, history: History) -> dict[str, Any]:
    """The run's row of regret.csv."""
    switches = [round(share * history.horizon) for share in ENVIRONMENTS[name][2]]
    return {
        "environment": name,
        "algorithm": algorithm,
        "horizon": history.horizon,
        "replicates": history.replicates,
        "regret": history.mean_cumulative_regret,
        "standard_error": history.standard_error,
        **detections(history, switches),
        "cpu_seconds_per_replicate": history.meta["cpu_seconds"] / history.replicates,
    }


TUNED_ON = "sphere-one-switch"
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
    wrapped: dict[str, tuple[str, Any]] = dict.fromkeys(("ADA-OPKB", "ADA-OPNN"), ("constants", Constants))
    wrapped["MASTER"] = ("thresholds", MasterThresholds)
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
    known: dict[str, dict[str, float]] = {}

    def note(option: str, setting: dict[str, Any], chosen: str = "") -> None:
        row = {"algorithm": algorithm, "option": option, "setting": json.dumps(setting)}
        append(path, pd.DataFrame([row | known[row["setting"]] | {"chosen": chosen}]))

    def score(option: str, setting: dict[str, Any]) -> float:
        options = options_of(algorithm, setting)
        history = play(TUNED_ON, recipe, options, horizon, replicates, seed=TUNING_SEED)
        regret, error = history.mean_cumulative_regret, history.standard_error
        known[json.dumps(setting)] = {"regret": round(regret, 1), "standard_error": round(error, 1)}
        note(option, setting)
        say(f"{algorithm:10} {json.dumps(setting)} {regret:8.0f}")
        return regret

    best = search(grid, start, score)
    note("all", best, "chosen")
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
