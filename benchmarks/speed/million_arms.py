"""Batch BKB on a million arms: ``python -m benchmarks.speed.million_arms [horizon] [device] [lengthscale]``

N = 10^6 on a grid of [0, 1]^6, squared exponential kernel of lengthscale 0.5 (or as given), lambda = 0.01,
qbar 5, C 5, float64. Prints ms per step, dictionary size and peak memory as it goes; on a GPU also the bandwidth
of the pass over the embedding.
"""

from __future__ import annotations

import resource
import sys
from time import perf_counter

import torch

from bandits_torch import recipes
from bandits_torch.policies.policy import Observation
from bandits_torch.problems.many_arms import GridDraws
from bandits_torch.theory import RealisedInformationWidth


def peak_gib(device: torch.device) -> float:
    """Peak memory: of the process on a CPU, of the allocator on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(horizon: int, device: torch.device, lengthscale: float) -> None:
    """Play and report."""
    problem = GridDraws(side=10, dim=6, lengthscale=lengthscale, noise_scale=0.1, seed=0).to(device)
    f = problem.expected_rewards(1)[0]
    noise = 0.1 * torch.randn(horizon, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    width = RealisedInformationWidth(2.0, 0.1, 0.1)
    policy = recipes.bbkb(problem.arms, problem.knowledge.kernel, 0.01, width=width)
    regret, start, before, since = 0.0, perf_counter(), perf_counter(), 0
    for step in range(1, horizon + 1):
        arm = policy.choose().arm
        regret += float(f.max() - f[arm[0]])
        policy.learn(Observation(0.0, arm, f[arm] + noise[step - 1].to(f)))
        if step % 50 == 0 or step == horizon or step == 10:
            now = perf_counter()
            model = policy.model
            ms = 1e3 * (now - before) / (step - since)
            print(
                f"t {step:5d}  {ms:8.1f} ms a step  m {int(model.dictionary_size):4d}  "
                f"draws {int(model.draws):4d}  regret per step {regret / step:.3f}  peak {peak_gib(device):.1f} GiB",
                flush=True,
            )
            before, since = now, step
    print(f"{1e3 * (perf_counter() - start) / horizon:.1f} ms a step over {horizon} steps on {device}")
    if device.type == "cuda":
        rows = policy.model.sketches[0].rows
        vector = rows[:, 0].clone()
        vector @ rows
        torch.cuda.synchronize()
        begun = perf_counter()
        for _ in range(20):
            vector @ rows
        torch.cuda.synchronize()
        rate = 20 * rows.numel() * rows.element_size() / (perf_counter() - begun)
        print(f"one pass over the embedding reads {rate / 1e9:.0f} GB/s")


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["1000", "cpu", "0.5"][len(sys.argv) - 1 :]
    main(int(arguments[0]), torch.device(arguments[1]), float(arguments[2]))
