"""From how many arms on is the factor form faster than the covariance form?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from benchmarks.speed.benchmark import Benchmark, Settings
from benchmarks.speed.measuring import median
from benchmarks.speed.page import duration, figures, markdown, whole
from benchmarks.speed.workload import held, make_task, play, ucb_on_arms

_LARGEST_COVARIANCE = 4 * 2**30  # bytes of all replicates' N x N matrices; larger ones are not measured


@dataclass(frozen=True)
class Sizes:
    """What is measured: numbers of arms, replicates, distinct arms pulled, steps before and steps timed."""

    arms: tuple[int, ...]
    replicates: tuple[int, ...]
    distinct: tuple[int, ...]
    ucb_steps: int
    steps: int


_FULL = Sizes((200, 500, 1_000, 1_500, 2_000, 3_000, 5_000, 8_000), (1, 25), (10, 100, 1_000), 1_000, 50)
_FAST = Sizes((40, 60), (1, 2), (5,), 10, 3)


def measure(settings: Settings) -> pd.DataFrame:
    """Both forms' step for every size; each member pulls its own distinct arms, or what UCB chooses."""
    sizes = _FAST if settings.fast else _FULL
    rows: list[dict[str, Any]] = []
    for replicates in sizes.replicates:
        for arms in sizes.arms:
            if replicates * arms**2 * 8 > _LARGEST_COVARIANCE:
                continue
            settings.say(f"{arms} arms, {replicates} replicates")
            covariance = _time("covariance", arms, replicates, sizes.distinct[0], sizes, settings.device)
            for distinct in (*(u for u in sizes.distinct if u <= arms), None):
                factor = _time("factor", arms, replicates, distinct, sizes, settings.device)
                pulled = "as UCB does" if distinct is None else f"{distinct} distinct"
                ratio = factor["factor_seconds"] / covariance["covariance_seconds"]
                row = {"replicates": replicates, "arms": arms, "pulled": pulled, **factor, **covariance}
                rows.append(row | {"factor_over_covariance": ratio})
    return pd.DataFrame(rows)


def _time(
    form: str, arms: int, replicates: int, distinct: int | None, sizes: Sizes, device: str
) -> dict[str, Any]:
    """Median step, after every distinct arm was pulled once or after UCB's steps; what is pulled then is known."""
    task = make_task(arms, device, replicates=replicates)
    policy = ucb_on_arms(task, form=form)
    before = distinct or sizes.ucb_steps
    random = torch.Generator().manual_seed(2)
    order = torch.stack([torch.randperm(arms, generator=random) for _ in range(replicates)]).to(device)
    seconds = []
    for step in range(before + sizes.steps):
        forced = order[:, step % before] if distinct else None
        seconds.append(play(policy, task, step, forced)[2])
    result: dict[str, Any] = {f"{form}_seconds": median(seconds[before:])}
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


_WORDS = """`ArmGP(form="auto")` takes the covariance form up to a fixed number of arms. A step of each form, when every
replicate has pulled so many distinct arms (its own) or has played 1 000 steps of UCB; ratio = factor : covariance.
"""

BENCHMARK = Benchmark("crossover", "From how many arms on is the factor form faster?", measure, describe)
