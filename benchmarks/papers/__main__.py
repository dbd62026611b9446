"""``python -m benchmarks.papers <paper> ...``: runs ``main`` of the module of that name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def papers() -> list[str]:
    """Modules beside this one that reproduce a paper: those without a leading underscore."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def main(arguments: list[str]) -> None:
    """Hand the arguments after the paper's name to it."""
    if not arguments or arguments[0] not in papers():
        raise SystemExit(f"usage: python -m benchmarks.papers {{{','.join(papers())}}} ...")
    importlib.import_module(f"benchmarks.papers.{arguments[0]}").main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
