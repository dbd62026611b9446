"""``python -m benchmarks.contexts``: all races and their page, in about an hour and a half of a core.

The race of ``coba`` is left out, and the page says so, where that package is not installed
(``pip install --no-deps coba``).
"""

from __future__ import annotations

from itertools import product
from typing import Annotated

import torch
import typer

from benchmarks import options, pages
from benchmarks.contexts import auto, dense, linear
from benchmarks.contexts.page import write_page

SIZE, SMALL = dense.Size(2000, 5, every=40), dense.Size(40, 2)
PARTS = (*dense.PROBLEMS, "coba", "auto", "auto-coba")


def main(
    only: Annotated[str, typer.Option(help=f"{', '.join(PARTS)}: these parts alone.")] = "",
    seed: Annotated[int | None, typer.Option(help="That seed alone; not of coba.")] = None,
    fast: options.Fast = False,
    page: options.PageAlone = False,
) -> None:
    """Measure what was asked for, then write the page."""
    torch.set_num_threads(1)
    results, size = pages.results_folder(__file__, fast=fast), SMALL if fast else SIZE
    parts = [] if page else options.chosen(only, PARTS, "only")
    seeds = range(size.seeds) if seed is None else range(seed, seed + 1)
    for kind in (part for part in parts if part in dense.PROBLEMS):
        for one in seeds:
            table = dense.race(kind, size, pages.say, range(one, one + 1))
            pages.save(table, results / f"dense-{kind}-{one}.csv", 5)
    if "coba" in parts and linear.has_coba():
        pages.save(linear.race(*((30, 2) if fast else (1000, 5)), pages.say), results / "coba.csv", 5)
    if "auto-coba" in parts and linear.has_coba():
        racing = (linear.AUTO, *linear.LINEAR)
        table = linear.race(*((30, 2) if fast else (250, 5)), pages.say, racing)
        pages.save(table, results / "auto-coba.csv", 5)
    for kind, one in product(dense.PROBLEMS, seeds if "auto" in parts else ()):
        table = auto.race(kind, one, *((40, 20) if fast else (1000, 300)), pages.say)
        pages.save(table, results / f"auto-{kind}-{one}.csv", 5)
    if {"coba", "auto-coba"} & set(parts) and not linear.has_coba():
        pages.say("left out: coba is not installed (pip install --no-deps coba)")
    pages.say(f"wrote {write_page(results)}")


if __name__ == "__main__":
    options.command(main)()
