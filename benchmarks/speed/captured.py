"""What a captured step asks of a device, beside a plain one: kernels, values the host waits for."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bandits_torch import recipes
from bandits_torch.problems import make
from benchmarks.gpu.stepping import Settings as OnDevice
from benchmarks.gpu.stepping import both
from benchmarks.pages import figures, markdown, say, whole
from benchmarks.speed.page import Settings

QUESTION = "What does a captured step ask of a device?"

# Recipe, problem, options of the recipe.
_CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("igp_ucb", "gp", {}),
    ("gp_ucb", "gp", {}),
    ("sw_gp_ucb", "gp", {"window": 50}),
    ("r_gp_ucb", "gp", {"interval": 1_000_000}),
    ("tv_gp_ucb", "tv-gp", {}),
    ("et_gp_ucb", "gp", {}),
    ("gp_ts", "gp", {}),
    ("auto", "gp", {}),
)


def measure(settings: Settings) -> pd.DataFrame:
    arms, replicates, before, steps, k = (12, 2, 60, 4, 4) if settings.fast else (100, 25, 100, 320, 32)
    rows = []
    for recipe, name, options in _CASES:
        say(recipe)
        problem = make(name, num_arms=arms, replicates=replicates).to(settings.device)
        policy = recipes.build(recipe, problem, replicates=replicates, horizon=100_000, **options)
        k_here = min(k, 16) if recipe == "auto" else k
        measured = both(
            policy, problem, before, steps, OnDevice(settings.device, settings.fast), k_here, True
        )
        sizes = {"recipe": recipe, "arms": arms, "replicates": replicates, "steps_in_a_block": k_here}
        rows.append(sizes | measured)
    return pd.DataFrame(rows)


def describe(frame: pd.DataFrame) -> str:
    rows = [
        (
            f"`{row['recipe']}`",
            whole(row["plain_kernels"]),
            figures(row["captured_kernels"]),
            whole(row["plain_reads"]),
            whole(row["captured_reads"]),
            figures(row["captured_allocated"] / 2**10),
        )
        for row in frame.to_dict("records")
    ]
    return _WORDS + markdown(_HEADS, rows)


_HEADS = ("recipe", "kernels, plain", "captured", "host reads, plain", "captured", "KiB allocated, captured")
_WORDS = """A step of `loop.run` and one of `run(..., capture=True)`: choose, pull, learn; 100 arms, 25 replicates. The
captured step records, too. Counted operation by operation (a dispatch mode): an operation that is no view is a kernel
(`logsumexp` and others that launch several count as these), a value that Python has to know is a host read, new memory
is allocated. Counts of blocks of 32 steps (`auto`: 16) over
their steps. On a GPU a block is one launch of a CUDA graph. The times beside them in the result file were taken on a
machine busy with other work; they say nothing.

"""
