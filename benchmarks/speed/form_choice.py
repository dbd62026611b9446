"""How far is ``form="auto"`` from the cheaper form, over a whole run in which ever new arms are pulled?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Observation
from benchmarks.pages import duration, figures, markdown, whole
from benchmarks.speed.measuring import at_work
from benchmarks.speed.page import Benchmark, Settings
from benchmarks.speed.workload import Task, held, make_task, prior, ucb_on_arms

_TURN = 20  # steps of one form before the next has its turn
_LARGE = 20_000  # arms of all replicates, from which on a run is shorter
_SECONDS = 3.0  # of a case in the covariance form; a longer run is told from as many steps


def measure(settings: Settings) -> pd.DataFrame:
    """A row for every number of arms, drift, dtype and number of replicates."""
    sizes, several, steps = ((30, 40), 2, 40) if settings.fast else ((100, 1_000, 3_000), 25, 1_000)
    rows = []
    for arms in sizes:
        for replicates in (1, several):
            for drift in (0.0, 0.03):
                for dtype in (torch.float64, torch.float32):
                    settings.say(f"{arms} arms, {replicates} replicates, drift {drift}, {dtype}")
                    of_case = steps if arms * replicates < _LARGE else 300
                    rows.append(case(arms, replicates, drift, dtype, of_case, settings.device))
    return pd.DataFrame(rows)


def case(
    arms: int, replicates: int, drift: float, dtype: torch.dtype, steps: int, device: str
) -> dict[str, Any]:
    """Seconds of the run in both forms and in auto. They take turns, so that what else the machine does meets all."""
    task = make_task(arms, device, replicates=replicates)
    order = torch.randperm(arms, generator=torch.Generator().manual_seed(2)).to(device)
    kernel = SpatioTemporalKernel(prior(), ExponentialForgettingKernel(drift)) if drift else None
    policies = {
        form: ucb_on_arms(task, kernel=kernel, form=form, dtype=dtype)
        for form in ("covariance", "factor", "auto")
    }
    seconds, played = dict.fromkeys(policies, 0.0), dict.fromkeys(policies, 0)
    started = held(policies["auto"])[0]
    for first in range(0, steps, _TURN):
        for form, policy in policies.items():
            if form == "covariance" and seconds[form] > _SECONDS:
                continue  # its step costs the same whatever was pulled
            seconds[form] += _play(policy, task, order, first, min(_TURN, steps - first))
            played[form] += min(_TURN, steps - first)
    told = {f"{form}_seconds": seconds[form] * steps / played[form] for form in policies}
    cheaper = min(told["covariance_seconds"], told["factor_seconds"])
    return {
        "arms": arms,
        "replicates": replicates,
        "drift": drift,
        "dtype": str(dtype).removeprefix("torch."),
        "steps": steps,
        **told,
        "covariance_steps_timed": played["covariance"],
        "forms": f"{started}, {held(policies['auto'])[0]}",
        "over_cheaper": told["auto_seconds"] / cheaper,
    }


def _play(policy: IndexPolicy, task: Task, order: torch.Tensor, first: int, count: int) -> float:
    """Seconds of these steps, in which every replicate pulls the next arm of the order."""
    begun = at_work(task.device)
    for step in range(first, first + count):
        policy.choose(float(step))
        arm = order[step % len(order)].expand(len(task.functions))
        policy.learn(Observation(float(step), arm, task.reward(step, arm)))
    return at_work(task.device) - begun


def describe(frame: pd.DataFrame) -> str:
    """One line a case."""
    heads = (
        "arms",
        "replicates",
        "drift",
        "dtype",
        "steps",
        "covariance form",
        "factor form",
        "auto",
        "over the cheaper",
    )
    rows = [
        (
            whole(row["arms"]),
            whole(row["replicates"]),
            f"{row['drift']:g}",
            row["dtype"],
            whole(row["steps"]),
            *(duration(row[f"{form}_seconds"]) for form in ("covariance", "factor", "auto")),
            figures(row["over_cheaper"]),
        )
        for row in frame.to_dict("records")
    ]
    worst = frame["over_cheaper"].max()
    met = int((frame["over_cheaper"] <= 1.15).sum())
    said = f"Within 1.15 of the cheaper form: {met} of {len(frame)} cases; the worst: {figures(worst)}.\n\n"
    return f"{_WORDS}\n{said}{markdown(heads, rows)}"


_WORDS = """All steps of a run (as many as the table says), in which arm after arm is pulled that was not pulled
before, the same by every replicate, until all were. Seconds that the process was at work. The three take turns of 20
steps. Steps in the covariance form cost the same from first to last; where they are long, fewer are timed and the sum
is scaled.
"""

BENCHMARK = Benchmark("form_choice", 'How far is `form="auto"` from the cheaper form?', measure, describe)
