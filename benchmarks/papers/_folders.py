"""What the command of each paper takes, where its data come from and its results go."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


class PaperParser(argparse.ArgumentParser):
    """Takes parts, ``--fast`` and ``--out``; ``about``: of the program, ``parts`` and ``fast``: what they are."""

    def __init__(self, paper: str, about: str, parts: str, fast: str) -> None:
        super().__init__(
            prog=f"python -m benchmarks.papers {paper}",
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_argument("parts", nargs="*", help=parts)
        self.add_argument("--fast", action="store_true", help=fast)
        self.add_argument("--out", type=Path, help=f"default: results/{paper}, or results/fast/{paper}")

    def asked(self, arguments: Sequence[str], known: Collection[str]) -> argparse.Namespace:
        """The arguments, parts among those known; else the program ends with the usage."""
        found = self.parse_args(arguments)
        unknown = sorted(set(found.parts) - set(known))
        if unknown:
            self.error(f"parts must be among {', '.join(known)}, got {', '.join(unknown)}")
        return found


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
