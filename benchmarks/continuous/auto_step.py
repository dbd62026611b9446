"""A step of ``auto`` over a domain beside a fit of ``SingleTaskGP`` and ``optimize_acqf`` after as many rewards."""

from __future__ import annotations

from time import process_time

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.domain import Domain
from bandits_torch.policies.policy import Observation
from benchmarks.continuous.rivals import PlainBoTorch

DIM = 3
MARKS = (25, 50, 100, 200, 400)


def auto_step(marks: tuple[int, ...] = MARKS, steps: int = 20) -> pd.DataFrame:
    """Processor seconds of a step, one row for each number of rewards: both learn the same ones and choose in turn.

    ``auto`` refines its members every fifth reward, where 200 are held every twentieth, so the mean of twenty steps has
    at least one refinement in it. The rival fits and searches in ``choose``; time is its last input. Processor time of
    one thread, so other work counts little.
    """
    generator = torch.Generator().manual_seed(0)
    domain = Domain(torch.tensor([[0.0] * DIM, [1.0] * DIM], dtype=torch.float64))
    horizon = max(marks)
    auto = recipes.auto(domain, seed=0)
    plain = PlainBoTorch(domain, horizon, 1, 0, acquisition="ucb", over_time=True)
    rows, done = [], 0
    for mark in marks:
        while done < mark - steps:
            point = torch.rand(1, DIM, generator=generator, dtype=torch.float64)
            _learn(done, point, auto, plain)
            done += 1
        ours, theirs = [], []
        for _ in range(steps):
            now = float(done + 1)
            begun = process_time()
            point = auto.choose(now).arm
            chosen = process_time()
            plain.choose(now)
            theirs.append(process_time() - chosen)
            learnt = process_time()
            auto.learn(_observation(done, point))
            ours.append(chosen - begun + process_time() - learnt)
            plain.learn(_observation(done, point))
            done += 1
        rows.append(
            {
                "observations": mark,
                "held": int(auto.members.num_held.max()),
                "auto_seconds": sum(ours) / steps,
                "auto_longest": max(ours),
                "botorch_seconds": sum(theirs) / steps,
            }
        )
    return pd.DataFrame(rows)


def _observation(done: int, point: torch.Tensor) -> Observation:
    noise = 0.1 * torch.randn(1, generator=torch.Generator().manual_seed(done), dtype=torch.float64)
    reward = torch.sin(5 * point.sum(-1) + 0.02 * done) + noise
    return Observation(float(done + 1), point, reward, {})


def _learn(done: int, point: torch.Tensor, *policies: object) -> None:
    for policy in policies:
        policy.learn(_observation(done, point))  # type: ignore[attr-defined]


def describe(frame: pd.DataFrame) -> str:
    """A section of the page."""
    text = (
        "## A step of auto beside plain BoTorch's\n\n`python -m benchmarks.continuous --step`: processor time of one "
        f"thread, d = {DIM}, means of five steps in turn; of `auto` choose and learn, a refinement of members among "
        "them; of BoTorch a fit of `SingleTaskGP` and `optimize_acqf` of its UCB (4 restarts, 64 raw samples).\n\n"
        "| rewards | auto holds | auto, ms | longest, ms | BoTorch, ms | ratio |\n|---|---|---|---|---|---|\n"
    )
    for row in frame.to_dict("records"):
        ms = [f"{1e3 * row[name]:.0f}" for name in ("auto_seconds", "auto_longest", "botorch_seconds")]
        ratio = row["auto_seconds"] / row["botorch_seconds"]
        text += f"| {row['observations']:.0f} | {row['held']:.0f} | {' | '.join(ms)} | {ratio:.2f} |\n"
    return text
