"""What the command line knows of problems and policies before it imports them, which takes seconds.

``catalogue.json`` holds what the registrations say. ``python -m bandits_torch.cli.catalogue`` writes it, and a test
compares it with them. It is kept with the sources, and not made when the package is built, since the registrations can
be read only where torch can be imported: not where ``pip`` builds.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("catalogue.json")
NOT_OPTIONS = {"replicates", "first_replicate", "horizon", "seed"}  # set by flags, or never


@dataclass(frozen=True)
class Entry:
    """A problem or a policy: its docstring, and what ``--option`` sets of it with defaults as Python writes them.

    ``needs_data``: whether it is a problem that replays a file. A default of None: the option must be given.
    """

    about: str
    options: dict[str, str | None]
    needs_data: bool = False


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


def registered() -> str:
    """What ``catalogue.json`` must hold: what the registrations say, all of them imported."""
    from bandits_torch import problems, recipes
    from bandits_torch.experiments.engines import ENGINES

    def options(defaults: Mapping[str, Any]) -> dict[str, str | None]:
        empty = inspect.Parameter.empty
        return {
            key: None if value is empty else repr(value)
            for key, value in defaults.items()
            if key not in NOT_OPTIONS
        }

    def about_policy(name: str) -> str:
        known = ", ".join(recipes.registered(name).uses) or "nothing"
        return f"{inspect.getdoc(recipes.RECIPES[name]) or ''}\n\nUses of the problem: {known}."

    found = Catalogue(
        {
            name: Entry(
                inspect.getdoc(problem) or "", options(problems.options_of(name)), problems.needs_data(name)
            )
            for name, problem in problems.PROBLEMS.items()
        },
        {name: Entry(about_policy(name), options(recipes.options_of(name))) for name in recipes.RECIPES},
        list(ENGINES),
    )
    return json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(registered(), encoding="utf-8")
