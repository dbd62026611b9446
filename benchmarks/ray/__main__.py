"""``python -m benchmarks.ray``: schedulers of Ray Tune, ours among them, raced on populations that train. Needs ``pip
install ".[ray]" scikit-learn``, and ``gymnasium`` for ``cartpole``; ``--page`` needs none of them."""

import gc
import logging
import warnings
from itertools import chain, product
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks import options, pages
from benchmarks.ray.page import SCHEDULERS, write_page


@options.with_page(write_page)
def main(
    results: Path,
    only: Annotated[str, typer.Option(help=f"{', '.join(SCHEDULERS)}: these tasks alone.")] = "",
    schedulers: Annotated[str, typer.Option(help="Separated by semicolons; default: all.")] = "",
    seeds: Annotated[str, typer.Option(help="FIRST:LAST, without the last.")] = "0:40",
) -> None:
    """Play what is asked for, seed by seed."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    first, last = map(int, seeds.split(":"))
    raced = options.chosen(schedulers, chain(*SCHEDULERS.values()), "schedulers")
    for name in options.chosen(only, SCHEDULERS, "only"):
        wanted = [one for one in SCHEDULERS[name] if one in raced]
        _play(name, wanted, range(first, last), results / f"{name}.csv")
    if not any(results.glob("*.csv")):
        raise typer.Exit  # no page yet


def _play(name: str, schedulers: list[str], seeds: range, path: Path) -> None:
    from benchmarks.ray.race import play

    gc.freeze()  # going through all that was imported takes longer than a decision, and would be counted as one's
    done = pages.played(path, ("scheduler", "seed"))
    for seed, scheduler in product(seeds, schedulers):
        if (scheduler, seed) not in done:
            row = {"scheduler": scheduler, "seed": seed, **play(name, scheduler, seed)}
            pages.append(path, pd.DataFrame([row]))
            pages.say(f"{name} {row}")


if __name__ == "__main__":
    options.command(main)()
