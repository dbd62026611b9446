"""``python -m benchmarks.auto``: play environments of the protocol, and write the page."""

from __future__ import annotations

from itertools import product
from typing import Annotated

import typer

from bandits_torch.experiments.engines import Block
from benchmarks import options, pages
from benchmarks.auto.page import write_page
from benchmarks.auto.playing import ENVIRONMENTS, KEY, PLAYERS, POLICIES, play
from benchmarks.leaderboard import settings


def main(
    environments: Annotated[str, typer.Option(help="Comma-separated; default: the leaderboard's.")] = "",
    policies: Annotated[str, typer.Option(help="Separated by semicolons; default: both of auto's.")] = "",
    seed: Annotated[int, typer.Option(help="Of everything random; not that of the leaderboard.")] = 1_000,
    replicates: Annotated[int, typer.Option(help="Side by side.")] = settings.REPLICATES,
    horizon: Annotated[int, typer.Option(help="Steps.")] = settings.HORIZON,
    data: options.Data = options.DATA,
    out: options.Out = None,
    one_by_one: Annotated[bool, typer.Option(help="A table of its own for each replicate (firm).")] = False,
    page: options.PageAlone = False,
) -> None:
    """Play, and write what came of it. The leaderboard's own runs are those of ``benchmarks.leaderboard``."""
    folder = pages.results_folder(__file__, out)
    wanted = options.chosen(environments or ",".join(settings.RANKED), ENVIRONMENTS, "environments")
    players = options.chosen(policies or ";".join(POLICIES), PLAYERS, "policies")
    for environment, policy in [] if page else product(wanted, players):
        for first in range(replicates) if one_by_one else (0,):
            block = Block(1 if one_by_one else replicates, horizon, first, seed)
            rows = play(environment, policy, block, data)
            pages.keep(folder / "totals.csv", rows, KEY)
        pages.say(f"{environment}, {policy}: {rows['regret'].mean():.1f}")
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()
