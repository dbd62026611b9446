"""``python -m benchmarks.elsewhere``: races on problems that others wrote.

Needs ``pip install gmpb deap river gymnasium mabwiser bayesianbandits``; ``--page`` needs none of them. What is played
goes to results/PROBLEM-SEED.csv (peaks), results/PROBLEM.csv (bandits) and results/fresh-PROBLEM.csv (the final
environments of PROTOCOL.md) at once, and what is there is not played again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks import options, pages
from benchmarks.elsewhere.page import write_page

REPLICATES = 3
PARTS = ("bandits", "peaks", "fresh", "ten")


def main(
    only: Annotated[str, typer.Option(help=f"{', '.join(PARTS)}: these parts alone.")] = "",
    problems: Annotated[str, typer.Option(help="Comma-separated; default: all.")] = "",
    seeds: Annotated[str, typer.Option(help="Comma-separated, of the peaks.")] = "0,1,2",
    page: options.PageAlone = False,
) -> None:
    """Play what was asked for, then write the page."""
    torch.set_num_threads(1)
    results, wanted = pages.results_folder(__file__), set(filter(None, problems.split(",")))
    parts = [] if page else options.chosen(only, PARTS, "only")

    def keep(name: str, path: Path, play: Callable[[], pd.DataFrame]) -> None:
        if (not wanted or name in wanted) and not path.exists():
            pages.save(play(), path)

    if "bandits" in parts or "fresh" in parts:
        from benchmarks.elsewhere import bandits

        for name in bandits.ENVIRONMENTS:
            if "bandits" in parts:
                keep(name, results / f"{name}.csv", partial(bandits.race, name, REPLICATES, pages.say))
            if "fresh" in parts:
                keep(name, results / f"fresh-{name}.csv", partial(bandits.race_fresh, name, pages.say))
    if "peaks" in parts:
        from benchmarks.elsewhere import moving_peaks

        for seed in map(int, seeds.split(",")):
            for name in moving_peaks.PROBLEMS:
                play = partial(moving_peaks.race, name, seed, pages.say)
                keep(name, results / f"{name}-{seed}.csv", play)
    if "ten" in parts:
        from benchmarks.elsewhere import moving_peaks

        for name in moving_peaks.TEN_PROBLEMS:
            path = results / f"ten-{name}.csv"
            if wanted and name not in wanted:
                continue
            kept = pages.played(path, ("policy", "replicate"))
            for seed in range(moving_peaks.TEN_SEEDS):
                for optimiser in moving_peaks.TEN:
                    if (optimiser, seed) not in kept:  # each is kept as it is played
                        rows = moving_peaks.play_ten(name, optimiser, seed, pages.say)
                        pages.keep(path, rows, ("problem", "policy", "replicate", "environment"))
    pages.say(f"wrote {write_page(results)}")


if __name__ == "__main__":
    options.command(main)()
