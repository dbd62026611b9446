"""How fast a step is, and how much memory it takes, against plain BoTorch and against the machine itself."""

import json
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Annotated

import torch
import typer

from benchmarks import options, pages
from benchmarks.speed.measuring import machine
from benchmarks.speed.page import BENCHMARKS, Settings, result_paths, section, write_page

_NAMES = f"Any of {', '.join(BENCHMARKS)}; default: all."
_OUT = "Folder for RESULTS.md and results/."


def main(
    names: Annotated[list[str] | None, typer.Argument(help=_NAMES)] = None,
    fast: Annotated[bool, typer.Option(help="Tiny sizes; the figures are not meaningful.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help=_OUT, file_okay=False)] = Path(__file__).parent,
) -> None:
    """Measure, write results/DEVICE/NAME.csv, and write RESULTS.md again from all result files there are."""
    chosen = options.chosen(",".join(names or []), BENCHMARKS, "names")
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise typer.BadParameter(f"{device}: not a device that is here (cpu, or cuda)", param_hint="--device")
    for name in chosen:
        pages.say(f"{name} ...")
        measure(name, Settings(fast, device), out)
        pages.say(section(out, device, name))
    pages.say(f"wrote {write_page(out)}")


app = options.command(main)


def measure(name: str, settings: Settings, out: Path) -> None:
    """Run one benchmark, and write its result files."""
    start = perf_counter()
    frame = import_module(f"benchmarks.speed.{name}").measure(settings)
    facts = {"seconds": perf_counter() - start, "fast": settings.fast, **machine(settings.device)}
    rows, about = result_paths(out, settings.device, name)
    pages.save(frame, rows)
    pages.write(about, json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    app()
