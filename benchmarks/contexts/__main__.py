"""``python -m benchmarks.contexts``: both races and their page, in about an hour of a core.

The race of ``coba`` is left out, and the page says so, where that package is not installed
(``pip install --no-deps coba``).
"""

from __future__ import annotations

from typing import Annotated

import torch
import typer

from benchmarks import options, pages
from benchmarks.contexts import dense, linear
from benchmarks.contexts.page import write_page

SIZE, SMALL = dense.Size(2000, 5, every=40), dense.Size(40, 2)
PARTS = (*dense.PROBLEMS, "coba")


def main(
    only: Annotated[str, typer.Option(help=f"{', '.join(PARTS)}: these parts alone.")] = "",
    seed: Annotated[int | None, typer.Option(help="That seed alone, of the first two parts.")] = None,
    fast: options.Fast = False,
    page: options.PageAlone = False,
) -> None:
    """Measure what was asked for, then write the page."""
    torch.set_num_threads(1)
    results, size = pages.results_folder(__file__, fast=fast), SMALL if fast else SIZE
    parts = [] if page else options.chosen(only, PARTS, "only")
    for kind in (part for part in parts if part != "coba"):
        for one in range(size.seeds) if seed is None else [seed]:
            table = dense.race(kind, size, pages.say, range(one, one + 1))
            pages.save(table, results / f"dense-{kind}-{one}.csv", 5)
    if "coba" in parts and linear.has_coba():
        pages.save(linear.race(*((30, 2) if fast else (1000, 5)), pages.say), results / "coba.csv", 5)
    elif "coba" in parts:
        pages.say("left out: coba is not installed (pip install --no-deps coba)")
    pages.say(f"wrote {write_page(results)}")


if __name__ == "__main__":
    options.command(main)()
