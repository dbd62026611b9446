"""The tasks, and a run of a scheduler on one of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bandits_torch.integrations.ray import PB2
from benchmarks.ray.page import ASHA, OURS, PBT, RAYS, TOLD
from benchmarks.ray.running import ITERATION, SCORE, Training, run
from benchmarks.ray.trainings import Digits, Triangle
from ray import tune
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    PopulationBasedTraining,
    TrialScheduler,
)
from ray.tune.schedulers.pb2 import PB2 as RaysPB2

_GOOD_RATE = 0.0015  # for all scores that a triangle sees here, within a factor of 2 of the best
RATE = {"lr": (1e-4, 0.02)}
NETWORK = {"lr": (1e-3, 1.0), "decay": (1e-5, 1e-1), "momentum": (0.0, 0.99), "augmentation": (0.0, 1.0)}
POLICY = {"lr": (1e-4, 1e-1), "clip": (0.05, 0.5), "entropy": (1e-5, 1e-1), "lambda": (0.8, 1.0)}
WIDE = ("lr", "decay", "entropy")  # ranges over decades


@dataclass(frozen=True)
class Task:
    """What is trained, by how many, for how long."""

    training: Callable[[], Training]
    ranges: dict[str, tuple[float, float]]
    population: int
    horizon: int
    interval: int
    start: dict[str, float] | None = None  # of all trials; None: drawn, decades evenly


def _cartpole() -> Training:
    from benchmarks.ray.cartpole import CartPole  # gymnasium is needed for this task alone

    return CartPole()


TASKS = {
    "triangle": Task(Triangle, RATE, 8, 30, 5, {"lr": 1e-4}),
    "digits-4": Task(Digits, NETWORK, 4, 20, 2),
    "digits-8": Task(Digits, NETWORK, 8, 20, 2),
    "cartpole": Task(_cartpole, POLICY, 4, 20, 2),
}


def play(name: str, scheduler: str, seed: int, fast: bool = False) -> dict[str, float]:
    """Final and best score of a run, what else the trial reported that is best at the end, and decision times."""
    task = TASKS[name]
    random.seed(seed)
    built, drawn = build(task, scheduler)
    horizon = 3 * task.interval if fast else task.horizon
    record = run(
        built,
        task.training(),
        lambda: dict(drawn()),
        population=task.population,
        horizon=horizon,
        seed=seed,
        replace=scheduler == ASHA,
    )
    milliseconds = 1e3 * np.array(record.seconds or [np.nan])
    rest = {key: value for key, value in record.other[-1].items() if key == "test"}
    return {
        "last": record.last[-1],
        "best": record.best[-1],
        **rest,
        "ms": np.median(milliseconds),
        "ms_max": milliseconds.max(),
    }


def build(task: Task, scheduler: str) -> tuple[TrialScheduler, Callable[[], dict[str, float]]]:
    """A scheduler, and what draws the configurations that trials begin with."""
    wide = [name for name in WIDE if task.start is None and name in task.ranges]
    lists = {name: list(ends) for name, ends in task.ranges.items()}
    logs = {name: tune.loguniform(*task.ranges[name]) for name in wide}
    spaces = {**{name: tune.uniform(*ends) for name, ends in task.ranges.items()}, **logs}

    def drawn() -> dict[str, float]:
        exponents = {name: (np.log10(low), np.log10(high)) for name, (low, high) in task.ranges.items()}
        return {
            name: float(10 ** random.uniform(*exponents[name])) if name in wide else random.uniform(*ends)
            for name, ends in task.ranges.items()
        }

    def begun() -> dict[str, float]:
        return drawn() if task.start is None else task.start

    common: dict[str, Any] = {"time_attr": ITERATION, "metric": SCORE, "mode": "max"}
    by_interval = {**common, "perturbation_interval": task.interval, "log_config": False}
    if scheduler == OURS:
        return PB2(hyperparam_bounds=lists, **by_interval), begun
    if scheduler == RAYS:
        return RaysPB2(hyperparam_bounds=lists, **by_interval), begun
    if scheduler in (PBT, TOLD):
        explored = (lambda config: {**config, "lr": _GOOD_RATE}) if scheduler == TOLD else None
        mutations = {"hyperparam_mutations": spaces, "custom_explore_fn": explored}
        return PopulationBasedTraining(**mutations, **by_interval), begun
    if scheduler == ASHA:
        rungs = {"max_t": task.horizon, "grace_period": task.interval, "reduction_factor": 3}
        return AsyncHyperBandScheduler(**common, **rungs), drawn
    return FIFOScheduler(), drawn
