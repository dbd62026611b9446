"""What it costs a model over points to unlearn its oldest observation, beside learning one."""

from typing import Any

import pandas as pd
import torch

from bandits_torch import OnlineGP
from benchmarks.pages import say
from benchmarks.speed.measuring import clock, median
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import NOISE_VARIANCE, prior


def measure(settings: Settings) -> pd.DataFrame:
    """Medians of ``observe`` and ``forget`` of one, in turn, at each number of observations, all in one process."""
    sizes, rounds = ((40, 80), 3) if settings.fast else ((100, 200, 500, 1_000, 2_000), 31)
    generator = torch.Generator(settings.device).manual_seed(0)

    def drawn(count: int) -> torch.Tensor:
        return torch.rand(count, 2, generator=generator, dtype=torch.float64, device=settings.device)

    rows: list[dict[str, Any]] = []
    for size in sizes:
        model = OnlineGP(prior(), NOISE_VARIANCE, input_dim=2, device=settings.device)
        X = drawn(size)
        model.observe(X, torch.sin(6 * X[:, :1]))
        seconds: dict[str, list[float]] = {"observe": [], "forget": []}
        for _ in range(rounds):
            x = drawn(1)
            begun = clock(settings.device)
            model.observe(x, torch.sin(6 * x[:, :1]))
            learned = clock(settings.device)
            model.forget(1)
            seconds["observe"].append(learned - begun)
            seconds["forget"].append(clock(settings.device) - learned)
        medians = {f"{name}_seconds": median(taken) for name, taken in seconds.items()}
        rows.append({"observations": size, "rounds": rounds} | medians)
        say(f"{size} observations")
    return pd.DataFrame(rows)
