"""Kills runs at random moments, takes them up again, and counts how many come out as if never disturbed.

    python -m tests.reference.kill_runs --kills 200

Every recipe is played with a checkpoint after every step, so that about every second kill falls into a write; in each
second run the write is slowed down on top and the kill waits for the next one. A kill is SIGKILL to a process of its
own. After each the file, if there is one, must be whole and its record the first steps of the undisturbed run; once
the kills are spent the run is let go to its end and must equal the undisturbed one: arms, rewards, best rewards, times
and trace, bit for bit.
"""

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

from bandits_torch import History, recipes, run, state_files
from tests.reference import all_recipes
from tests.reference.asking import bits

HORIZON, REPLICATES = 80, 2
NAMES = ("arms", "rewards", "expected_rewards", "best", "times")


def play(name, path=None):
    """The History of a recipe's run, with a checkpoint after every step if there is a path."""
    policy, problem = all_recipes.build(name, REPLICATES, HORIZON)
    return run(policy, problem, HORIZON, seed=2, checkpoint=path, every=1)


def slow_down():
    """Write archives in pieces, with a pause after each: most kills then fall into a write."""
    savez = state_files.np.savez

    class Slow:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            data = bytes(data)
            for start in range(0, len(data), 1 << 14):
                self.file.write(data[start : start + (1 << 14)])
                self.file.flush()
                time.sleep(2e-4)
            return len(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    state_files.np.savez = lambda file, **arrays: savez(Slow(file), **arrays)


def start(name, path, out, slow):
    """A process that plays on from ``path`` and saves its History; its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # no lock is held by another thread
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        if slow:
            slow_down()
        play(name, path).save(out)
        status = 0
    finally:
        os._exit(status)


def ended(child, seconds, writing=lambda: True):
    """Kill a process at the first moment after so many seconds when it is ``writing``; its exit status if it was
    over before, None if it was killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or not writing():
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(1e-4)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if status == -signal.SIGKILL else status


def record(history):
    """What was played, and the trace: all of a History but for seconds."""
    return {name: getattr(history, name) for name in NAMES} | history.trace


def same(one, other):
    """Whether two Histories agree in every bit."""
    return bits(record(one)) == bits(record(other))


def steps_saved(path, undisturbed):
    """How many steps the file at ``path`` holds, all as in the undisturbed run; 0 if there is none, None if not."""
    if not path.exists():
        return 0
    state = state_files.read_state(path, "run")
    rows, done = state["parts"]["record"]["rows"], state["step"]
    pairs = ((rows["arm"], undisturbed.arms), (rows["reward"], undisturbed.rewards))
    return done if all(bits(kept.T) == bits(whole[:, :done]) for kept, whole in pairs) else None


def kill(name, kills, folder, chance):
    """Kill a recipe's run so many times. (kills in a write, kills before a first file, resumes that were exact.)"""
    path, out = folder / name, folder / f"{name}.npz"

    def writing():
        return any(folder.glob(f".{name}.*.part"))

    undisturbed = play(name)
    begun = time.monotonic()
    ended(start(name, path, out, False), 1e9)
    duration, in_write, before, exact, pending = time.monotonic() - begun, 0, 0, 0, 0
    path.unlink()
    for k in itertools.count():
        if pending + exact == kills:
            break
        slow, seconds = k % 2 == 1, chance.uniform(0, 0.6 * duration)
        status = ended(start(name, path, out, slow), seconds, *([writing] if slow else []))
        if status is None:
            pending += 1
            in_write += writing()
            saved = steps_saved(path, undisturbed)
            if saved is None:
                return in_write, before, exact
            before += saved == 0
            continue
        if status != 0 or not same(History.load(out), undisturbed):
            return in_write, before, exact
        exact, pending = exact + pending, 0
        path.unlink()
    if pending:
        ended(start(name, path, out, False), 1e9)
        exact += pending if same(History.load(out), undisturbed) else 0
    return in_write, before, exact


def main():
    """Spread the kills over all recipes, or those named; print a line on each; 1 if a resume was not exact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipes", default=",".join(recipes.RECIPES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    names, chance = asked.recipes.split(","), random.Random(asked.seed)
    totals = [0, 0, 0, 0]
    print(f"{'recipe':24}{'kills':>8}{'in a write':>12}{'before a file':>15}{'exact resumes':>15}")
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(names):
            kills = (asked.kills * (i + 1)) // len(names) - (asked.kills * i) // len(names)
            row = [kills, *kill(name, kills, Path(folder), chance)] if kills else [0, 0, 0, 0]
            totals = [a + b for a, b in zip(totals, row, strict=True)]
            print("{:24}{:8}{:12}{:15}{:15}".format(name, *row), flush=True)
    print("{:24}{:8}{:12}{:15}{:15}".format("all", *totals))
    return 0 if totals[0] == totals[3] else 1


if __name__ == "__main__":
    sys.exit(main())
