"""The papers' experiments, from a checkout.

python -m benchmarks.papers list
python -m benchmarks.papers PAPER [FIGURE ...] [--fast] [options of the paper]
python -m benchmarks.papers --all [--fast] [--data DIR]

``--all`` runs every paper with all its figures, one after another, and ends with the time each took. ``--data`` is the
folder of the real readings ($BANDITS_TORCH_DATA says the same); without it the figures that need them are left out.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from time import perf_counter


def papers() -> list[str]:
    """Modules beside this one that reproduce a paper: those without a leading underscore."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def main(arguments: list[str]) -> None:
    """Hand the arguments after the paper's name to it, or run all papers."""
    first = arguments[0] if arguments else ""
    if first == "list":
        for paper in papers():
            document = importlib.import_module(f"benchmarks.papers.{paper}").__doc__ or ""
            print(f"{paper:14} {document.splitlines()[0]}")
    elif first in papers():
        importlib.import_module(f"benchmarks.papers.{first}").main(arguments[1:])
    elif "--all" in arguments:
        run_all([argument for argument in arguments if argument != "--all"])
    else:
        raise SystemExit(f"usage: python -m benchmarks.papers {{{','.join(papers())},list,--all}} ...")


def run_all(arguments: list[str]) -> None:
    """Run every paper; one that fails does not stop the others, and the command fails at the end."""
    fast = "--fast" in arguments
    given = [argument for argument in arguments if argument != "--fast"]
    if given[:1] == ["--data"] and len(given) == 2:
        os.environ["BANDITS_TORCH_DATA"] = given[1]
    elif given:
        raise SystemExit(f"--all takes --fast and --data DIR, got {' '.join(given)}")
    times, failed = {}, []
    for paper in papers():
        print(f"== {paper}", flush=True)
        start = perf_counter()
        try:
            importlib.import_module(f"benchmarks.papers.{paper}").main(["--fast"] if fast else [])
        except (Exception, SystemExit):
            traceback.print_exc()
            failed.append(paper)
        times[paper] = perf_counter() - start
    for paper, seconds in times.items():
        print(f"{paper:14} {seconds:8.1f} s{'  failed' if paper in failed else ''}")
    print(f"{'together':14} {sum(times.values()):8.1f} s", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
