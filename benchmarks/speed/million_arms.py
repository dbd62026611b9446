"""Batch BKB on a million arms: time of a step, peak memory, and what share of the memory's bandwidth is used."""

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.policies import Observation
from bandits_torch.problems import GridDraws
from bandits_torch.theory import RealisedInformationWidth
from benchmarks.pages import say
from benchmarks.speed.measuring import clock, copy_seconds, peak_mib
from benchmarks.speed.page import Settings

NOISE, EVERY = 0.1, 250  # steps from row to row


def measure(settings: Settings) -> pd.DataFrame:
    """A grid of [0, 1]^6, squared exponential kernel, two lengthscales: one process each, one after the other."""
    side, horizon = (3, 20) if settings.fast else (10, 1000)
    rows = []
    for lengthscale in (1.0, 0.5):
        say(f"{side**6} arms, lengthscale {lengthscale}")
        rows += settings.alone(play, side, horizon, lengthscale, settings.device)
    return pd.DataFrame(rows)


def play(side: int, horizon: int, lengthscale: float, device: str) -> list[dict[str, float]]:
    """One row for every ``EVERY`` steps."""
    problem = GridDraws(side=side, dim=6, lengthscale=lengthscale, noise_scale=NOISE, seed=0).to(device)
    f = problem.expected_rewards(1)[0]
    noise = NOISE * torch.randn(horizon, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    width = RealisedInformationWidth(2.0, NOISE, 0.1)
    policy = recipes.bbkb(problem.arms, problem.knowledge.kernel, NOISE**2, width=width)
    model, sketch = policy.model, policy.model.sketches[0]
    rows: list[dict[str, float]] = []
    best, regret, moved, start, first = float(f.max()), 0.0, 0.0, clock(device), 1
    for step in range(1, horizon + 1):
        size, draws = sketch.size, sketch.draws
        arm = policy.choose().arm
        regret += best - float(f[arm[0]])
        policy.learn(Observation(0.0, arm, f[arm] + noise[step - 1].to(f)))
        moved += bytes_of_step(problem.num_arms, size, sketch.size, sketch.draws > draws)
        if step % EVERY == 0 or step == horizon:
            seconds, steps = clock(device) - start, step - first + 1
            a_step = moved / steps
            rows.append(
                {
                    "arms": problem.num_arms,
                    "lengthscale": lengthscale,
                    "first_step": first,
                    "last_step": step,
                    "seconds_per_step": seconds / steps,
                    "bytes_per_step": a_step,
                    "copy_seconds": copy_seconds(min(int(a_step), 2**30), device, 3)
                    * max(1.0, a_step / 2**30),
                    "dictionary": int(model.dictionary_size),
                    "draws": sketch.draws,
                    "regret_per_step": regret / step,
                    "peak_mib": peak_mib(device),
                }
            )
            moved, start, first = 0.0, clock(device), step + 1
    return rows


def bytes_of_step(num_arms: int, before: int, after: int, drawn: bool) -> float:
    """Bytes that a step must read and write at least: arms are scored again from the top of N stale indices. A draw
    that adds rows reads those there are once for the new ones, and once more for the means and variances that the pull
    changed."""
    vectors = 1.0  # the stale indices
    if drawn:
        vectors += before * (after > before) + 2 * (after - before if after > before else 0) + after + 6
    return 8.0 * num_arms * vectors
