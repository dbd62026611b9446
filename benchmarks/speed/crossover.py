"""From how many arms on is the factor form faster than the covariance form?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from benchmarks.pages import duration, figures, markdown, whole
from benchmarks.speed.measuring import median
from benchmarks.speed.page import Benchmark, Settings
from benchmarks.speed.workload import Task, held, make_task, play, prior, ucb_on_arms

_LARGEST_COVARIANCE = 4 * 2**30  # bytes of all replicates' N x N matrices; larger ones are not measured


@dataclass(frozen=True)
class Pulls:
    """What has been pulled before the steps that are timed.

    ``distinct``: every replicate has pulled its first ``before`` arms of a random order, and goes on with them;
    else UCB has played ``before`` steps. ``drift``: under a time kernel, where every pull is a new point.
    """

    label: str
    before: int
    distinct: bool = False
    drift: bool = False


@dataclass(frozen=True)
class Sizes:
    """Numbers of arms and of replicates, what was pulled, and how many steps are timed."""

    arms: tuple[int, ...]
    replicates: tuple[int, ...]
    pulls: tuple[Pulls, ...]
    steps: int


_FORGETTING_RATE = 0.1
_FULL = Sizes(
    arms=(200, 500, 1_000, 1_500, 2_000, 3_000, 5_000, 8_000),
    replicates=(1, 25),
    pulls=(
        *(Pulls(f"{before} distinct", before, distinct=True) for before in (10, 100, 1_000)),
        Pulls("as UCB does", 1_000),
        Pulls("as UCB does, drift", 600, drift=True),  # from 550 on, as many points are dropped as are added
    ),
    steps=50,
)
_FAST = Sizes(
    arms=(40, 60),
    replicates=(1, 2),
    pulls=(
        Pulls("5 distinct", 5, distinct=True),
        Pulls("as UCB does", 10),
        Pulls("as UCB does, drift", 10, drift=True),
    ),
    steps=3,
)


def measure(settings: Settings) -> pd.DataFrame:
    """Both forms' step for every size. What was pulled makes no difference to the covariance form, drift does."""
    sizes = _FAST if settings.fast else _FULL
    rows: list[dict[str, Any]] = []
    for replicates in sizes.replicates:
        for arms in (n for n in sizes.arms if replicates * n**2 * 8 <= _LARGEST_COVARIANCE):
            settings.say(f"{arms} arms, {replicates} replicates")
            task = make_task(arms, settings.device, replicates=replicates)
            covariance = {
                drift: _time("covariance", task, Pulls("", 1, drift=drift), sizes.steps)
                for drift in (False, True)
            }
            for pulls in sizes.pulls:
                if pulls.distinct and pulls.before > arms:
                    continue
                factor = _time("factor", task, pulls, sizes.steps)
                row = {
                    "replicates": replicates,
                    "arms": arms,
                    "pulled": pulls.label,
                    **factor,
                    **covariance[pulls.drift],
                }
                row["factor_over_covariance"] = row["factor_seconds"] / row["covariance_seconds"]
                rows.append(row)
    return pd.DataFrame(rows)


def _time(form: str, task: Task, pulls: Pulls, steps: int) -> dict[str, Any]:
    """Median step, and in factor form what it holds then."""
    kernel = (
        SpatioTemporalKernel(prior(), ExponentialForgettingKernel(_FORGETTING_RATE))
        if pulls.drift
        else prior()
    )
    policy = ucb_on_arms(task, kernel=kernel, form=form)
    random = torch.Generator().manual_seed(2)
    replicates, arms = task.functions.shape
    order = torch.stack([torch.randperm(arms, generator=random) for _ in range(replicates)]).to(task.device)
    seconds = []
    for step in range(pulls.before + steps):
        forced = order[:, step % pulls.before] if pulls.distinct else None
        seconds.append(play(policy, task, step, forced)[2])
    result: dict[str, Any] = {f"{form}_seconds": median(seconds[pulls.before :])}
    if form == "factor":
        _, result["rows"], result["points"] = held(policy)
    return result


def crossing(arms: list[int], ratio: list[float]) -> float:
    """N at which the ratio factor : covariance falls through 1, between the sizes measured on a double-log scale.

    0 if the factor form is faster at every size measured, infinity if at none. When noise makes the ratio cross
    more than once, the last crossing.
    """
    slower = [k for k, value in enumerate(ratio) if value > 1]
    if not slower:
        return 0.0
    k = slower[-1]
    if k == len(arms) - 1:
        return math.inf
    share = math.log(ratio[k]) / (math.log(ratio[k]) - math.log(ratio[k + 1]))
    return math.exp(math.log(arms[k]) * (1 - share) + math.log(arms[k + 1]) * share)


def describe(frame: pd.DataFrame) -> str:
    """Where the crossing is for each workload, then all ratios."""
    records = frame.sort_values("arms", kind="stable").to_dict("records")
    workloads: dict[tuple[int, str], list[dict[Any, Any]]] = {}
    for row in records:
        workloads.setdefault((row["replicates"], row["pulled"]), []).append(row)
    heads = ("replicates", "arms", "pulled", "rows u", "points n", "covariance form", "factor form", "ratio")
    return "\n".join(
        (
            _WORDS,
            markdown(
                ("replicates", "pulled", "factor form faster from N ="),
                [
                    (replicates, pulled, _said(rows))
                    for (replicates, pulled), rows in sorted(workloads.items())
                ],
            ),
            markdown(heads, [_sizes_and_times(row) for row in frame.to_dict("records")]),
        )
    )


def _said(rows: list[dict[Any, Any]]) -> str:
    """The crossing of one workload in words."""
    arms = [row["arms"] for row in rows]
    at = crossing(arms, [row["factor_over_covariance"] for row in rows])
    if at == 0:
        return f"below {whole(arms[0])}"
    return f"above {whole(arms[-1])}" if math.isinf(at) else figures(at, 2)


def _sizes_and_times(row: dict[Any, Any]) -> tuple[str, ...]:
    sizes = (
        whole(row["replicates"]),
        whole(row["arms"]),
        row["pulled"],
        whole(row["rows"]),
        whole(row["points"]),
    )
    times = duration(row["covariance_seconds"]), duration(row["factor_seconds"])
    return (*sizes, *times, figures(row["factor_over_covariance"]))


_WORDS = f"""`ArmGP(form="auto")` takes the covariance form up to a fixed number of arms. A step of each form, when
every replicate has pulled so many distinct arms (its own), or has played 1 000 steps of UCB, or 600 under drift
(forgetting rate {_FORGETTING_RATE}: 55 / rate points matter); ratio = factor : covariance.
"""

BENCHMARK = Benchmark("crossover", "From how many arms on is the factor form faster?", measure, describe)
