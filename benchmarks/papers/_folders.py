"""Where the papers' data come from and their results go."""

from __future__ import annotations

import os
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


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
