"""Environments and algorithms of Hong, Li & Tewari (2023), and one run of one on the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import torch

from bandits_torch import recipes
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.policies.opkb.opkb import Constants
from bandits_torch.problems import Problem, make

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
# Algorithm: recipe and options, the same everywhere; ``_hong_tuning`` says where those of the tuned ones come from.
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
# What grids of equal size chose (``_hong_tuning``), where it is not what the name has already: SW-GP-UCB and WGP-UCB
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
    """Where a run is kept."""
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
