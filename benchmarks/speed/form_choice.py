"""How far is ``form="auto"`` from the cheaper form, at sizes that did not choose its rule?"""

from itertools import product
from typing import Any

import pandas as pd
import torch

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from benchmarks.pages import say
from benchmarks.speed.measuring import at_work
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import held, make_task, play_on, prior, ucb_on_arms

TURN = 32  # steps of one form before the other has its turn: the covariance form folds once in so many
TURNS = 3
_DENSEST = 5_000_000  # numbers of all replicates' n x n matrices
_SIZES = ((1_800, 1), (4_000, 1), (600, 8), (1_400, 8), (350, 50))  # arms, replicates


def measure(settings: Settings) -> pd.DataFrame:
    """A row for every number of arms, of replicates and of points, static and drifting, in both dtypes."""
    sizes, held = (((40, 2),), (5,)) if settings.fast else (_SIZES, (24, 80, 300))
    rows = []
    for (arms, replicates), drifts, points in product(sizes, (False, True), held):
        if points <= arms and replicates * points**2 <= _DENSEST:
            say(f"{arms} arms, {replicates} replicates, {points} points{', drift' if drifts else ''}")
            for dtype in (torch.float64, torch.float32):
                rows.append(case(arms, replicates, drifts, dtype, points, settings.device))
    return pd.DataFrame(rows)


def case(
    arms: int, replicates: int, drifts: bool, dtype: torch.dtype, points: int, device: str
) -> dict[str, Any]:
    """Seconds of a step in both forms, with so many points in each replicate, and the form that auto is in by then.
    Under drift every pull is a point, and the rate is such that those older than so many steps say nothing of the
    present."""
    task = make_task(arms, device, replicates=replicates)
    over_time = ExponentialForgettingKernel(1 - 1e-24 ** (1 / points))
    kernel = SpatioTemporalKernel(prior(), over_time) if drifts else prior()
    random = torch.Generator().manual_seed(2)
    order = torch.stack([torch.randperm(arms, generator=random)[:points] for _ in range(replicates)], -1)
    order = order.to(device)
    policies = {
        form: ucb_on_arms(task, kernel=kernel, form=form, dtype=dtype)
        for form in ("covariance", "factor", "auto")
    }
    before = points + 32
    for policy in policies.values():
        play_on(policy, task, 0, before, order)
    seconds: dict[str, list[float]] = {"covariance": [], "factor": []}
    for turn in range(TURNS):
        for form, of_form in seconds.items():
            begun = at_work(device)
            play_on(policies[form], task, before + TURN * turn, TURN, order)
            of_form.append((at_work(device) - begun) / TURN)
    least = {form: min(of_form) for form, of_form in seconds.items()}
    _, rows, points = held(policies["factor"])
    auto = held(policies["auto"])[0]
    return {
        "arms": arms,
        "replicates": replicates,
        "drifts": drifts,
        "dtype": str(dtype).removeprefix("torch."),
        "rows": rows,
        "points": points,
        "room": policies["factor"].model._belief.form.size,
        **{f"{form}_seconds": of_form for form, of_form in least.items()},
        "auto": auto,
        "over_cheaper": least[auto] / min(least.values()),
    }
