"""Plays every recipe on a number of CPU threads and prints the arms: python -m tests.reference.play_all THREADS.

200 arms, so that the work on a covariance is shared: torch splits what has more than 32 768 numbers.
"""

import sys

import torch

from bandits_torch import recipes, run
from tests.reference import all_recipes

ARMS, STEPS, REPLICATES = 200, 8, 1


def lines(threads):
    """A line for each recipe: its name and the arms played."""
    torch.set_num_threads(threads)
    for name in recipes.RECIPES:
        policy, problem = all_recipes.build(name, REPLICATES, STEPS, num_arms=ARMS)
        history = run(policy, problem, STEPS, seed=7)
        yield " ".join(map(str, [name, *history.arms.flatten().tolist()]))


if __name__ == "__main__":
    print(*lines(int(sys.argv[1])), sep="\n", flush=True)
