"""What does a compiler add to a block of captured steps on a CPU?"""

from __future__ import annotations

from collections.abc import Hashable
from statistics import median
from time import perf_counter
from typing import Any, cast

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.captured.launching import Block
from bandits_torch.captured.steps import Given
from bandits_torch.problems import make
from benchmarks.gpu.stepping import Stepper
from benchmarks.pages import duration, figures, markdown, whole
from benchmarks.speed.measuring import at_work
from benchmarks.speed.page import Benchmark, Settings

_IN_A_BLOCK = 4  # steps: the seconds of compiling grow with them
_BEFORE = 56  # plain steps, so that windows are full
_BLOCKS = 60  # timed of either kind
_RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "igp_ucb": ("gp", {}),
    "sw_gp_ucb": ("gp", {"window": 50}),
    "tv_gp_ucb": ("tv-gp", {}),
}
_NUMBERS = (
    "compile_seconds",
    "plain_seconds",
    "compiled_seconds",
    "plain_over_compiled",
    "largest_difference",
)


class Blocks:
    """Plays blocks of captured steps, compiled by ``backend``, or as they are if it is None.

    Args:
        backend: of ``torch.compile``.
        recipe, arms, replicates: what plays.
    """

    def __init__(self, backend: str | None, recipe: str, arms: int, replicates: int) -> None:
        name, options = _RECIPES[recipe]
        problem = make(name, num_arms=arms, replicates=replicates, seed=3)
        options = options | {"form": "covariance"}
        policy = recipes.build(recipe, problem, replicates=replicates, horizon=100_000, **options)
        self._backend, self._compiled, self._seconds = backend, cast(dict[Hashable, Block], {}), 0.0
        self._rows: Given = {}
        self._stepper = Stepper(policy, problem, _IN_A_BLOCK, static=True)
        self._stepper.launch = self._launch  # type: ignore[assignment]
        self._stepper.plain(_BEFORE)

    def _launch(self, key: Hashable, block: Block, given: Given) -> Given:
        if self._backend is not None:
            if key not in self._compiled:
                self._compiled[key] = torch.compile(block, fullgraph=True, backend=self._backend)
            block = self._compiled[key]
        begun = at_work("cpu")
        self._rows = block(given)
        self._seconds = at_work("cpu") - begun
        return self._rows

    def play(self) -> tuple[float, Given]:
        """Seconds a step of a block at work, without what the host does around it, and the rows of the block."""
        self._stepper.captured(_IN_A_BLOCK)
        return self._seconds / _IN_A_BLOCK, self._rows


def measure(settings: Settings) -> pd.DataFrame:
    """A row for every recipe, number of arms and number of replicates."""
    if settings.fast:
        cases, backend, blocks = [("igp_ucb", 12, 2)], "eager", 3
    else:
        cases = [(recipe, arms, count) for recipe in _RECIPES for arms in (100, 1_000) for count in (1, 25)]
        backend, blocks = "inductor", _BLOCKS
    rows = []
    for case in cases:
        settings.say("{}, {} arms, {} replicates".format(*case))
        row = dict(zip(("recipe", "arms", "replicates"), case, strict=True))
        try:
            told = compared(backend, *case, blocks)
        except Exception as error:  # a compiler that is missing or fails is an answer, too
            told = dict.fromkeys(_NUMBERS, float("nan")) | {"error": f"{type(error).__name__}: {error}"[:300]}
        rows.append(row | told)
    return pd.DataFrame(rows)


def compared(backend: str, recipe: str, arms: int, replicates: int, blocks: int) -> dict[str, Any]:
    """Seconds of plain and compiled blocks, which take turns; the ratio is the middle one of those of the turns."""
    torch._dynamo.reset()
    plain, compiled = (Blocks(way, recipe, arms, replicates) for way in (None, backend))
    plain.play()
    begun = perf_counter()
    with torch.compiler.config.patch(force_disable_caches=True):  # of earlier processes, on disk
        compiled.play()
    seconds = perf_counter() - begun
    for _ in range(2):
        plain.play(), compiled.play()
    turns, difference = [], 0.0
    for _ in range(blocks):
        (ours, expected), (theirs, rows) = plain.play(), compiled.play()
        turns.append((ours, theirs))
        gaps = [float((rows[name].double() - value.double()).abs().max()) for name, value in expected.items()]
        difference = max(difference, *gaps)
    return {
        "compile_seconds": seconds,
        "plain_seconds": median(ours for ours, _ in turns),
        "compiled_seconds": median(theirs for _, theirs in turns),
        "plain_over_compiled": median(ours / theirs for ours, theirs in turns),
        "largest_difference": difference,
        "error": "",
    }


def describe(frame: pd.DataFrame) -> str:
    """One line a case, and what did not compile."""
    heads = (
        "recipe",
        "arms",
        "replicates",
        "a step as it is",
        "compiled",
        "ratio",
        "to compile",
        "repaid after steps",
        "largest difference",
    )
    rows, failed = [], []
    for row in frame.to_dict("records"):
        case = (f"`{row['recipe']}`", whole(row["arms"]), whole(row["replicates"]))
        if row["plain_seconds"] != row["plain_seconds"]:
            failed.append(f"{', '.join(case)}: {row['error']}\n")
            continue
        saved = row["plain_seconds"] * (1 - 1 / row["plain_over_compiled"])
        repaid = figures(row["compile_seconds"] / saved, 2) if saved > 0 else "never"
        times = (duration(row[f"{name}_seconds"]) for name in ("plain", "compiled"))
        ratio, compiling = figures(row["plain_over_compiled"]), duration(row["compile_seconds"])
        rows.append((*case, *times, ratio, compiling, repaid, f"{row['largest_difference']:.1g}"))
    said = "".join(f"\nNot compiled: {line}" for line in failed)
    return f"{_WORDS}\n{markdown(heads, rows)}{said}"


_WORDS = f"""Blocks of {_IN_A_BLOCK} captured steps in the covariance form, as `run(..., capture=True)` calls them on a
CPU, and compiled by `torch.compile(fullgraph=True)` (inductor, a C++ compiler). The two take turns, {_BLOCKS} blocks
each. Seconds that the process was at work in the block; the ratio (as it is / compiled) is the middle one of the turns.
To compile, with nothing kept from before: wall time of the first call of a block of {_IN_A_BLOCK} steps. One of 32
takes longer; every length of block, and a window that is full, is compiled on its own. Repaid: after so many steps what
is saved is as much. The wall times to compile were taken on a machine busy with other work: from row to row they swing.
"""

BENCHMARK = Benchmark("compiled", "What does a compiler add to a captured step on a CPU?", measure, describe)
