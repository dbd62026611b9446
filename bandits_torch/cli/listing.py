"""``bandits-torch list``: what problems and policies there are, and the options of one."""

from __future__ import annotations

import shutil
import textwrap

import click

from bandits_torch.cli.catalogue import catalogue
from bandits_torch.cli.output import one_line_errors
from bandits_torch.naming import did_you_mean


@click.command("list", short_help="What there is, and its options.")
@click.argument("name", required=False)
def list_names(name: str | None) -> None:
    """Name problems and policies, a line each, or describe NAME, one of them, with its options."""
    if name is not None:
        with one_line_errors():
            _describe(name)
        return
    for kind, entries in (("problem", catalogue().problems), ("policy", catalogue().policies)):
        _print_table((kind, "what it is"), [(key, entry.line) for key, entry in entries.items()])
        click.echo()


def _describe(name: str) -> None:
    """Print the docstring of a problem or policy, and what ``--option`` sets of it, with defaults."""
    known = catalogue().problems | catalogue().policies
    if name not in known:
        raise ValueError(
            f"name must be one of those that `bandits-torch list` shows, got {name!r}"
            f"{did_you_mean(name, known)}"
        )
    click.echo(f"{known[name].about}\n")
    options = known[name].options.items()
    rows = [(key, "must be given" if default is None else default) for key, default in options]
    _print_table(("option", "default"), rows)


def _print_table(head: tuple[str, str], rows: list[tuple[str, str]]) -> None:
    """Two columns, as wide as the terminal; plain, as rich's tables take longer to import than all the rest."""
    first = max(len(key) for key, _ in (head, *rows)) + 2
    room = max(20, shutil.get_terminal_size().columns - first)
    for key, text in (head, *rows):
        for i, line in enumerate(textwrap.wrap(text, room) or [""]):
            click.echo(f"{key if i == 0 else '':{first}}{line}".rstrip())
