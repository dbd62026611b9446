"""How long help, lists and argument errors take, beside importing what they are written with.

    python -m benchmarks.speed.start_up --rounds 20

Every command is run once a round, one after the other, so that what else the machine does falls on all alike. A figure
is the median of a command's times, and its ratio to that of ``import numpy, rich, typer``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

BASE = "import numpy, rich, typer"
COMMANDS = {
    "--help": ["--help"],
    "race --help": ["race", "--help"],
    "list": ["list"],
    "list gp_ucb": ["list", "gp_ucb"],
    "race --policies frist": ["race", "--policies", "frist"],
    "race --option windw=3": ["race", "--option", "windw=3"],
}


def seconds(command):
    """What a command takes."""
    begun = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    return time.perf_counter() - begun


def measure(rounds):
    """Medians of seconds by name, the base first."""
    commands = {BASE: [sys.executable, "-c", BASE]}
    commands |= {name: [sys.executable, "-m", "bandits_torch", *given] for name, given in COMMANDS.items()}
    taken = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(seconds(command))
    return {name: statistics.median(values) for name, values in taken.items()}


def main():
    """Print a line for every command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    found = measure(parser.parse_args().rounds)
    for name, middle in found.items():
        print(f"{name:28}{1e3 * middle:8.0f} ms{middle / found[BASE]:8.2f}")


if __name__ == "__main__":
    main()
