"""``python -m benchmarks.auto.step``: processor time of a step beside that of gp_ucb."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import mean, median
from time import process_time

import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import recipes
from bandits_torch.policies.policy import Observation, Policy

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


def policies(num_arms: int, replicates: int) -> dict[str, Policy]:
    """Over the same arms of two dimensions."""
    arms = torch.rand(num_arms, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.2
    told = {"replicates": replicates}
    return {
        "gp_ucb": recipes.gp_ucb(arms, kernel, 0.01, **told),
        "auto": recipes.auto(arms, kernel, 0.01, **told),
        "auto, told nothing": recipes.auto(arms, **told),
    }


def main() -> None:
    """Write ``step.csv``; one thread (OMP_NUM_THREADS=1)."""
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / "step.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arms", "replicates", "policy", "members", "mean_ms", "median_ms", "longest_ms"])
        for num_arms in (100, 200, 500, 1000, 10_000):
            for replicates in (1, 25):
                steps = 64 if num_arms * replicates <= 25_000 else 8
                for name, policy in policies(num_arms, replicates).items():
                    ms = [1e3 * seconds for seconds in step_seconds(policy, steps)]
                    members = getattr(policy, "num_members", 1)
                    row = [num_arms, replicates, name, members]
                    rows.writerow([*row, *(f"{f(ms):.2f}" for f in (mean, median, max))])
                    file.flush()


if __name__ == "__main__":
    main()
