"""``python -m benchmarks.parallel``: eight questions at once against one at a time, in one page.

Runs one process niced, in about 15 minutes of a core.
"""

from __future__ import annotations

import os
from typing import Annotated

import torch
import typer

from benchmarks import options, pages
from benchmarks.parallel.asking import measure
from benchmarks.parallel.page import write_page
from benchmarks.parallel.race import KINDS, SIZES, SMALL, race

PARTS = (*SIZES, "asking")


def main(
    only: Annotated[str, typer.Option(help=f"{'; '.join(PARTS)}: these parts alone.")] = "",
    fast: options.Fast = False,
    page: options.PageAlone = False,
) -> None:
    """Measure what was asked for, then write the page."""
    os.nice(10)
    torch.set_num_threads(1)
    results, sizes = pages.results_folder(__file__, fast=fast), SMALL if fast else SIZES
    parts = [] if page else options.chosen(only, PARTS, "only")
    for over in (part for part in parts if part in sizes):
        for kind in KINDS[:1] if over == "arms, long" else KINDS:
            table = race(kind, over, sizes[over], pages.say)
            pages.save(table, results / f"{over.replace(', ', '-')}-{kind}.csv")
    if "asking" in parts:
        steps, rounds, shrink = (20, 2, 50) if fast else (200, 5, 1)
        pages.save(measure(steps, rounds, pages.say, shrink), results / "asking.csv", 4)
    pages.say(f"wrote {write_page(results, sizes)}")


if __name__ == "__main__":
    options.command(main)()
