"""How fast a step is, and how much memory it takes, against plain BoTorch and against the machine itself.

``python -m benchmarks.speed [NAME ...] [--fast] [--device cpu|cuda] [--out DIR]``, from a checkout.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Annotated, cast

import pandas as pd
import torch
import typer

from benchmarks import options, pages
from benchmarks.speed import (
    against_botorch,
    captured,
    forgetting,
    form_choice,
    growth,
    igp_30000,
    in_cache,
    million_arms,
    million_steps,
    precision,
    saturation,
    scaling,
    stale_points,
    state_space,
    step_trace,
    streaming,
)
from benchmarks.speed.measuring import machine
from benchmarks.speed.page import Benchmark, Settings, result_paths, write_page

BENCHMARKS: dict[str, Benchmark] = {
    module.__name__.rpartition(".")[2]: cast(Benchmark, module)
    for module in (
        against_botorch,
        growth,
        form_choice,
        igp_30000,
        million_steps,
        precision,
        saturation,
        scaling,
        million_arms,
        stale_points,
        forgetting,
        state_space,
        step_trace,
        streaming,
        captured,
        in_cache,
    )
}


_NAMES = f"Any of {', '.join(BENCHMARKS)}; default: all."
_OUT = "Folder for RESULTS.md and results/."


def main(
    names: Annotated[list[str] | None, typer.Argument(help=_NAMES)] = None,
    fast: Annotated[bool, typer.Option(help="Tiny sizes, whose figures mean nothing.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help=_OUT, file_okay=False)] = Path(__file__).parent,
) -> None:
    """Measure, write results/DEVICE/NAME.csv, and write RESULTS.md again from all result files there are."""
    chosen = options.chosen(",".join(names or []), BENCHMARKS, "names")
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise typer.BadParameter(f"{device}: not a device that is here (cpu, or cuda)", param_hint="--device")
    settings = Settings(fast, device)
    for name in chosen:
        pages.say(f"{name}: {BENCHMARKS[name].QUESTION}")
        pages.say(BENCHMARKS[name].describe(measure(name, settings, out)))
    pages.say(f"wrote {write_page(out, BENCHMARKS)}")


app = options.command(main)


def measure(name: str, settings: Settings, out: Path) -> pd.DataFrame:
    """Run one benchmark, write its result files, and give its rows."""
    start = perf_counter()
    frame = BENCHMARKS[name].measure(settings)
    facts = {"seconds": perf_counter() - start, "fast": settings.fast, **machine(settings.device)}
    rows, about = result_paths(out, settings.device, name)
    pages.save(frame, rows)
    pages.write(about, json.dumps(facts, indent=2) + "\n")
    return frame


if __name__ == "__main__":
    app()
