"""The tasks, and a run of a scheduler on one of them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ray import tune
from ray.tune import schedulers as rays
from ray.tune.schedulers.pb2 import PB2 as RaysPB2
from sklearn.datasets import load_digits
from torch import nn

from bandits_torch.integrations.ray import PB2
from benchmarks.ray.page import ASHA, GIVEN_RATE, OURS, PBT, RAYS
from benchmarks.ray.running import ITERATION, SCORE, Training, run


class Triangle(Training):
    """``pbt_function`` of Ray's ``pb2_example``: the best rate is a triangle wave of the score."""

    def begin(self, seed: int) -> dict[str, float]:
        return {SCORE: 0.0}

    def step(self, state: dict[str, float], config: dict[str, Any]) -> dict[str, float]:
        score, rate = state[SCORE], config["lr"]
        height = score if score < 100 else 200 - score
        best = min(0.01, max(0.001, 0.01 * height / 100))
        ratio = max(rate, best) / min(rate, best)
        if ratio < 3:
            score += random.random() / ratio
        elif rate > best:
            score -= (ratio - 3) * random.random()
        state[SCORE] = max(0.0, score + 2 * np.random.normal())  # noqa: NPY002  # as there
        return dict(state)


class Digits(Training):
    """A network of one hidden layer on scikit-learn's digits, by stochastic gradients. score: minus the cross entropy
    of the validation set; test: accuracy on the test set."""

    def __init__(self, hidden: int = 32, batches: int = 8, size: int = 32) -> None:
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(X))
        X, y = torch.tensor(X[order] / 16, dtype=torch.float32), torch.tensor(y[order])
        parts = slice(0, 600), slice(600, 1200), slice(1200, None)
        (self.X, self.y), self.validation, self.test = [(X[part], y[part]) for part in parts]
        self.hidden, self.batches, self.size = hidden, batches, size

    def begin(self, seed: int) -> dict[str, Any]:
        """Weights drawn by the seed, no momentum yet."""
        generator = torch.Generator().manual_seed(seed)
        shapes = (64, self.hidden), (self.hidden,), (self.hidden, 10), (10,)
        weights = [torch.zeros(shape) for shape in shapes]
        for k in (0, 2):  # the others are offsets
            weights[k] = torch.randn(shapes[k], generator=generator) / shapes[k][0] ** 0.5
        speed = [torch.zeros_like(w) for w in weights]
        return {"weights": weights, "speed": speed, "generator": generator.get_state()}

    def step(self, state: dict[str, Any], config: dict[str, Any]) -> dict[str, float]:
        generator = torch.Generator()
        generator.set_state(state["generator"])
        rate, decay = config["lr"], config["decay"]
        weights = [w.requires_grad_() for w in state["weights"]]
        for _ in range(self.batches):
            rows = torch.randint(len(self.X), (self.size,), generator=generator)
            X = self._augmented(self.X[rows], config["augmentation"], generator)
            loss = nn.functional.cross_entropy(self._logits(weights, X), self.y[rows])
            with torch.no_grad():
                for w, v, g in zip(weights, state["speed"], torch.autograd.grad(loss, weights), strict=True):
                    v.mul_(config["momentum"]).add_(g + decay * w)
                    w.sub_(rate * v).nan_to_num_(0.0, 0.0, 0.0).clamp_(-1e3, 1e3)
        state["weights"] = [w.detach() for w in weights]
        state["generator"] = generator.get_state()
        with torch.no_grad():
            logits = self._logits(state["weights"], self.validation[0])
            score = -float(nn.functional.cross_entropy(logits, self.validation[1]).clamp(max=10.0))
            right = self._logits(state["weights"], self.test[0]).argmax(-1) == self.test[1]
        return {SCORE: score, "test": float(right.double().mean())}

    @staticmethod
    def _logits(weights: list[torch.Tensor], X: torch.Tensor) -> torch.Tensor:
        return torch.relu(X @ weights[0] + weights[1]) @ weights[2] + weights[3]

    @staticmethod
    def _augmented(X: torch.Tensor, strength: float, generator: torch.Generator) -> torch.Tensor:
        images = X.reshape(-1, 8, 8)
        moved = torch.rand(len(X), generator=generator) < strength
        step = 1 if int(torch.randint(2, (), generator=generator)) else -1
        axis = int(torch.randint(1, 3, (), generator=generator))
        images = torch.where(moved[:, None, None], images.roll(step, axis), images)
        return (images + 0.3 * strength * torch.randn(images.shape, generator=generator)).reshape(X.shape)


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


def play(name: str, scheduler: str, seed: int) -> dict[str, float]:
    """Final and best score of a run, what else the trial reported that is best at the end, and decision times."""
    task = TASKS[name]
    random.seed(seed)
    built, drawn = build(task, scheduler)
    record = run(
        built,
        task.training(),
        lambda: dict(drawn()),
        population=task.population,
        horizon=task.horizon,
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


def build(task: Task, scheduler: str) -> tuple[rays.TrialScheduler, Callable[[], dict[str, float]]]:
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
    if scheduler in (PBT, GIVEN_RATE):
        explored = (lambda config: {**config, "lr": _GOOD_RATE}) if scheduler == GIVEN_RATE else None
        mutations = {"hyperparam_mutations": spaces, "custom_explore_fn": explored}
        return rays.PopulationBasedTraining(**mutations, **by_interval), begun
    if scheduler == ASHA:
        rungs = {"max_t": task.horizon, "grace_period": task.interval, "reduction_factor": 3}
        return rays.AsyncHyperBandScheduler(**common, **rungs), drawn
    return rays.FIFOScheduler(), drawn
