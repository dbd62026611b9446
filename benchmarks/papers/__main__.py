"""The papers' experiments, from a checkout.

python -m benchmarks.papers list
python -m benchmarks.papers PAPER [FIGURE ...] [--fast] [options of the paper]
python -m benchmarks.papers --all [--fast] [--data DIR] [--processes N]

``--all`` runs every paper with all its figures, as many parts at once as there are cores, the longest first. It ends
with the seconds of every part, which verdicts on claims differ from those committed, and the time that all took.
``--data`` is the folder of the real readings ($BANDITS_TORCH_DATA says the same); without it the figures that need them
are left out. With the extra ``fast`` installed Chowdhury & Gopalan and Zhou & Shroff are compiled; then all take 53
minutes of a core.
"""

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from benchmarks.papers import _claims
from benchmarks.papers._folders import positive, results_folder

# glibc keeps what is freed: matrices of 2 MB made anew at every step cost WGP-UCB a third of its time otherwise.
_KEPT = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
# By the seconds of a core that they take. The page of a paper in parts is written at the end.
_LONGEST_FIRST = (
    *("hong cosine", "hong switching", "hong correlated", "calandriello", "ziomek", "hong drift", "zhou"),
    *("chowdhury figure3", "chowdhury sensitivity", "hong detection", "chowdhury figure4"),
    *("chowdhury figure1", "chowdhury figure2", "chowdhury robustness", "hong theory"),
)


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
        "--processes", type=positive, default=os.cpu_count(), help="papers at once; default: one a core"
    )
    asked = parser.parse_args(arguments)
    flags, environment = ["--fast"] if asked.fast else [], {"OMP_NUM_THREADS": "1", **_KEPT, **os.environ}
    if asked.data is not None:
        environment["BANDITS_TORCH_DATA"] = str(asked.data.resolve())

    def one(words: Sequence[str]) -> tuple[float, float, int]:
        """Seconds on the wall and of a core, and the exit code."""
        start = perf_counter()
        process = subprocess.Popen(_command(words, flags), env=environment, cwd=Path(__file__).parents[2])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return perf_counter() - start, usage.ru_utime + usage.ru_stime, process.returncode

    known = {job.split()[0] for job in _LONGEST_FIRST}
    jobs = [(paper,) for paper in papers() if paper not in known]
    for job in _LONGEST_FIRST:
        if job != "chowdhury figure4" or "BANDITS_TORCH_DATA" in environment:
            jobs.append((*job.split(), "--no-report") if " " in job else (job,))
    start = perf_counter()
    with ThreadPoolExecutor(asked.processes) as pool:
        taken = list(pool.map(one, jobs))
    for paper in sorted({words[0] for words in jobs if "--no-report" in words}):
        jobs.append((paper, "report"))
        taken.append(one(jobs[-1]))
    failed = []
    for words, (seconds, busy, code) in zip(jobs, taken, strict=True):
        failed += [words[0]] if code else []
        name, said = " ".join(word for word in words if word != "--no-report"), "  failed" if code else ""
        print(f"{name:22} {seconds:8.1f} s, {busy:8.1f} s of a core{said}")
    for paper in papers():
        print(f"{paper:22} {_verdicts(paper, results_folder(paper, asked.fast))}")
    busy = sum(busy for _, busy, _ in taken)
    print(f"{'together':22} {perf_counter() - start:8.1f} s, {busy:8.1f} s of a core", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(dict.fromkeys(failed))}")


def _verdicts(paper: str, folder: Path) -> str:
    """Whether the claims in a folder have the verdicts that are committed, and which have others."""
    path = f"HEAD:benchmarks/papers/results/{paper}/claims.csv"
    shown = subprocess.run(["git", "show", path], cwd=Path(__file__).parent, capture_output=True, text=True)
    if shown.returncode or not (folder / "claims.csv").is_file():
        return "no claims to compare" if shown.returncode else "wrote no claims"
    before, now = _claims.parse(shown.stdout, path), _claims.read(folder)
    changed = _claims.changes(before, now)
    if not changed:
        return f"{len(now)} claims, the verdicts committed"
    return "\n  ".join([f"{len(changed)} of {len(now)} claims without the verdict committed", *changed])


def _command(words: Sequence[str], flags: list[str]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.papers", *words, *flags]


if __name__ == "__main__":
    main(sys.argv[1:])
