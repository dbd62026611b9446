"""What does a step of either form cost, by how many numbers it passes over? The constants of ``form="auto"``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pandas as pd
import torch

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.form_costs import ENTRIES
from bandits_torch.policies.policy import Observation
from benchmarks.pages import duration, markdown, whole
from benchmarks.speed.measuring import at_work
from benchmarks.speed.page import Benchmark, Settings
from benchmarks.speed.workload import make_task, prior, ucb_on_arms

FORGETTING_RATE = 0.03
_STEPS, _PASSES = 24, 4  # timed of each
_FACTOR_ARMS = 3_000  # over which the factor form's rows are
_DTYPES = {"float64": torch.float64, "float32": torch.float32}


def measure(settings: Settings) -> pd.DataFrame:
    """Every row of ``rows``, the faster of several passes, minutes apart: what else a machine does comes and goes."""
    entries, arms, passes = ((400, 900), 30, 1) if settings.fast else (ENTRIES, _FACTOR_ARMS, _PASSES)
    frames = []
    for k in range(passes):
        settings.say(f"pass {k + 1} of {passes}")
        frames.append(pd.DataFrame(list(rows(settings.device, entries, arms))))
    best = frames[0].copy()
    for name in ("covariance_seconds", "factor_seconds", "new_arms_seconds"):
        best[name] = pd.concat([frame[name] for frame in frames], axis=1).min(axis=1)
    return best


def rows(
    device: str, entries: tuple[int, ...] = ENTRIES, arms: int | None = None
) -> Iterator[dict[str, Any]]:
    """Seconds of a step of both forms that passes over so many numbers, at 1 and at 25 replicates. ``arms``: over which
    the factor form's rows are; None: the more, the more numbers."""
    for dtype, drifts in ((d, drifts) for drifts in (False, True) for d in _DTYPES):
        for size in entries:
            for replicates in (1, 25):
                row: dict[str, Any] = {
                    "dtype": dtype,
                    "drifts": drifts,
                    "entries": size,
                    "replicates": replicates,
                }
                row["device"] = device
                side = max(2, round((size / replicates) ** 0.5))
                row |= _timed("covariance", device, dtype, drifts, replicates, side, 4)
                if dtype == "float64":  # the factor form computes in float64 whatever the model's dtype
                    held = _of_factor(size, replicates, arms or max(100, size // 500))
                    row |= _timed("factor", device, dtype, drifts, replicates, *held)
                    if size == entries[0]:
                        told = _timed("factor", device, dtype, drifts, replicates, *held, new=True)
                        row["new_arms_seconds"] = told["factor_seconds"]
                yield row


def _of_factor(size: int, replicates: int, arms: int) -> tuple[int, int]:
    """Arms and points with 4 b n^2 + u N near ``size``; every replicate pulls the same n arms, so that u = n."""
    b = 4 * replicates
    points = max(2, round((-arms + (arms**2 + 4 * b * size) ** 0.5) / (2 * b)))
    return max(arms, points), points


def _timed(
    form: str,
    device: str,
    dtype: str,
    drifts: bool,
    replicates: int,
    arms: int,
    points: int,
    new: bool = False,
) -> dict[str, Any]:
    """Seconds of the fastest of some steps with so many points: a machine does other things, too. ``new``: of steps
    that pull arms not pulled before."""
    task = make_task(arms, device, replicates=replicates)
    kernel = (
        SpatioTemporalKernel(prior(), ExponentialForgettingKernel(FORGETTING_RATE)) if drifts else prior()
    )
    policy = ucb_on_arms(task, kernel=kernel, form=form, dtype=_DTYPES[dtype])
    order = torch.randperm(arms, generator=torch.Generator().manual_seed(2)).to(device)
    seconds = []
    for step in range(points + 4 + _STEPS):
        time = 1e-6 * step  # it hardly moves: no point becomes faint
        begun = at_work(device)
        if step >= points:
            policy.choose(time)
        arm = order[step % (arms if new else points)].expand(replicates)
        policy.learn(Observation(time, arm, task.reward(step, arm)))
        seconds.append(at_work(device) - begun)
    return {f"{form}_seconds": min(seconds[-_STEPS:])}


def constants(frame: pd.DataFrame, device: str) -> str:
    """Lines for ``form_costs.COSTS``."""
    lines = []
    for dtype, drifts, batch in product(_DTYPES, (False, True), (False, True)):
        of_key = frame[(frame["drifts"] == drifts) & ((frame["replicates"] > 1) == batch)].sort_values(
            "entries"
        )
        covariance = _listed(of_key[of_key["dtype"] == dtype]["covariance_seconds"])
        known = of_key[of_key["dtype"] == "float64"]
        factor, first = _listed(known["factor_seconds"]), known.iloc[0]
        new_row = max(0.0, first["new_arms_seconds"] - first["factor_seconds"])
        key = f'("{device}", torch.{dtype}, {drifts}, {batch})'
        sizes = tuple(sorted(set(frame["entries"])))
        of_sizes = "" if sizes == ENTRIES else f", {sizes}"
        lines.append(f"    {key}: Costs({covariance}, {factor}{of_sizes}, new_row={new_row:.2e}),")
    return "\n".join(lines)


def _listed(seconds: pd.Series) -> str:
    """In figures, none less than one before: a step over more numbers is no cheaper."""
    return f"({', '.join(f'{value:.2e}' for value in seconds.cummax())})"


def _told(seconds: float) -> str:
    return duration(seconds) if seconds == seconds else ""


def describe(frame: pd.DataFrame) -> str:
    """The rows, and the constants read off them."""
    heads = (
        "dtype",
        "drift",
        "numbers passed over",
        "replicates",
        "covariance form",
        "factor form",
        "new arms",
    )
    table = [
        (
            row["dtype"],
            "yes" if row["drifts"] else "no",
            whole(row["entries"]),
            whole(row["replicates"]),
            duration(row["covariance_seconds"]),
            *(_told(row[name]) for name in ("factor_seconds", "new_arms_seconds")),
        )
        for row in frame.to_dict("records")
    ]
    device = "cuda" if "cuda" in set(frame["device"]) else "cpu"
    return f"{_WORDS}\n{markdown(heads, table)}\n```python\n{constants(frame, device)}\n```\n"


_WORDS = f"""A step of each form by how many numbers it passes over: b N^2 in the covariance form of b replicates over
N arms; 4 b n^2 + u N in the factor form with n points each and u distinct arms pulled (N = {_FACTOR_ARMS}), which
computes in float64 whatever the model does. New arms: the factor form's step where each pulls an arm not pulled before,
whose prior row is computed. Seconds that the process was at work, choosing and learning; drift:
forgetting rate {FORGETTING_RATE}; the fastest of {_STEPS} steps in {_PASSES} passes. The lines below are what
`form="auto"` goes by (`bandits_torch/models/arms/form_costs.py`).
"""

BENCHMARK = Benchmark("form_costs", "What does a step of either form cost?", measure, describe)
