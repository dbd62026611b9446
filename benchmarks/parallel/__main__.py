"""``python -m benchmarks.parallel [--fast] [--page]``: eight questions at once against one at a time, in one page.

Runs one process niced, in about 15 minutes of a core; tables and page go to results/. ``--fast``: a shrunk run into a
temporary folder. ``--page``: the page alone, from the tables there are. ``--only arms|points|asking``: that part.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import pandas as pd
import torch

from benchmarks.parallel.asking import measure
from benchmarks.parallel.page import write_page
from benchmarks.parallel.race import KINDS, Size, race

RESULTS = Path(__file__).parent / "results"
SIZES = {"arms": Size(400, 16), "arms, long": Size(3000, 8), "points": Size(80, 3)}
SMALL = {"arms": Size(16, 2), "arms, long": Size(32, 2), "points": Size(16, 2)}


def _tell(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    """Measure what was asked for, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parallel", description=__doc__)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", choices=("arms", "arms, long", "points", "asking"))
    asked = parser.parse_args()
    os.nice(10)
    torch.set_num_threads(1)
    results = Path(tempfile.mkdtemp()) if asked.fast else RESULTS
    results.mkdir(exist_ok=True)
    if not asked.page:
        for over, size in (SMALL if asked.fast else SIZES).items():
            if asked.only in (None, over):
                for kind in KINDS[:1] if over == "arms, long" else KINDS:
                    table = race(kind, over, size, _tell)
                    table.to_csv(
                        results / f"{over.replace(', ', '-')}-{kind}.csv", index=False, float_format="%.6g"
                    )
        if asked.only in (None, "asking"):
            sizes = (20, 2, 50) if asked.fast else (200, 5, 1)
            steps, rounds, shrink = sizes
            measured = measure(steps, rounds, _tell, shrink)
            measured.to_csv(results / "asking.csv", index=False, float_format="%.4g")
    sizes_played = SMALL if asked.fast else SIZES
    tables = [pd.read_csv(path) for path in sorted(results.glob("*-*.csv"))]
    asking = results / "asking.csv"
    times = pd.read_csv(asking) if asking.exists() else None
    print(f"wrote {write_page(results, pd.concat(tables), times, sizes_played)}")


if __name__ == "__main__":
    main()
