"""Does a step with cycles or smooth drift over arms get slower with time, and what does it cost?"""

import copy
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import Kernel

from bandits_torch import AskTell, recipes
from bandits_torch.kernels import ExponentialForgettingKernel, MaternTimeKernel, QuasiPeriodicKernel
from benchmarks.pages import say
from benchmarks.speed.measuring import clock, median
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import NOISE_VARIANCE, make_task, prior

_DAY = 24.0


def measure(settings: Settings) -> pd.DataFrame:
    """Median time of a step (asked and told) at each number of observations, for each kernel over time. Copies are kept
    at each number and then take turns step by step, so that other work beside slows all alike."""
    marks, span = ((5, 10), 5) if settings.fast else ((100, 1_000, 10_000), 200)
    rows: list[dict[str, Any]] = []
    for num_arms in (8,) if settings.fast else (20, 100):
        task = make_task(num_arms, settings.device)
        for name, kernel in _kernels().items():
            say(f"{name}, {num_arms} arms, {marks[-1]} steps")
            policy = recipes.tv_gp_ucb(task.arms, prior(), NOISE_VARIANCE, time_kernel=kernel, width=1.0)
            live = AskTell(policy)
            kept = {}
            for step in range(marks[-1]):
                _step(live, step)
                if step + 1 in marks:
                    kept[step + 1] = copy.deepcopy(live)
            seconds: dict[int, list[float]] = {mark: [] for mark in marks}
            for later in range(span):
                for mark, asked in kept.items():
                    began = clock(settings.device)
                    _step(asked, mark + later)
                    seconds[mark].append(clock(settings.device) - began)
            states = getattr(live.policy.model._belief.form, "states", 1)
            own = {"kernel": name, "arms": num_arms, "states_per_arm": states, "steps": span}
            for mark, taken in seconds.items():
                rows.append(own | {"steps_before": mark, "seconds_per_step": median(taken)})
    return pd.DataFrame(rows)


def _step(live: AskTell, step: int) -> None:
    question = live.ask(float(step))
    live.tell(question.id, float(torch.tensor(2 * torch.pi * step / _DAY + int(question.arm)).sin()))


def _kernels() -> dict[str, Kernel]:
    return {
        "exponential forgetting": ExponentialForgettingKernel(0.03),
        "Matern-3/2": MaternTimeKernel(50.0),
        "quasi-periodic, 3 harmonics": QuasiPeriodicKernel(_DAY, 1.0, 10 * _DAY, order=3),
        "quasi-periodic to 1e-12": QuasiPeriodicKernel(_DAY, 1.0, 10 * _DAY),
    }
