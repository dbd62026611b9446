"""The papers' experiments, from a checkout.

python -m benchmarks.papers list
python -m benchmarks.papers PAPER [FIGURE ...] [--fast] [options of the paper]
python -m benchmarks.papers --all [--fast] [--data DIR] [--processes N]

``--all`` runs every paper with all its figures, one on each core, and ends with the time each took. ``--data`` is the
folder of the real readings ($BANDITS_TORCH_DATA says the same); without it the figures that need them are left out. On
two cores, which other work shared, all took 1 h 38 min (103 minutes of a core: chowdhury 46, hong 36, calandriello 9,
ziomek 8, zhou 5).
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

_LONGEST = ("chowdhury", "hong")


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers --all")
    parser.add_argument("--fast", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--data", type=Path, help="folder of the real readings")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="papers at once; default: one a core"
    )
    asked = parser.parse_args(arguments)
    if asked.processes < 1:
        parser.error(f"--processes must be at least 1, got {asked.processes}")
    flags, environment = ["--fast"] if asked.fast else [], {"OMP_NUM_THREADS": "1", **os.environ}
    if asked.data is not None:
        environment["BANDITS_TORCH_DATA"] = str(asked.data.resolve())

    def one(paper: str) -> tuple[float, float, int]:
        """Seconds on the wall and of a core, and the exit code."""
        start = perf_counter()
        process = subprocess.Popen(_command(paper, flags), env=environment, cwd=Path(__file__).parents[2])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return perf_counter() - start, usage.ru_utime + usage.ru_stime, process.returncode

    start = perf_counter()
    with ThreadPoolExecutor(asked.processes) as pool:
        order = sorted(papers(), key=lambda paper: paper not in _LONGEST)  # so that none is left to run alone
        ends = dict(zip(order, pool.map(one, order), strict=True))
    for paper, (seconds, busy, code) in ends.items():
        print(f"{paper:14} {seconds:8.1f} s, {busy:8.1f} s of a core{'  failed' if code else ''}")
    print(f"{'together':14} {perf_counter() - start:8.1f} s", flush=True)
    failed = [paper for paper, (_, _, code) in ends.items() if code]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _command(paper: str, flags: list[str]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.papers", paper, *flags]


if __name__ == "__main__":
    main(sys.argv[1:])
