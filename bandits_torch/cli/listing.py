"""``bandits-torch list``: what problems and policies there are, and the options of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bandits_torch.cli.catalogue import catalogue
from bandits_torch.cli.options import did_you_mean
from bandits_torch.cli.output import one_line_errors

if TYPE_CHECKING:
    from rich.table import Table


def list_names(
    name: Annotated[str | None, typer.Argument(help="A problem or policy, to read all about it.")] = None,
) -> None:
    """Name problems and policies, a line each, or describe one of them with its options."""
    if name is not None:
        with one_line_errors():
            _describe(name)
        return
    from rich.console import Console

    for kind, entries in (("problem", catalogue().problems), ("policy", catalogue().policies)):
        table = _table(kind, "what it is")
        for key, entry in entries.items():
            table.add_row(key, entry.line)
        Console().print(table, "")


def _describe(name: str) -> None:
    """Print the docstring of a problem or policy, and what ``--option`` sets of it, with defaults."""
    from rich.console import Console

    known = catalogue().problems | catalogue().policies
    if name not in known:
        raise ValueError(
            f"name must be one of those that `bandits-torch list` shows, got {name!r}"
            f"{did_you_mean(name, known)}"
        )
    table = _table("option", "default")
    for key, default in known[name].options.items():
        table.add_row(key, "must be given" if default is None else default)
    typer.echo(f"{known[name].about}\n")
    Console().print(table)


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(*columns, box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    return table
