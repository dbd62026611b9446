"""The commands of the command line, in one place."""

from __future__ import annotations

from typing import Annotated

import typer

from bandits_torch._version import __version__
from bandits_torch.cli.listing import list_names
from bandits_torch.cli.race import race, rerun
from bandits_torch.cli.sweep import sweep

app = typer.Typer(
    help="Race algorithms that look for the best of many arms while the rewards change with time (bandit "
    "algorithms with Gaussian-process models). To begin with, `bandits-torch race`: eight algorithms on a "
    "function that is replaced at step 300 of 1000, in some seconds. Then `bandits-torch list` for the algorithms "
    "(policies) and problems there are, and `bandits-torch race --data my.csv` for rewards of your own, a row a "
    "step and a column an arm.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"bandits_torch {__version__}")
        raise typer.Exit


app.command(short_help="Algorithms on a problem: a table, a picture.")(race)
app.command("list", short_help="What there is, and its options.")(list_names)
app.command(short_help="A race again, from its run.json.")(rerun)
app.command(short_help="Algorithms on several problems, resumable.")(sweep)


def main() -> None:
    """Run the command line."""
    app(prog_name="bandits-torch")
