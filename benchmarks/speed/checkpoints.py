"""What a checkpoint costs: bytes and milliseconds of each recipe's, beside the steps it is taken between.

    python -m benchmarks.speed.checkpoints --steps 1000 --replicates 25

100 arms (101 on the hills). Loading is the time from an empty process's fresh policy to the next step; a write
includes flushing to the disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

import torch

from bandits_torch import checkpoint, recipes, run
from bandits_torch.problems import make
from bandits_torch.streams import ReplicateStreams

WRITES = 5


def built(name, replicates, steps):
    """A recipe at 100 arms and its problem: functions that switch, or hills where it wants candidate priors."""
    wants_kernel = recipes.registered(name).belief in (None, "kernel")
    options = {"horizon": steps} if wants_kernel else {}
    problem = make("switching" if wants_kernel else "hills", replicates=replicates, **options)
    return recipes.build(name, problem, replicates=replicates, horizon=steps), problem


def cost(name, replicates, steps, folder):
    """(bytes, ms of a write, ms of a load, ms of a step) after so many steps."""
    path = os.path.join(folder, name)
    history = run(*built(name, replicates, steps), steps, checkpoint=path, every=steps)
    policy, _ = built(name, replicates, steps)
    begun = time.perf_counter()
    header, state = checkpoint.read_state(path, "run")
    policy.load_state_dict(state["parts"]["policy"])
    load, writes = time.perf_counter() - begun, []
    for _ in range(WRITES):
        begun = time.perf_counter()
        parts = state["parts"] | {"policy": policy.state_dict()}
        checkpoint.write_state(path, "run", header, state | {"parts": parts})
        writes.append(time.perf_counter() - begun)
    return os.path.getsize(path), 1e3 * statistics.median(writes), 1e3 * load, history.ms_per_step


def main():
    """Print a line for every recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--replicates", type=int, default=25)
    parser.add_argument("--recipes", default=",".join(recipes.RECIPES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'recipe':24}{'MB':>9}{'write ms':>10}{'load ms':>10}{'step ms':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.recipes.split(","):
            size, write, load, step = cost(name, asked.replicates, asked.steps, folder)
            print(f"{name:24}{size / 1e6:9.2f}{write:10.1f}{load:10.1f}{step:10.3f}", flush=True)
    for shape in ((), (100,)):
        streams = ReplicateStreams(0)
        streams.normal(*shape)
        ((_, _, _, states),) = streams.state_dict()["blocks"]
        ahead = 8 * streams._blocks["normal", shape].numel()
        print(f"a stream of shape {shape}: {states.numel()} bytes kept in place of the {ahead} drawn ahead")


if __name__ == "__main__":
    main()
