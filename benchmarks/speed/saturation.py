"""How near a step comes to what the device's memory allows, when there is enough to do."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import torch

from benchmarks.pages import say
from benchmarks.speed.measuring import clock, copy_seconds, peak_mib
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import bytes_of_step, make_task, play_on, ucb_on_arms

# Form, arms, replicates, steps before the clock starts, steps timed.
_SIZES = (
    ("covariance", 10_000, 1, 5, 20),
    ("covariance", 100, 25, 200, 500),
    ("covariance", 100, 2_500, 20, 50),
    ("factor", 10_000, 25, 200, 100),
    ("factor", 100_000, 1, 200, 100),
)
_FAST_SIZES = (("covariance", 60, 2, 3, 5), ("factor", 80, 2, 3, 5))


def measure(settings: Settings) -> pd.DataFrame:
    """Mean time of a step over a run of steps, each size in a process of its own."""
    rows = []
    for size in _FAST_SIZES if settings.fast else _SIZES:
        say("{} form, {} arms, {} replicates".format(*size))
        rows.append(settings.alone(_measure_one, settings.device, *size))
    return pd.DataFrame(rows)


def _measure_one(
    device: str, form: str, num_arms: int, replicates: int, before: int, steps: int
) -> dict[str, Any]:
    """The host waits for the device before and after the timed steps, not in between."""
    task = make_task(num_arms, device, replicates=replicates)
    policy = ucb_on_arms(task, form=form)
    play_on(policy, task, 0, before)
    waits = host_waits(partial(play_on, policy, task, before, 1), device)
    start = clock(device)
    play_on(policy, task, before + 1, steps)
    seconds = (clock(device) - start) / steps
    bytes_moved = bytes_of_step(policy)
    return {
        "form": form,
        "arms": num_arms,
        "replicates": replicates,
        "bytes_per_step": bytes_moved,
        "copy_seconds": copy_seconds(bytes_moved, device),
        "seconds_per_step": seconds,
        "host_waits": waits,
        "peak_mib": peak_mib(device),
    }


def host_waits(work: Callable[[], None], device: str) -> float:
    """How often ``work`` makes the host wait for a GPU, by torch's sync debug mode; NaN on a CPU."""
    if device != "cuda":
        return float("nan")
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return float(sum("synchronizing" in str(warning.message) for warning in caught))
