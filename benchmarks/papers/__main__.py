"""The papers' experiments, from a checkout.

python -m benchmarks.papers list
python -m benchmarks.papers PAPER [FIGURE ...] [--fast] [options of the paper]
python -m benchmarks.papers --all [--fast] [--data DIR] [--processes N]

``--all`` runs every paper with all its figures, one on each core and the longest in two halves, and ends with the time
each took. ``--data`` is the folder of the real readings ($BANDITS_TORCH_DATA says the same); without it the figures
that need them are left out. With the extra ``fast`` installed Chowdhury & Gopalan and Zhou & Shroff are compiled.
Step by step all took 103 minutes of a core (chowdhury 46, hong 36, calandriello 9, ziomek 8, zhou 5), 1 h 38 min on two
that other work shared. Compiled it is some 60 minutes of a core, reckoned from the seconds of single steps; the whole
has not been timed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

_HALVES = {
    "hong": (("switching", "correlated", "detection"), ("cosine", "drift", "theory"))
}  # of the longest


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

    def one(words: Sequence[str]) -> tuple[float, float, int]:
        """Seconds on the wall and of a core, and the exit code."""
        start = perf_counter()
        process = subprocess.Popen(_command(words, flags), env=environment, cwd=Path(__file__).parents[2])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return perf_counter() - start, usage.ru_utime + usage.ru_stime, process.returncode

    start = perf_counter()
    with ThreadPoolExecutor(asked.processes) as pool:
        halves = [(paper, *parts, "--no-report") for paper, both in _HALVES.items() for parts in both]
        jobs = halves + [(paper,) for paper in papers() if paper not in _HALVES]
        taken = list(pool.map(one, jobs))
    for paper in _HALVES:
        jobs.append((paper, "report"))
        taken.append(one(jobs[-1]))
    failed = []
    for paper in papers():
        own = [end for words, end in zip(jobs, taken, strict=True) if words[0] == paper]
        seconds, busy, codes = zip(*own, strict=True)
        failed += [paper] if any(codes) else []
        said = "  failed" if any(codes) else ""
        print(f"{paper:14} {sum(seconds):8.1f} s, {sum(busy):8.1f} s of a core{said}")
    print(f"{'together':14} {perf_counter() - start:8.1f} s", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _command(words: Sequence[str], flags: list[str]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.papers", *words, *flags]


if __name__ == "__main__":
    main(sys.argv[1:])
