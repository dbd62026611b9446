"""Moving peaks of two packages: eleven instances of the GMPB competitions (``gmpb``), scenarios 1 to 3 of ``deap``.

An environment lasts a hundredth of the published evaluations, at least 10 (so F8 would be F7, and is left out), for
here every evaluation is a step of a live system. Optimisers know the bounds alone, not when a change comes. Offline
error is the mean over all evaluations of optimum minus best value since the last change, the error before a change that
at the last evaluation of each environment, regret the mean of optimum minus value.
"""

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from deap.benchmarks import movingpeaks
from gmpb import GMPB, GMPBConfig
from torch import Tensor

from bandits_torch import Domain, recipes, run
from bandits_torch.policies import Observation, Policy, StandardisedPolicy
from bandits_torch.problems import ContinuousProblem
from bandits_torch.problems.simulated import make_kernel
from benchmarks.continuous.rivals import PlainBoTorch, Rival
from benchmarks.pages import say

SHRUNK = 100  # published evaluations between changes, for one of ours
FEWEST = 10
ENVIRONMENTS = 6
# Peaks, evaluations between changes, dimensions, severity of shifts: eleven of the twelve instances of the
# competitions of 2022 to 2025 (Yazdani et al., arXiv 2106.06174).
GMPB_INSTANCES = {
    "gmpb-F1": (5, 5000, 5, 1.0),
    "gmpb-F2": (10, 5000, 5, 1.0),
    "gmpb-F3": (25, 5000, 5, 1.0),
    "gmpb-F4": (50, 5000, 5, 1.0),
    "gmpb-F5": (100, 5000, 5, 1.0),
    "gmpb-F6": (10, 2500, 5, 1.0),
    "gmpb-F7": (10, 1000, 5, 1.0),
    "gmpb-F9": (10, 5000, 10, 1.0),
    "gmpb-F10": (10, 5000, 20, 1.0),
    "gmpb-F11": (10, 5000, 5, 2.0),
    "gmpb-F12": (10, 5000, 5, 5.0),
}
DEAP_SCENARIOS = {
    "deap-1": movingpeaks.SCENARIO_1,
    "deap-2": movingpeaks.SCENARIO_2,
    "deap-3": movingpeaks.SCENARIO_3 | {"bfunc": lambda x: 10.0},
}
# Played with ten seeds (PROTOCOL-TEN.md): what, by whom, and how many environments where these are long.
TEN_PROBLEMS = (
    *("deap-3", "gmpb-F7", "deap-1", "deap-2", "gmpb-F1", "gmpb-F2", "gmpb-F9"),
    *("gmpb-F3", "gmpb-F4", "gmpb-F5", "gmpb-F6", "gmpb-F10", "gmpb-F11", "gmpb-F12"),
)
TEN = (
    *("ours: auto", "ours: tv_gp_ucb, standardised", "ours: random"),
    *("deap CMA-ES", "BoTorch UCB, time an input"),
)
TEN_SEEDS, TEN_LONG = 10, 2
MEASURES = ["offline_error", "before_change", "regret", "seconds"]
PROBLEMS = (*GMPB_INSTANCES, *DEAP_SCENARIOS)
_DEAP_DIMENSIONS = 5


class Elsewhere(ContinuousProblem):
    """A package's functions, from points (d,) of its box [low, high]^d, on [0, 1]^d without noise: the next of them,
    with its largest value, after every ``period`` steps."""

    def __init__(
        self,
        low: float,
        high: float,
        dim: int,
        functions: list[Callable[[Any], float]],
        optima: list[float],
        period: int,
    ) -> None:
        bounds = torch.tensor([[0.0] * dim, [1.0] * dim], dtype=torch.float64)
        super().__init__(Domain(bounds), 1, 0.0, period * len(functions))
        self.low, self.high = low, high
        self.functions, self.optima, self.period = functions, optima, period

    def expected(self, step: int, X: Tensor) -> Tensor:
        function = self.functions[(step - 1) // self.period]
        points = self.low + (self.high - self.low) * X.detach().reshape(-1, self.dim).numpy()
        return X.new_tensor([function(point) for point in points]).reshape(X.shape[:-1])

    def best(self, step: int) -> Tensor:
        """The optimum of the environment, which the package knows."""
        return self.noise_scale.new_tensor([self.optima[(step - 1) // self.period]])


def problem(name: str, seed: int, environments: int = ENVIRONMENTS) -> Elsewhere:
    """A problem of ``PROBLEMS`` with the package's generator at ``seed``."""
    functions: list[Callable[[Any], float]] = []
    optima: list[float] = []
    if name in GMPB_INSTANCES:
        peaks, frequency, dim, severity = GMPB_INSTANCES[name]
        generator = GMPB(GMPBConfig(d=dim, m=peaks, s_tilde=severity, auto_step=False), seed=seed)
        for _ in range(environments):
            frozen = copy.deepcopy(generator)
            functions.append(frozen.evaluate)
            optima.append(max(frozen.evaluate(part.c) for part in frozen.get_state().components))
            generator.step_environment()
        low, high = -100.0, 100.0
    else:
        scenario, dim, frequency = DEAP_SCENARIOS[name], _DEAP_DIMENSIONS, DEAP_SCENARIOS[name]["period"]
        peaks_of_deap = movingpeaks.MovingPeaks(dim, random.Random(seed), **scenario | {"period": 0})
        for _ in range(environments):
            frozen_peaks = copy.deepcopy(peaks_of_deap)
            functions.append(lambda x, at=frozen_peaks: at(x, count=False)[0])
            optima.append(frozen_peaks.globalMaximum()[0])
            peaks_of_deap.changePeaks()
        low, high = 0.0, 100.0
    return Elsewhere(low, high, dim, functions, optima, max(FEWEST, frequency // SHRUNK))


class CMAES(Rival):
    """deap's CMA-ES, from the middle of the box with a step of .3 of its side; points outside are moved to its edge."""

    def __init__(self, domain: Domain, horizon: int, seed: int) -> None:
        from deap import base, cma, creator

        super().__init__(domain, horizon, 1, seed)
        self.initial = 0  # it begins by itself
        np.random.seed(seed)  # noqa: NPY002  (deap draws from numpy's global generator)
        if not hasattr(creator, "Largest"):
            creator.create("Largest", base.Fitness, weights=(1.0,))
            creator.create("Point", list, fitness=creator.Largest)
        self._strategy = cma.Strategy(centroid=[0.5] * domain.dim, sigma=0.3)
        self._make, self._asked, self._evaluated = creator.Point, [], 0

    def proposed(self, time: float) -> Tensor:
        if self._evaluated == len(self._asked):
            self._asked, self._evaluated = self._strategy.generate(self._make), 0
        point = self.domain.bounds.new_tensor(list(self._asked[self._evaluated]))
        return point.clamp(0, 1).unsqueeze(0)

    def heard(self, observation: Observation) -> None:
        self._asked[self._evaluated].fitness.values = (float(observation.reward),)
        self._evaluated += 1
        if self._evaluated == len(self._asked):
            self._strategy.update(self._asked)


def racers(at: Elsewhere, seed: int) -> dict[str, Callable[[], Policy]]:
    """Every optimiser by name, built when called."""
    horizon, initial = at.horizon or 0, 10

    def tv_gp_ucb() -> Policy:
        policy = recipes.tv_gp_ucb(
            at.domain,
            make_kernel("matern", 0.3 * math.sqrt(at.dim)),
            0.01,
            width=1.0,
            learn_hyperparameters={"first": initial, "every": initial},
            search={"initial": initial},
            seed=seed,
        )
        return StandardisedPolicy(policy)

    def botorch(over_time: bool) -> Callable[[], Policy]:
        return lambda: PlainBoTorch(at.domain, horizon, initial, seed, acquisition="ucb", over_time=over_time)

    return {
        "ours: auto": lambda: recipes.auto(at.domain, seed=seed),
        "ours: tv_gp_ucb, standardised": tv_gp_ucb,
        "ours: random": lambda: recipes.random(at.domain, seed=seed),
        "deap CMA-ES": lambda: CMAES(at.domain, horizon, seed),
        "BoTorch UCB, blind to time": botorch(False),
        "BoTorch UCB, time an input": botorch(True),
    }


def race(name: str, seed: int, environments: int = ENVIRONMENTS) -> pd.DataFrame:
    """One row per optimiser: offline error, error before changes, regret, seconds a step; means over environments."""
    at = problem(name, seed, environments)
    played = pd.concat([play(at, name, of, build, seed) for of, build in racers(at, seed).items()])
    kinds = ["problem", "policy", "replicate"]
    return played.groupby(kinds, sort=False)[MEASURES].mean().reset_index()


def play_ten(name: str, optimiser: str, seed: int) -> pd.DataFrame:
    """One row per environment: an optimiser of ``TEN`` on a problem and seed of PROTOCOL-TEN.md."""
    at = problem(name, seed)
    count = TEN_LONG if at.period > FEWEST else ENVIRONMENTS
    return play(at, name, optimiser, racers(at, seed)[optimiser], seed, count)


def play(
    at: Elsewhere,
    name: str,
    optimiser: str,
    build: Callable[[], Policy],
    seed: int,
    environments: int | None = None,
) -> pd.DataFrame:
    """One row per environment of the first so many (None: of all): its errors and regret, and seconds a step."""
    torch.manual_seed(seed)
    count = len(at.functions) if environments is None else environments
    history = run(build(), at, count * at.period, first_replicate=seed)
    regret = history.regret[0].reshape(count, at.period)
    best = regret.cummin(-1).values
    seconds = float(history.seconds.mean())
    say(f"{name} {seed} {optimiser}: offline error {best.mean():.2f}, {1000 * seconds:.0f} ms a step")
    measured = {"offline_error": best.mean(-1), "before_change": best[:, -1], "regret": regret.mean(-1)}
    rows = pd.DataFrame({key: value.numpy() for key, value in measured.items()})
    about = {"problem": name, "policy": optimiser, "replicate": seed, "environment": range(1, count + 1)}
    return rows.assign(seconds=seconds, **about)[[*about, *MEASURES]]
