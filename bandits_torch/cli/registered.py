"""Writes ``catalogue.json`` from the registrations: ``python -m bandits_torch.cli.registered``."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict

from bandits_torch import problems, recipes
from bandits_torch.cli.catalogue import FILE, Catalogue, Entry
from bandits_torch.cli.options import settable
from bandits_torch.experiments.engines import ENGINES


def registered() -> Catalogue:
    """What the registrations say, all of them imported."""

    def entry(about: str, options: dict[str, object], needs_data: bool = False) -> Entry:
        empty = inspect.Parameter.empty
        written = {key: None if value is empty else repr(value) for key, value in options.items()}
        return Entry(about, {k: written[k] for k in settable(written)}, needs_data)

    def about_policy(name: str) -> str:
        uses = ", ".join(recipes.registered(name).uses) or "nothing"
        return f"{inspect.getdoc(recipes.RECIPES[name]) or ''}\n\nUses of the problem: {uses}."

    return Catalogue(
        {
            name: entry(inspect.getdoc(problem) or "", problems.options_of(name), problems.needs_data(name))
            for name, problem in problems.PROBLEMS.items()
        },
        {name: entry(about_policy(name), recipes.options_of(name)) for name in recipes.RECIPES},
        list(ENGINES),
    )


def text() -> str:
    """What ``catalogue.json`` must hold."""
    return json.dumps(asdict(registered()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
