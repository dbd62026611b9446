"""What it costs a model over points to unlearn its oldest observation, beside learning one."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from bandits_torch.models import OnlineGP
from benchmarks.pages import figures, of, say, table, whole
from benchmarks.speed.measuring import clock, median
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import LENGTHSCALE, NOISE_VARIANCE, prior

QUESTION = "What does it cost a model over points to unlearn one observation, beside learning one?"


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


def describe(frame: pd.DataFrame) -> str:
    columns = {
        "held": of("observations", whole),
        "observe, ms": lambda row: f"{1e3 * row['observe_seconds']:.2f}",
        "forget, ms": lambda row: f"{1e3 * row['forget_seconds']:.2f}",
        "forget : observe": lambda row: figures(row["forget_seconds"] / row["observe_seconds"]),
    }
    return _WORDS + table(frame, columns)


_WORDS = f"""`OnlineGP` over two dimensions, length-scale {LENGTHSCALE}, noise variance {NOISE_VARIANCE}:
medians of learning one observation and unlearning the oldest, in turn. `forget` changes the whole factor, and then
computes the whitened residuals anew from the targets, one more triangular solve; `observe` solves once and adds a row.

"""
