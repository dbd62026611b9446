"""What the command of each paper takes, where its data come from and its results go."""

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.pages import say

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Job:
    """What a part is run with: where results go, whether in small, where the data are, and all that was asked."""

    out: Path
    fast: bool
    data: Path | None
    asked: argparse.Namespace


def run(
    paper: str,
    about: str,
    arguments: Sequence[str],
    parts: Mapping[str, Callable[[Job], None]],
    report: Callable[[Job], None],
    *,
    fast: str,
    default: Collection[str] = (),
    need: Collection[str] = (),
    file: str = "",
    more: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> None:
    """A paper's command: run the parts asked for, by default those of ``default``, then write the page. Those of
    ``need`` are left out where there is no folder with ``file``; ``more``: arguments besides."""
    known, default = {**parts, "report": lambda job: None}, default or tuple(parts)
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.papers {paper}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(known)}; default: {', '.join(default)}")
    parser.add_argument("--fast", action="store_true", help=fast)
    parser.add_argument("--out", type=Path, help=f"default: results/{paper}, or results/fast/{paper}")
    parser.add_argument("--no-report", action="store_true", help="while other parts are played beside")
    if file:
        parser.add_argument("--data", type=Path, help=f"folder of {file}; default: $BANDITS_TORCH_DATA")
    for name, how in more.items():
        parser.add_argument(name, **how)
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.parts) - set(known)):
        parser.error(f"parts must be among {', '.join(known)}, got {', '.join(unknown)}")
    data = data_folder(asked.data, file) if file else None
    lacking = [part for part in need if data is None]
    if needed := sorted(set(asked.parts) & set(lacking)):
        parser.error(f"{', '.join(needed)}: --data or $BANDITS_TORCH_DATA is needed")
    job = Job(results_folder(paper, asked.fast, asked.out), asked.fast, data, asked)
    for part in asked.parts or default:
        if part in lacking:
            say(f"{part} left out: no --data")
        else:
            known[part](job)
    if not asked.no_report:
        report(job)


def positive(text: str) -> int:
    """An argument that is a number of things."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def results_folder(paper: str, fast: bool, given: Path | None = None) -> Path:
    """The folder ``given``, or results/PAPER beside this file; fast forms go to results/fast/PAPER, which git ignores,
    so that they never overwrite results. It is made if need be."""
    folder = given or (RESULTS / "fast" / paper if fast else RESULTS / paper)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def data_folder(given: Path | None, file: str) -> Path | None:
    """The folder ``given`` or that of $BANDITS_TORCH_DATA, if it has the file; ValueError if a given one has not."""
    folder = given or (Path(os.environ["BANDITS_TORCH_DATA"]) if "BANDITS_TORCH_DATA" in os.environ else None)
    if folder is None or (folder / file).is_file():
        return folder
    if given is not None:
        raise ValueError(f"data must be a folder with {file} in it, got {str(given)!r}")
    return None
