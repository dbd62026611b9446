"""What the command line knows of problems and policies before it imports them, which takes seconds.

``catalogue.json`` holds what the registrations say. It is written by ``python -m bandits_torch.cli.registered``, and a
test compares it with them: nothing in it is written by hand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("catalogue.json")


@dataclass(frozen=True)
class Entry:
    """A problem or a policy: its docstring, and what ``--option`` sets of it with defaults as Python writes them.

    ``needs_data``: whether it is a problem that replays a file. A default of None: the option must be given.
    """

    about: str
    options: dict[str, str | None]
    needs_data: bool = False

    @property
    def line(self) -> str:
        """The first line of the docstring."""
        return self.about.partition("\n")[0]


@dataclass(frozen=True)
class Catalogue:
    """Problems and policies by name, in the order of their registrations; and the engines of a sweep."""

    problems: dict[str, Entry]
    policies: dict[str, Entry]
    engines: list[str]


@cache
def catalogue() -> Catalogue:
    """What ``catalogue.json`` holds."""
    held = json.loads(FILE.read_text(encoding="utf-8"))
    problems, policies = (
        {name: Entry(**values) for name, values in held[kind].items()} for kind in ("problems", "policies")
    )
    return Catalogue(problems, policies, held["engines"])
