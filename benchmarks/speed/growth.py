"""Does a step get slower as observations come in?"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies import IndexPolicy, SlidingWindow
from benchmarks.pages import say
from benchmarks.speed.measuring import median
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import Task, make_task, play, prior, ucb_on_arms, ucb_on_points

_WINDOW = 100
_FORGETTING_RATE = 0.1


def measure(settings: Settings) -> pd.DataFrame:
    """Median time of a step at each number of observations, for each model."""
    marks, span = ((10, 20, 40), 5) if settings.fast else ((100, 1_000, 10_000), 200)
    rows: list[dict[str, Any]] = []
    for name, num_arms, build in _policies(settings.fast):
        say(f"{name}, {num_arms} arms, {marks[-1]} steps")
        task = make_task(num_arms, settings.device)
        policy = build(task)
        seconds = [play(policy, task, step)[2] for step in range(marks[-1] + span)]
        for mark in marks:
            row = {"model": name, "arms": num_arms, "steps_before": mark, "steps": span}
            rows.append(row | {"seconds_per_step": median(seconds[mark : mark + span])})
    return pd.DataFrame(rows)


def _policies(fast: bool) -> list[tuple[str, int, Callable[[Task], IndexPolicy]]]:
    small, large, window = (60, 80, 10) if fast else (1_000, 10_000, _WINDOW)
    drifting = SpatioTemporalKernel(prior(), ExponentialForgettingKernel(_FORGETTING_RATE))
    factor, drifts = partial(ucb_on_arms, form="factor"), f"drift, forgetting rate {_FORGETTING_RATE}"
    return [
        ("covariance form, everything kept", small, partial(ucb_on_arms, form="covariance")),
        ("factor form, everything kept", large, factor),
        (f"factor form, window of {window}", large, partial(factor, forgetting=SlidingWindow(window))),
        (f"factor form, {drifts}", large, partial(factor, kernel=drifting)),
        (f"OnlineGP, window of {window}", small, partial(ucb_on_points, window=window)),
    ]
