"""Steps one by one, in blocks of plain calls, and as a compiled loop, side by side; and a copy of as many bytes."""

import os
import subprocess
import sys
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import pandas as pd
import torch

from bandits_torch import make, recipes, run
from bandits_torch.captured import blocks
from benchmarks.pages import say
from benchmarks.speed.measuring import at_work, copy_seconds, median, peak_mib
from benchmarks.speed.page import Settings

# Recipe, problem, options of the recipe, numbers that are held for each of S N^2.
_CASES: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("gp_ucb", "gp", {}, 1),
    ("igp_ucb", "gp", {}, 1),
    ("tv_gp_ucb", "tv-gp", {}, 1),
    ("sw_gp_ucb", "gp", {"window": 50}, 1),
    ("gp_ts", "gp", {}, 2),
    ("auto", "gp", {}, 220),
)
_SIZES = [(arms, replicates) for arms in (20, 100, 300, 1_000, 3_000) for replicates in (1, 25, 250)]
_WAYS = ("plain", "blocks", "compiled")
_MOST = 60_000_000  # numbers held in a case; larger ones are left out,
_MOST_OF_ONE = 250_000_000  # but not where a form without N x N matrices begins
_TURNS, _SECONDS = 5, 2.0  # at most so many turns a case, none begun after so many seconds
_MOVED = 50_000_000  # numbers passed over in one way's turn
_FIRST = """
from time import process_time as now
start = now(); import bandits_torch as b; loaded = now() - start
start = now(); import numba; numba = now() - start
problem = b.make("gp", num_arms=20)
policy = lambda: b.recipes.build("{recipe}", problem, replicates=1, horizon=60)
b.run(policy(), problem, 60)
took = []
for _ in range(2):
    start = now(); b.run(policy(), problem, 60, capture=True); took.append(now() - start)
print(loaded, numba, took[0] - took[1])
"""


def measure(settings: Settings) -> pd.DataFrame:
    """Seconds a step, the middle of up to five turns, in which the three ways take turns."""
    if find_spec("numba") is None:
        raise ValueError('in_cache needs numba: pip install ".[fast]"')
    rows = []
    first = {} if settings.fast else {recipe: _first(recipe, settings) for recipe in ("gp_ucb", "auto")}
    turns = 1 if settings.fast else _TURNS
    for recipe, name, options, held in _CASES[::5] if settings.fast else _CASES:
        for arms, replicates in ((12, 2),) if settings.fast else _SIZES:
            numbers = held * replicates * arms**2
            if numbers > (_MOST if held > 1 else _MOST_OF_ONE):
                continue
            say(f"{recipe}, {arms} arms, {replicates} replicates")
            steps = 40 if settings.fast else max(96, min(480, _MOVED // (numbers + 50_000)))
            problem = make(name, num_arms=arms, replicates=replicates)
            seconds: dict[str, list[float]] = {way: [] for way in _WAYS}
            _turn("compiled", recipe, problem, options, min(steps, 30))  # loads what was compiled
            start = perf_counter()
            while not seconds["plain"] or (
                len(seconds["plain"]) < turns and perf_counter() - start < _SECONDS
            ):
                for way in _WAYS:
                    taken, bytes_held, compiled = _turn(way, recipe, problem, options, steps)
                    seconds[way].append(taken)
            row = {"recipe": recipe, "arms": arms, "replicates": replicates, "steps": steps}
            row |= {"turns": len(seconds["plain"]), "compiled_share": compiled, "mib": bytes_held / 2**20}
            row |= {way: median(taken) for way, taken in seconds.items()}
            row["copy"] = copy_seconds(2 * 8 * replicates * arms**2, "cpu")  # C of all replicates
            row |= first.get(recipe, {}) | {"peak_mib": peak_mib("cpu"), "machine_load": os.getloadavg()[0]}
            rows.append(row)
    return pd.DataFrame(rows)


def _turn(
    way: str, recipe: str, problem: Any, options: dict[str, Any], steps: int
) -> tuple[float, int, float]:
    """Processor seconds a step of a run; bytes that the model holds after it; the share of steps compiled."""
    policy = recipes.build(recipe, problem, replicates=problem.replicates, horizon=100_000, **options)
    before = blocks.compiled_blocks
    if way == "blocks":
        blocks.compiled_blocks = lambda *_: None
    try:
        start = at_work("cpu")
        history = run(policy, problem, steps, capture="auto" if way != "plain" else False)
        seconds = (at_work("cpu") - start) / steps
    finally:
        blocks.compiled_blocks = before
    held = sum(
        value.nbytes for value in policy.model.state_dict().values() if isinstance(value, torch.Tensor)
    )
    played = history.meta.get("steps", "").split(" compiled")
    return seconds, held, float(played[0]) / steps if len(played) > 1 else 0.0


def _first(recipe: str, settings: Settings) -> dict[str, float]:
    """Processor seconds, in new processes, of the imports, and of the first compiled run beyond the second, where the
    loop has never been compiled and where it has."""
    seconds = {}
    with TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        for name in ("compile", "load"):
            say(f"{recipe}: a new process, to {name}")
            command = [sys.executable, "-c", _FIRST.format(recipe=recipe)]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            seconds["import"], seconds["numba"], seconds[name] = map(float, done.stdout.split())
    return seconds
