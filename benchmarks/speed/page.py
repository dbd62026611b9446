"""The page of results, written from the result files and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bandits_torch.files import atomic_write
from benchmarks.speed.benchmark import Benchmark

_INTRODUCTION = """# Speed

Written by `python -m benchmarks.speed` from the files in `results/`; run it again rather than edit it.
Unless a section says otherwise: arms uniform in a cube, d = 3; Matern-5/2 prior of fixed lengthscale 0.2 and
variance 1; noise variance 0.01; UCB of width 2 over all arms; float64. A step is `choose` and `learn` of a policy.
"""

_NO_GPU = """## On a GPU

Not measured: no GPU was at hand. `python -m benchmarks.gpu --out DIR` tests and measures on one, in under nine minutes;
`python -m benchmarks.speed --device cuda` measures all of the above there and adds its sections here. Until then the
tests show that a step mixes no devices and reads nothing back from the device (PyTorch's meta device), and that a
captured step reads nothing back, is one graph to `torch.compile`, and launches as few kernels as the last section says.
"""


def write_page(out: Path, benchmarks: Mapping[str, Benchmark]) -> Path:
    """Write ``RESULTS.md`` beside ``results/<device>/<name>.csv``; returns its path."""
    parts = [_INTRODUCTION]
    for device in ("cpu", "cuda"):
        for name, benchmark in benchmarks.items():
            table, facts = result_paths(out, device, name)
            if table.exists():
                parts.append(_section(benchmark, pd.read_csv(table), json.loads(facts.read_text())))
    if not (out / "results" / "cuda").exists():
        parts.append(_NO_GPU)
    path = out / "RESULTS.md"
    with atomic_write(path) as file:
        file.write("\n".join(parts).encode())
    return path


def result_paths(out: Path, device: str, name: str) -> tuple[Path, Path]:
    """Where a benchmark's rows and the facts about its run are kept."""
    folder = out / "results" / device
    return folder / f"{name}.csv", folder / f"{name}.json"


def _section(benchmark: Benchmark, frame: pd.DataFrame, facts: Mapping[str, Any]) -> str:
    where = facts["accelerator"] or f"{facts['cores']} cores, torch on {facts['threads']}"
    machine = (
        f"{facts['processor']}, {where}; torch {facts['torch']}, gpytorch {facts['gpytorch']}, "
        f"botorch {facts['botorch']}, python {facts['python']}; took {facts['seconds']:.0f} s."
    )
    shrunk = "\n**A shrunk run (`--fast`): the figures mean nothing.**\n" if facts["fast"] else ""
    return f"## {benchmark.question}\n\n`{benchmark.name}`: {machine}\n{shrunk}\n{benchmark.describe(frame)}"


def markdown(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    lines = [list(headings), *([str(cell) for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def duration(seconds: float) -> str:
    """Three figures and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{figures(seconds / size)} {unit}"
    return f"{figures(seconds / 1e-6)} µs"


def figures(value: float, count: int = 3) -> str:
    """A number to ``count`` significant figures, thousands apart."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, count - 1 - math.floor(math.log10(abs(value))))
    return f"{round(value, count - 1 - math.floor(math.log10(abs(value)))):,.{decimals}f}".replace(",", " ")


def whole(value: float) -> str:
    """A whole number, thousands apart."""
    return f"{int(value):,}".replace(",", " ")
