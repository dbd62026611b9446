"""``python -m benchmarks.auto.step``: processor time of a step beside that of gp_ucb."""

from itertools import product
from pathlib import Path
from statistics import mean, median
from time import process_time

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.policies import Observation, Policy
from bandits_torch.problems.simulated import make_kernel
from benchmarks.pages import save

RESULTS = Path(__file__).parent / "results"
_WARM_UP = 20


def step_seconds(policy: Policy, steps: int) -> list[float]:
    """Seconds of this process for choosing and learning, step by step, without the first ones."""
    g = torch.Generator().manual_seed(0)
    f = torch.randn(policy.num_arms, generator=g, dtype=torch.float64)
    taken = []
    for step in range(1, steps + _WARM_UP + 1):
        noise = 0.1 * torch.randn(policy.replicates, generator=g, dtype=torch.float64)
        start = process_time()
        choice = policy.choose(float(step))
        policy.learn(Observation(float(step), choice.arm, f[choice.arm] + noise, choice.why))
        taken.append(process_time() - start)
    return taken[_WARM_UP:]


def policies(num_arms: int, replicates: int, **of_auto: float) -> dict[str, Policy]:
    """Over the same arms of two dimensions; ``of_auto``: options of both of auto's."""
    arms = torch.rand(num_arms, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kernel = make_kernel("se", 0.2)
    return {
        "gp_ucb": recipes.gp_ucb(arms, kernel, 0.01, replicates=replicates),
        "auto": recipes.auto(arms, kernel, 0.01, replicates=replicates, **of_auto),
        "auto, no kernel": recipes.auto(arms, replicates=replicates, **of_auto),
    }


def main() -> None:
    """Write ``step.csv``; one thread (OMP_NUM_THREADS=1)."""
    rows = []
    for num_arms, replicates in product((100, 200, 500, 1000, 10_000), (1, 25)):
        steps = 64 if num_arms * replicates <= 25_000 else 8
        for name, policy in policies(num_arms, replicates).items():
            ms = [1e3 * seconds for seconds in step_seconds(policy, steps)]
            of_step = {"mean_ms": mean(ms), "median_ms": median(ms), "longest_ms": max(ms)}
            size = {"arms": num_arms, "replicates": replicates, "policy": name}
            rows.append(size | {"members": getattr(policy, "num_members", 1)} | of_step)
            save(pd.DataFrame(rows).round(2), RESULTS / "step.csv")


if __name__ == "__main__":
    main()
