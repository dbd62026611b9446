"""What reading a table, and diagnosing it, costs beside ``pandas.read_csv``: seconds of a processor, and memory above
that of the imports.

    python -m benchmarks.speed.tables --rows 50000 --columns 200 --rounds 3
    python -m benchmarks.speed.tables --rows 1000000 --columns 20 --rounds 2 --kinds numbers,01,counts,dates

Each reading is alone in a fresh process; they take turns. The project asks for at most three times pandas' figures to
read, and five times its seconds to diagnose as well.
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
from bandits_torch import diagnose
from bandits_torch.problems import read_table
def high():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
read = {"pandas": pd.read_csv, "read": read_table, "diagnose": lambda path: diagnose(read_table(path))}[sys.argv[1]]
before, begun = high(), time.process_time()
read(sys.argv[2])
print(json.dumps([time.process_time() - begun, high() - before]))
"""


READERS = ("pandas", "read", "diagnose")
KINDS = ("numbers", "01", "counts", "dates")


def table(kind, rows, columns):
    """Rewards with a daily cycle, by the hour."""
    random = np.random.default_rng(0)
    cycle = np.sin(2 * np.pi * np.arange(rows)[:, None] / 24 + random.uniform(0, 6, columns))
    if kind == "01":
        values = (random.random((rows, columns)) < 1 / (1 + np.exp(-cycle))).astype(int)
    elif kind == "counts":
        values = random.poisson(np.exp(1 + 0.3 * cycle))
    else:
        values = 100 + cycle + random.normal(size=(rows, columns))
    frame = pd.DataFrame(values, columns=[f"arm {n}" for n in range(columns)])
    if kind == "dates":
        frame.insert(0, "time", pd.date_range("1950-01-01", periods=rows, freq="h"))
    return frame


def measure(path, rounds):
    """Medians of (seconds, MiB) by reader."""
    taken = {reader: [] for reader in READERS}
    for _ in range(rounds):
        for reader, figures in taken.items():
            command = [sys.executable, "-W", "ignore", "-c", READING, reader, str(path)]
            figures.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    return {
        reader: [statistics.median(one) for one in zip(*runs, strict=True)] for reader, runs in taken.items()
    }


def main():
    """Print a line for each kind and reader, with the ratios to pandas."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="numbers", help=f"of {', '.join(KINDS)}")
    asked = parser.parse_args()
    for kind in asked.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            table(kind, asked.rows, asked.columns).to_csv(path, index=False)
            found = measure(path, asked.rounds)
        base = found["pandas"]
        for reader, (seconds, memory) in found.items():
            ratios = f"{seconds / base[0]:8.2f}  {memory / max(base[1], 1):8.2f}"
            print(f"{kind:10}{reader:12}{seconds:8.2f} s{memory:8.0f} MiB{ratios}", flush=True)


if __name__ == "__main__":
    main()
