"""What a speed benchmark is, and the page of results, written from the result files and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from benchmarks.pages import duration, figures, publish, whole
from benchmarks.speed.measuring import Result, alone


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    Attributes:
        fast: sizes so small that the figures mean nothing: to see that everything runs.
        device: ``"cpu"`` or ``"cuda"``.
    """

    fast: bool = False
    device: str = "cpu"

    def alone(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What ``function(*arguments)`` gives in a fresh process. A fast run spares the seconds that its imports take:
        it shares this one, memory and all."""
        return function(*arguments) if self.fast else alone(function, *arguments)


class Benchmark(Protocol):
    """A module of this folder: ``QUESTION``, which it answers, in one line; ``measure``, which gives one row for each
    measurement; ``describe``, Markdown for the page from the rows alone, so that it can be written again from files."""

    QUESTION: str
    measure: Callable[[Settings], pd.DataFrame]
    describe: Callable[[pd.DataFrame], str]


_INTRODUCTION = """
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
                parts.append(_section(name, benchmark, pd.read_csv(table), json.loads(facts.read_text())))
    if not (out / "results" / "cuda").exists():
        parts.append(_NO_GPU)
    path, command = out / "RESULTS.md", "python -m benchmarks.speed"
    return publish(path, "Speed", _answer(out), command, "\n".join(parts))


def _answer(out: Path) -> str:
    """A step of ours at few and many arms, and how much longer the fastest plain BoTorch program takes."""
    path, _ = result_paths(out, "cpu", "against_botorch")
    if not path.exists():
        return "Not compared with plain BoTorch yet: `python -m benchmarks.speed against_botorch`."
    rows = pd.read_csv(path)
    rows = rows[(rows["pulled"] == "ucb") & (rows["observations"] == 1_000)]
    said = []
    for arms, part in rows.groupby("arms"):
        seconds = part.set_index("way")["seconds_per_step"]
        ours = seconds.pop("bandits_torch")
        times = figures(seconds.min() / ours)
        said.append(f"{duration(ours)} with {whole(arms)} arms (BoTorch {times} times as long)")
    return f"After 1 000 observations a step takes {', '.join(said)}; BoTorch is the fastest of four plain programs."


def result_paths(out: Path, device: str, name: str) -> tuple[Path, Path]:
    """Where a benchmark's rows and the facts about its run are kept."""
    folder = out / "results" / device
    return folder / f"{name}.csv", folder / f"{name}.json"


def _section(name: str, benchmark: Benchmark, frame: pd.DataFrame, facts: Mapping[str, Any]) -> str:
    where = facts["accelerator"] or f"{facts['cores']} cores, torch on {facts['threads']}"
    machine = (
        f"{facts['processor']}, {where}; torch {facts['torch']}, gpytorch {facts['gpytorch']}, "
        f"botorch {facts['botorch']}, python {facts['python']}; took {facts['seconds']:.0f} s."
    )
    shrunk = "\n**A shrunk run (`--fast`): the figures mean nothing.**\n" if facts["fast"] else ""
    return f"## {benchmark.QUESTION}\n\n`{name}`: {machine}\n{shrunk}\n{benchmark.describe(frame)}"
