"""Environments and algorithms of Hong, Li & Tewari (2023), one run of one on the other, and how settings were tuned.

All settings are in hong.toml. Tuning (``python -m benchmarks.papers hong tuning``, ``... grids``) is on one switch,
with other arms, functions and noise than in any reported run. Each algorithm starts from the published setting and goes
through the options of its grid in order, once: all values of an option are tried with the others held, and the one of
lowest mean regret stays. ``EQUAL_GRIDS``, fixed before any of its runs, gives each algorithm that the paper tunes as
many settings to try; what it chose is raced as "..., equal grid".
"""

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import pandas as pd
import torch

from bandits_torch import History, Problem, make, recipes, run
from bandits_torch.policies import Constants, MasterThresholds
from benchmarks.pages import append, say

HORIZON, REPLICATES = 10_000, 25
MORE = {"cosine-stationary": 50}  # replicates of an environment that the paper gave more (appendix J.2)
FEW = {"OPNN, m = 2048": 3, "OPNN0, m = 2048": 3}  # of an algorithm of which one takes minutes
TUNING_SEED, SEED = 0, 1  # arms, functions, noise and draws of tuning runs, and of those that are reported

PLAYED = tomllib.loads(Path(__file__).with_name("hong.toml").read_text(encoding="utf-8"))
ENVIRONMENTS: dict[str, dict[str, Any]] = PLAYED["environments"]
EQUAL = ", equal grid"


def environment(name: str, horizon: int, replicates: int, seed: int = SEED) -> tuple[Problem, list[int]]:
    """The problem and the steps at which it changes."""
    found = ENVIRONMENTS[name]
    options = found.get("options", {})
    made = make(found["problem"], horizon=horizon, replicates=replicates, seed=seed, **options)
    return made, changes(name, horizon)


def changes(name: str, horizon: int) -> list[int]:
    """The steps at which an environment changes."""
    return [round(share * horizon) for share in ENVIRONMENTS[name].get("changes", [])]


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
    """False alarms and restarts a replicate, changes missed a replicate, and the median delay of the others. The first
    detection after a change and before the next is that change's; any other is a false alarm."""
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
    return {
        "environment": name,
        "algorithm": algorithm,
        "horizon": history.horizon,
        "replicates": history.replicates,
        "regret": history.mean_cumulative_regret,
        "standard_error": history.standard_error,
        **detections(history, changes(name, history.horizon)),
        "cpu_seconds_per_replicate": history.meta["cpu_seconds"] / history.replicates,
    }


TUNED_ON = "sphere-one-switch"
Grid = dict[str, list[Any]]


class Search(NamedTuple):
    """A recipe, the setting it starts from, the values tried and on how many replicates (fewer of the slower)."""

    recipe: str
    start: dict[str, Any]
    grid: Grid
    replicates: int


def _known(options: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == "none" else value for name, value in options.items()}


def _searches(name: str) -> dict[str, Search]:
    return {of: Search(**one | {"start": _known(one["start"])}) for of, one in PLAYED[name].items()}


def options_of(recipe: str, setting: dict[str, Any]) -> dict[str, Any]:
    """The recipe's options for a setting: dataclasses of constants are put together, the rest passes."""
    master = recipe == "master_gp_ucb"
    name, kind = ("thresholds", MasterThresholds) if master else ("constants", Constants)
    own = {field.name for field in fields(kind)} & set(setting)
    inner = {key: setting[key] for key in own}
    rest = {key: value for key, value in setting.items() if key not in own}
    return rest | ({name: kind(**inner)} if inner else {})


TUNING, EQUAL_GRIDS = _searches("tuning"), _searches("grids")
# Algorithm: recipe and options.
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (recipe, options_of(recipe, _known(options)))
    for name, one in PLAYED["algorithms"].items()
    for recipe, options in [(one.pop("recipe"), one)]
}


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


def tune(algorithm: str, plan: Search, path: Path, fast: bool = False) -> None:
    """Search an algorithm's grid; each setting tried, and the one chosen, is appended to the CSV file."""
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
        options = options_of(recipe, setting)
        history = play(TUNED_ON, recipe, options, horizon, replicates, seed=TUNING_SEED)
        regret, error = history.mean_cumulative_regret, history.standard_error
        known[json.dumps(setting)] = {"regret": round(regret, 1), "standard_error": round(error, 1)}
        note(option, setting)
        say(f"{algorithm:10} {json.dumps(setting)} {regret:8.0f}")
        return regret

    note("all", search(grid, start, score), "chosen")
