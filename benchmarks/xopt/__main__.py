"""``python -m benchmarks.xopt``: Xopt with our models and with its own, on a beam line in Cheetah that drifts."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks import options, pages
from benchmarks.xopt.page import OURS, write_page


@options.with_page(write_page)
def main(
    folder: Path,
    shots: Annotated[int, typer.Option(help="Of ours.")] = 2_000,
    rival_shots: Annotated[int, typer.Option(help="Of the others.")] = 200,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 5,
    first: Annotated[int, typer.Option(help="The first seed.")] = 10,
    only: Annotated[str, typer.Option(help="Players, by ';', that play; default: all.")] = "",
) -> None:
    """Play what the table does not hold yet, seed by seed."""
    from benchmarks.xopt.lattice import DriftingLattice
    from benchmarks.xopt.playing import PLAYERS, play

    torch.set_num_threads(1)
    path = folder / "shots.csv"
    players, kept = options.chosen(only, PLAYERS, "only"), pages.played(path, ("player", "seed"))
    for seed in range(first, first + seeds):
        least = None
        for name in players:
            if (name, seed) in kept:
                continue
            length = shots if name == OURS else rival_shots
            if least is None or len(least) < length:
                least = DriftingLattice(seed).least(length)
            run = play(PLAYERS[name], length, seed)
            run["error"] = run.pop("value") - least[: len(run)].numpy()
            run.insert(0, "seed", seed)
            run.insert(0, "player", name)
            pages.append(path, run, 4)
            pages.say(f"{name}, seed {seed}: error {run['error'].mean():.3f}")


if __name__ == "__main__":
    options.command(main)()
