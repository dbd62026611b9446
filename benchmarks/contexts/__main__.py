"""``python -m benchmarks.contexts [--fast] [--page]``: both races and their page, in about an hour of a core.

Tables and page go to results/. ``--fast``: a shrunk run into a temporary folder. ``--page``: the page alone, from the
tables there are. ``--only fixed|drifting|coba``: that part; ``--seed``: that seed of the first two alone. The race of
``coba`` is left out, and the page says so, where that package is not installed (``pip install --no-deps coba``).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from benchmarks.contexts import dense, linear
from benchmarks.contexts.page import write_page

RESULTS = Path(__file__).parent / "results"
SIZE, SMALL = dense.Size(2000, 5, every=40), dense.Size(40, 2)


def _tell(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    """Measure what was asked for, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contexts", description=__doc__)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", choices=(*dense.PROBLEMS, "coba"))
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    results = Path(tempfile.mkdtemp()) if asked.fast else RESULTS
    results.mkdir(exist_ok=True)
    size = SMALL if asked.fast else SIZE
    for kind in () if asked.page else dense.PROBLEMS:
        if asked.only in (None, kind):
            for seed in range(size.seeds) if asked.seed is None else [asked.seed]:
                table = dense.race(kind, size, _tell, range(seed, seed + 1))
                table.to_csv(results / f"dense-{kind}-{seed}.csv", index=False, float_format="%.5g")
    if not asked.page and asked.only in (None, "coba"):
        if linear.has_coba():
            table = linear.race(*((30, 2) if asked.fast else (1000, 5)), _tell)
            table.to_csv(results / "coba.csv", index=False, float_format="%.5g")
        else:
            _tell("left out: coba is not installed (pip install --no-deps coba)")
    print(f"wrote {write_page(results)}")


if __name__ == "__main__":
    main()
