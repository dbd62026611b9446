"""``python -m benchmarks.ray``: schedulers raced, and the page of results.

``--only TASK``, ``--schedulers A,B``, ``--seeds 0:40``: these alone; ``--fast``: a shrunk run into a temporary folder;
``--page``: the page alone, from the tables there are. Runs that are in the table already are not played again. Needs
``pip install ".[ray]" scikit-learn``, and ``gymnasium`` for ``cartpole``.
"""

from __future__ import annotations

import argparse
import gc
import logging
import tempfile
import warnings
from pathlib import Path

import pandas as pd
import torch

from benchmarks.ray.page import write_page
from benchmarks.ray.race import TASKS, play

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Play what is asked for, seed by seed, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray", description=__doc__)
    parser.add_argument("--only", choices=TASKS)
    parser.add_argument("--schedulers", type=lambda names: names.split(","))
    parser.add_argument("--seeds", default="0:40")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    gc.freeze()  # going through all that was imported takes longer than a decision, and would be counted as one's
    results = Path(tempfile.mkdtemp()) if asked.fast else RESULTS
    results.mkdir(exist_ok=True)
    first, last = (0, 1) if asked.fast else map(int, asked.seeds.split(":"))
    for name in () if asked.page else [asked.only] if asked.only else TASKS:
        path = results / f"{name}.csv"
        rows = pd.read_csv(path).to_dict("records") if path.exists() else []
        done = {(row["scheduler"], row["seed"]) for row in rows}
        for seed in range(first, last):
            for scheduler in TASKS[name].schedulers:
                wanted = asked.schedulers is None or scheduler in asked.schedulers
                if wanted and (scheduler, seed) not in done:
                    rows.append(
                        {"scheduler": scheduler, "seed": seed, **play(name, scheduler, seed, asked.fast)}
                    )
                    pd.DataFrame(rows).to_csv(path, index=False, float_format="%.6g")
                    print(name, rows[-1], flush=True)
    if any(results.glob("*.csv")):
        print(f"wrote {write_page(results)}")


if __name__ == "__main__":
    main()
