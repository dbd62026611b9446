"""``bandits-torch list``: what problems and policies there are, and the options of one."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bandits_torch import problems, recipes
from bandits_torch.cli_options import settable
from bandits_torch.cli_output import one_line_errors


def list_names(
    name: Annotated[str | None, typer.Argument(help="A problem or policy, to read all about it.")] = None,
) -> None:
    """Name problems and policies, or describe one of them."""
    if name is not None:
        with one_line_errors():
            _describe(name)
        return
    described = {
        "problem": problems.describe(),
        "policy": {name: recipes.registered(name).summary for name in recipes.RECIPES},
    }
    for kind, lines in described.items():
        table = _table(kind, "what it is")
        for key, line in lines.items():
            table.add_row(key, line)
        Console().print(table, "")


def _describe(name: str) -> None:
    """Print the docstring of a problem or policy, and what ``--option`` sets of it, with defaults."""
    if name not in problems.PROBLEMS and name not in recipes.RECIPES:
        raise ValueError(f"name must be one of those that `bandits-torch list` shows, got {name!r}")
    if name in problems.PROBLEMS:
        about, options = inspect.getdoc(problems.PROBLEMS[name]), problems.options_of(name)
    else:
        about, options = inspect.getdoc(recipes.RECIPES[name]), recipes.options_of(name)
        about = f"{about}\n\nTold of the problem: {', '.join(recipes.registered(name).told) or 'nothing'}."
    table = _table("option", "default")
    for key in settable(options):
        table.add_row(key, "must be given" if options[key] is inspect.Parameter.empty else repr(options[key]))
    typer.echo(f"{about}\n")
    Console().print(table)


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    return table
