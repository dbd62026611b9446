"""What ``ask(count=8)`` costs beside eight steps of one question each, at 10 000 arms."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import pandas as pd
import torch

from bandits_torch import AskTell, recipes
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.simulated import make_kernel

Q = 8


def _built(name: str, num_arms: int) -> Policy:
    arms = torch.rand(num_arms, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = make_kernel("matern", 0.2)
    if name == "auto":
        return recipes.auto(arms)
    if name == "tv_gp_ucb":
        return recipes.tv_gp_ucb(arms, kernel, 0.01, forgetting_rate=0.03, width=2.0)
    if name == "gp_ucb, covariance":
        return recipes.gp_ucb(arms, kernel, 0.01, width=2.0, form="covariance")
    return getattr(recipes, name)(arms, kernel, 0.01, width=2.0)


RACERS = {"gp_ucb": 10_000, "tv_gp_ucb": 10_000, "bkb": 10_000, "auto": 10_000, "gp_ucb, covariance": 2_000}


def measure(steps: int, rounds: int, tell: Callable[[str], None], shrink: int = 1) -> pd.DataFrame:
    """Medians over ``rounds``, after ``steps`` rewards."""
    rows = []
    for name, num_arms in RACERS.items():
        live = AskTell(_built(name, num_arms // shrink))
        clock, noise = 0.0, torch.Generator().manual_seed(1)

        def answer(question: object, live: AskTell = live, noise: torch.Generator = noise) -> None:
            arm = float(question.arm)  # type: ignore[attr-defined]
            live.tell(question.id, torch.sin(torch.tensor(arm)) + 0.1 * torch.randn((), generator=noise))  # type: ignore[attr-defined]

        for _ in range(steps):
            clock += 1
            answer(live.ask(clock))
        alone, together = [], []
        for _ in range(rounds):
            start = perf_counter()
            for _ in range(Q):
                clock += 1
                answer(live.ask(clock))
            alone.append(perf_counter() - start)
            clock += 1
            start = perf_counter()
            questions = live.ask(clock, count=Q)
            together.append(perf_counter() - start)
            for question in questions:
                answer(question)
        row = {
            "policy": name,
            "arms": num_arms // shrink,
            "rewards": steps,
            "eight steps, ms": 1e3 * median(alone),
            "ask(count=8), ms": 1e3 * median(together),
        }
        rows.append(row | {"ratio": row["ask(count=8), ms"] / row["eight steps, ms"]})  # type: ignore[operator]
        tell(str(rows[-1]))
    return pd.DataFrame(rows)
