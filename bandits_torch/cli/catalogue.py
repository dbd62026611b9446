"""Problems and policies as the command line knows them without importing them, which takes seconds.

``catalogue.json`` is a copy of the registrations. ``python -m bandits_torch.cli.catalogue`` writes it, and a test
compares the two. It is kept with the sources, because reading the registrations needs torch, which is missing when
``pip`` builds the package.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bandits_torch.naming import installed

FILE = Path(__file__).with_name("catalogue.json")
NOT_OPTIONS = {"replicates", "first_replicate", "horizon", "seed"}  # set by flags, or never


@dataclass(frozen=True)
class Entry:
    """A problem or a policy: its docstring, and its options with the ``repr`` of their defaults.

    A default of None: the option must be given. ``needs_data``: whether it is a problem that replays a file.
    """

    about: str
    options: dict[str, str | None]
    needs_data: bool = False


class Names(Mapping[str, Entry]):
    """Entries by name: those of the package, and those of plug-ins, which are imported when they are looked up.

    A name ``module:name`` can also be looked up, but is not listed.
    """

    def __init__(self, entries: dict[str, Entry], kind: str) -> None:
        self._entries, self._kind = entries, kind

    def __getitem__(self, name: str) -> Entry:
        if name not in self:
            raise KeyError(name)
        return self._entries.get(name) or _entry(self._kind, name)

    def __contains__(self, name: object) -> bool:
        if name in self._entries:
            return True
        return isinstance(name, str) and (":" in name or name in installed(self._kind))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._entries, *installed(self._kind)]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class Catalogue:
    """Problems and policies by name, in order of registration; and the engines of a sweep."""

    problems: Mapping[str, Entry]
    policies: Mapping[str, Entry]
    engines: list[str]


@cache
def catalogue() -> Catalogue:
    """The contents of ``catalogue.json``, and plug-ins."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    problems, policies = (
        {name: Entry(**values) for name, values in stored[kind].items()} for kind in ("problems", "policies")
    )
    return Catalogue(Names(problems, "problems"), Names(policies, "recipes"), stored["engines"])


def _entry(kind: str, name: str) -> Entry:
    from bandits_torch import problems, recipes

    def options(defaults: Mapping[str, Any]) -> dict[str, str | None]:
        empty = inspect.Parameter.empty
        return {
            key: None if value is empty else repr(value)
            for key, value in defaults.items()
            if key not in NOT_OPTIONS
        }

    if kind == "problems":
        problem = problems.registered(name)
        return Entry(inspect.getdoc(problem.factory) or "", options(problem.options), problem.needs_data)
    policy = recipes.registered(name)
    known = ", ".join(policy.uses) or "nothing"
    return Entry(
        f"{inspect.getdoc(policy.call) or ''}\n\nUses of the problem: {known}.", options(policy.options)
    )


def registered() -> str:
    """The text of ``catalogue.json``, from all registrations, which are imported."""
    from bandits_torch import problems, recipes
    from bandits_torch.experiments.engines import ENGINES

    found = {
        "problems": {name: asdict(_entry("problems", name)) for name in problems.PROBLEMS},
        "policies": {name: asdict(_entry("recipes", name)) for name in recipes.RECIPES},
        "engines": list(ENGINES),
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(registered(), encoding="utf-8")
