"""How the cost of a step grows with arms, replicates, candidate priors and window, one at a time, for each model."""

import math
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bandits_torch.models import CandidatePrior, SketchedGP, arm_gp_over_priors
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies import Policy, PriorElimination, SlidingWindow
from bandits_torch.problems.simulated import make_kernel
from bandits_torch.theory import ConstantWidth
from benchmarks.pages import say
from benchmarks.speed import workload
from benchmarks.speed.measuring import median
from benchmarks.speed.page import Settings

# Of each model: sizes where they are not the axis, and its axes, with what its documentation declares.
_MODELS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FAST_SIZES = (6, 12)


def measure(settings: Settings) -> pd.DataFrame:
    """Median time of a step for each model and size of each axis, once the window is full."""
    rows: list[dict[str, Any]] = []
    for model, axis, size, declared in _sizes(settings.fast):
        say(f"{model}, {size} {axis}")
        base = _MODELS[model]["base"]
        sizes = {"priors": 0, **(dict.fromkeys(base, 5) if settings.fast else base), axis: size}
        before, steps = (2 * sizes["window"] + 1, 3) if settings.fast else (sizes["window"] + 60, 30)
        task = workload.make_task(sizes["arms"], settings.device, replicates=sizes["replicates"])
        policy = _BUILD[model](task, sizes)
        for step in range(before):
            workload.play(policy, task, step)
        seconds = median([workload.play(policy, task, before + step)[2] for step in range(steps)])
        row = {"model": model, "axis": axis, "size": size, "declared_exponent": declared}
        rows.append(row | {"seconds_per_step": seconds})
    return pd.DataFrame(rows)


def _sizes(fast: bool) -> Iterator[tuple[str, str, int, int]]:
    for model, about in _MODELS.items():
        for axis in about["axes"]:
            for size in _FAST_SIZES if fast else axis["sizes"]:
                yield model, axis["of"], size, axis["exponent"]


def _arm_gp(form: str, task: workload.Task, sizes: dict[str, int]) -> Policy:
    if sizes["priors"]:
        lengths = [0.1 + 0.9 * p / sizes["priors"] for p in range(sizes["priors"])]
        candidates = [CandidatePrior(make_kernel("matern", length)) for length in lengths]
        replicates = len(task.functions)
        model = arm_gp_over_priors(
            task.arms, candidates, workload.NOISE_VARIANCE, replicates=replicates, form=form
        )
        return PriorElimination(model, ConstantWidth(workload.WIDTH))
    forgetting = SlidingWindow(sizes["window"]) if sizes["window"] else None
    return workload.ucb_on_arms(task, form=form, forgetting=forgetting)


def _built(kind: type[WeightedGP | SketchedGP], task: workload.Task, sizes: dict[str, int]) -> Policy:
    return workload.ucb_over(
        kind(task.arms, workload.prior(), workload.NOISE_VARIANCE, batch_shape=(sizes["replicates"],))
    )


_BUILD: dict[str, Callable[[workload.Task, dict[str, int]], Policy]] = {
    "covariance form": partial(_arm_gp, "covariance"),
    "factor form": partial(_arm_gp, "factor"),
    "OnlineGP": lambda task, sizes: workload.ucb_on_points(task, sizes["window"]),
    "WeightedGP": partial(_built, WeightedGP),
    "SketchedGP": partial(_built, SketchedGP),
}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Of the growth between the last two sizes."""
    return math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2])
