"""``python -m benchmarks.leaderboard``: every recipe on every environment, with settings fixed once."""

from pathlib import Path
from typing import Annotated

import typer

from bandits_torch.experiments.engines import keys_of
from benchmarks.leaderboard import settings
from benchmarks.leaderboard.page import write_page
from benchmarks.leaderboard.running import cells, play
from benchmarks.options import chosen, command
from benchmarks.pages import near_by, say

HERE = Path(__file__).parent
_WHOLE = {"horizon": settings.HORIZON, "replicates": settings.REPLICATES, "more": settings.MORE}
_FAST = {"horizon": 30, "replicates": 3, "more": 2}


def main(
    fast: Annotated[bool, typer.Option(help="30 steps, 3 to 5 replicates: does everything run?")] = False,
    resume: Annotated[bool, typer.Option(help="Cells that have ended are not played again.")] = False,
    policies: Annotated[
        str, typer.Option(help="By commas, or semicolons where one has a comma; default: all.")
    ] = "",
    environments: Annotated[str, typer.Option(help="Comma-separated names; default: all.")] = "",
    data: Annotated[Path | None, typer.Option(help="Of the real data; default: shared/data near by.")] = None,
    out: Annotated[Path | None, typer.Option(help="For tables, page, pictures.", file_okay=False)] = None,
) -> None:
    """Race every recipe on every environment, with settings fixed once."""
    names = chosen(environments, (*settings.RANKED, *settings.WITH_PRIORS), "environments")
    players = chosen(policies, (*settings.POLICIES, *settings.PRIOR_POLICIES), "policies")
    found = data or near_by()
    for name in names if found is None else []:
        if name in settings.NEED_DATA:
            say(f"{name}: skipped, no data (give their folder with --data)")
    size = _FAST if fast else _WHOLE
    folder = out or (Path("leaderboard-fast") if fast else HERE / "results")
    kept = folder / "cells"
    todo = cells(names, players if policies else None, found, **size)
    if not resume and any((kept / key).exists() for key in keys_of(todo)):
        message = f"{kept} holds cells that have ended: --resume continues; delete the folder to start again"
        raise typer.BadParameter(message, param_hint="--resume")
    failed = 0
    for number, (cell, failure) in enumerate(play(todo, folder, kept, True), start=1):
        say(f"{number}/{len(todo)} {cell.title}: {failure.error if failure else 'done'}")
        failed += failure is not None
    say(f"wrote {', '.join(map(str, write_page(folder)))}")
    if failed:
        say(f"{failed} cells failed: the page leaves their environments out")
        raise typer.Exit(1)


app = command(main)

if __name__ == "__main__":
    app()
