"""Steps of index policies one by one, in blocks of plain calls, and as a compiled loop; and a copy of as many bytes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pandas as pd

from bandits_torch import make, recipes, run
from bandits_torch.captured import playing
from benchmarks.pages import figures, markdown
from benchmarks.speed.measuring import at_work, copy_seconds, median
from benchmarks.speed.page import Benchmark, Settings

# Recipe, problem, options of the recipe.
_CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gp_ucb", "gp", {}),
    ("igp_ucb", "gp", {}),
    ("tv_gp_ucb", "tv-gp", {}),
    ("sw_gp_ucb", "gp", {"window": 50}),
    ("gp_ts", "gp", {}),
)
_SIZES = ((20, 1), (20, 25), (100, 1), (100, 25), (100, 250), (300, 1), (300, 25), (1_000, 1))  # N, S
_WAYS = ("plain", "blocks", "compiled")
_TURNS, _LARGE = 5, 500_000  # S N^2 from which on fewer steps are played


def measure(settings: Settings) -> pd.DataFrame:
    """Seconds a step, the middle of five turns, in which the three ways take turns; and of the first compiled run."""
    if find_spec("numba") is None:
        raise ValueError('in_cache needs numba: pip install ".[fast]"')
    rows = []
    for recipe, name, options in _CASES:
        for arms, replicates in ((12, 2),) if settings.fast else _SIZES:
            settings.say(f"{recipe}, {arms} arms, {replicates} replicates")
            steps = 40 if settings.fast else 128 if replicates * arms**2 > _LARGE else 512
            problem = make(name, num_arms=arms, replicates=replicates)
            seconds: dict[str, list[float]] = {way: [] for way in _WAYS}
            first = _seconds(
                "compiled", recipe, problem, options, steps
            )  # compiles, or loads what was compiled
            for _ in range(1 if settings.fast else _TURNS):
                for way in _WAYS:
                    seconds[way].append(_seconds(way, recipe, problem, options, steps) / steps)
            copied = copy_seconds(16 * replicates * arms**2, "cpu")  # C read and written once
            row = {"recipe": recipe, "arms": arms, "replicates": replicates, "steps": steps, "first": first}
            rows.append(row | {way: median(seconds[way]) for way in _WAYS} | {"copy": copied})
    return pd.DataFrame(rows)


def _seconds(way: str, recipe: str, problem: Any, options: dict[str, Any], steps: int) -> float:
    """Of a run, by processor time."""
    policy = recipes.build(recipe, problem, replicates=problem.replicates, horizon=100_000, **options)
    before = playing.compiled_blocks
    if way == "blocks":
        playing.compiled_blocks = lambda *_: None
    try:
        start = at_work("cpu")
        run(policy, problem, steps, capture=way != "plain")
        return at_work("cpu") - start
    finally:
        playing.compiled_blocks = before


def describe(frame: pd.DataFrame) -> str:
    """One line a case."""
    rows = [
        (
            f"`{row['recipe']}`",
            row["arms"],
            row["replicates"],
            *(figures(1e6 * row[way]) for way in (*_WAYS, "copy")),
            figures(row["plain"] / row["compiled"]),
        )
        for row in frame.to_dict("records")
    ]
    first = frame["first"].max()
    return _WORDS.format(first=figures(first)) + markdown(_HEADS, rows)


_HEADS = ("recipe", "N", "S", "one by one", "blocks", "compiled", "copy", "one by one / compiled")
_WORDS = """Microseconds of processor time a step of `run`, its own work and the problem's included: one by one;
with `capture=True` as plain calls; with `capture=True` and the extra `fast` installed (numba). "Copy": reading and
writing as many bytes as the posterior covariances of all replicates have, once. With the extra, the first run of a
process takes {first} s more at most, to load what has been compiled on this machine, or to compile it.

"""

BENCHMARK = Benchmark(
    "in_cache", "What does a step cost in a loop whose covariance stays in the cache?", measure, describe
)
