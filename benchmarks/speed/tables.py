"""What reading a table costs beside ``pandas.read_csv``: seconds, and memory above that of the imports.

    python -m benchmarks.speed.tables --rows 50000 --columns 200 --rounds 3

Each reading is alone in a fresh process; the two take turns. The project asks for at most three times pandas' figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

READING = """
import json, resource, sys, time
import pandas as pd
from bandits_torch.problems import read_table
def high():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
read = {"pandas": pd.read_csv, "read_table": read_table}[sys.argv[1]]
before, begun = high(), time.perf_counter()
read(sys.argv[2])
print(json.dumps([time.perf_counter() - begun, high() - before]))
"""


def measure(path, rounds):
    """Medians of (seconds, MiB) by reader."""
    taken = {"pandas": [], "read_table": []}
    for _ in range(rounds):
        for reader, figures in taken.items():
            command = [sys.executable, "-c", READING, reader, str(path)]
            figures.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    return {
        reader: [statistics.median(one) for one in zip(*runs, strict=True)] for reader, runs in taken.items()
    }


def main():
    """Print a line for each reader, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    values = np.random.default_rng(0).normal(size=(asked.rows, asked.columns))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        pd.DataFrame(values, columns=[f"arm {n}" for n in range(asked.columns)]).to_csv(path, index=False)
        found = measure(path, asked.rounds)
    for reader, (seconds, memory) in found.items():
        print(f"{reader:12}{seconds:8.2f} s{memory:8.0f} MiB")
    ratios = [ours / theirs for ours, theirs in zip(found["read_table"], found["pandas"], strict=True)]
    print(f"{'ratio':12}{ratios[0]:8.2f}  {ratios[1]:8.2f}")


if __name__ == "__main__":
    main()
