"""The page of the speed benchmarks, written from the result files and nothing else: each has its section, a template
beside it, of its rows (``frame``, ``rows``), its module (``program``) and ``workload``."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.pages import filled, read, render
from benchmarks.speed import workload
from benchmarks.speed.measuring import Result, alone

# Modules of this folder, in the order of the page; ``measure(settings)`` gives a row for each measurement.
BENCHMARKS = (
    *("against_botorch", "floor", "growth", "form_choice", "igp_30000", "million_steps", "precision"),
    *(
        "saturation",
        "scaling",
        "million_arms",
        "stale_points",
        "forgetting",
        "state_space",
        "step_trace",
        "streaming",
    ),
    *("captured", "in_cache"),
)


@dataclass(frozen=True)
class Settings:
    """``fast``: sizes too small for meaningful figures, to see that everything runs; ``device``: cpu or cuda."""

    fast: bool = False
    device: str = "cpu"

    def alone(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What ``function(*arguments)`` gives in a fresh process. A fast run spares the seconds that its imports take:
        it shares this one, memory and all."""
        return function(*arguments) if self.fast else alone(function, *arguments)


def write_page(out: Path) -> Path:
    """Write ``RESULTS.md`` beside ``results/<device>/<name>.csv``; returns its path."""
    measured = [
        (device, name)
        for device in ("cpu", "cuda")
        for name in BENCHMARKS
        if result_paths(out, device, name)[0].exists()
    ]
    return render(
        out / "RESULTS.md",
        "speed/RESULTS.md.jinja",
        against=read(result_paths(out, "cpu", "against_botorch")[0]),
        sections=[section(out, *one) for one in measured],
        on_gpu=(out / "results" / "cuda").exists(),
    )


def result_paths(out: Path, device: str, name: str) -> tuple[Path, Path]:
    """Where a benchmark's rows and the facts about its run are kept."""
    folder = out / "results" / device
    return folder / f"{name}.csv", folder / f"{name}.json"


def section(out: Path, device: str, name: str) -> str:
    """What the page says of a benchmark that was run."""
    table, facts = result_paths(out, device, name)
    frame, ran = pd.read_csv(table), filled("speed/ran.jinja", name=name, **json.loads(facts.read_text()))
    program = import_module(f"benchmarks.speed.{name}")
    rows = frame.to_dict("records")
    shown = {"frame": frame, "rows": rows, "program": program, "workload": workload}
    return filled(f"speed/{name}.md.jinja", ran=ran, **shown)
