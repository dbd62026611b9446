"""``python -m benchmarks.auto``: play environments of the protocol, and write the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bandits_torch.experiments.cells import Block
from benchmarks.auto.page import write_page
from benchmarks.auto.playing import KEY, POLICIES, play
from benchmarks.leaderboard import settings
from benchmarks.tables import keep

HERE = Path(__file__).parent
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    environments: Annotated[str, typer.Option(help="Comma-separated; default: the leaderboard's.")] = "",
    policies: Annotated[str, typer.Option(help="Separated by semicolons; default: both of auto's.")] = "",
    seed: Annotated[int, typer.Option(help="Of everything random; not that of the leaderboard.")] = 1_000,
    replicates: Annotated[int, typer.Option(help="Side by side.")] = settings.REPLICATES,
    horizon: Annotated[int, typer.Option(help="Steps.")] = settings.HORIZON,
    data: Annotated[Path, typer.Option(help="Folder of the real data.")] = Path("shared/data"),
    out: Annotated[Path, typer.Option(help="Folder of tables and page.")] = HERE / "results",
    one_by_one: Annotated[bool, typer.Option(help="A table of its own for each replicate (firm).")] = False,
    page: Annotated[bool, typer.Option(help="Write the page from the table alone.")] = False,
) -> None:
    """Play, and write what came of it. The leaderboard's own runs are those of ``benchmarks.leaderboard``."""
    names = [name for name in (environments or ",".join(settings.RANKED)).split(",") if not page]
    for environment in names:
        for policy in policies.split(";") if policies else POLICIES:
            firsts = range(replicates) if one_by_one else (0,)
            for first in firsts:
                block = Block(1 if one_by_one else replicates, horizon, first, seed)
                rows = play(environment, policy, block, data)
                keep(out / "totals.csv", rows, KEY)
            print(f"{environment}, {policy}: {rows['regret'].mean():.1f}", flush=True)
    write_page(out)


if __name__ == "__main__":
    app()
