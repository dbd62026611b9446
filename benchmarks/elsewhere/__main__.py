"""``python -m benchmarks.elsewhere [--only bandits|peaks] [--problems a,b] [--seeds 0,1] [--page]``.

Races on problems that others wrote; needs ``pip install gmpb deap river gymnasium mabwiser bayesianbandits``. What is
played goes to results/PROBLEM-SEED.csv (peaks) and results/PROBLEM.csv (bandits) at once, and a seed that is there is
not played again; the page is drawn from all there are. ``--page``: the page alone, which needs none of the packages.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.elsewhere.page import write_page

RESULTS = Path(__file__).parent / "results"
REPLICATES = 3


def _tell(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    """Play what was asked for, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elsewhere", description=__doc__)
    parser.add_argument("--only", choices=("bandits", "peaks"))
    parser.add_argument("--problems", default="")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    RESULTS.mkdir(exist_ok=True)
    if not asked.page:
        wanted = set(filter(None, asked.problems.split(",")))
        if asked.only != "peaks":
            _bandits(wanted)
        if asked.only != "bandits":
            _peaks(wanted, [int(seed) for seed in asked.seeds.split(",")])
    print(f"wrote {write_page(RESULTS)}")


def _bandits(wanted: set[str]) -> None:
    from benchmarks.elsewhere import bandits

    for name in bandits.ENVIRONMENTS:
        path = RESULTS / f"{name}.csv"
        if (not wanted or name in wanted) and not path.exists():
            bandits.race(name, REPLICATES, _tell).to_csv(path, index=False, float_format="%.6g")


def _peaks(wanted: set[str], seeds: list[int]) -> None:
    from benchmarks.elsewhere import moving_peaks

    for seed in seeds:
        for name in moving_peaks.PROBLEMS:
            path = RESULTS / f"{name}-{seed}.csv"
            if (not wanted or name in wanted) and not path.exists():
                moving_peaks.race(name, seed, _tell).to_csv(path, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
