"""What float32 costs in accuracy and gains in time."""

from typing import Any

import pandas as pd
import torch

from bandits_torch.policies import IndexPolicy, Observation
from benchmarks.pages import say
from benchmarks.speed.measuring import clock, median
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import WIDTH, Task, make_task, play, ucb_on_arms


def measure(settings: Settings) -> pd.DataFrame:
    """A float64 policy plays; a float32 one learns the same and is asked what it would have played."""
    cases = (
        (("covariance", 60), ("factor", 80)) if settings.fast else (("covariance", 1_000), ("factor", 10_000))
    )
    marks = (10, 30) if settings.fast else (100, 1_000, 10_000)
    rows: list[dict[str, Any]] = []
    for form, num_arms in cases:
        for noise_variance in (1e-2, 1e-4):
            say(f"{form} form, {num_arms} arms, noise variance {noise_variance}")
            rows += _compare(form, num_arms, noise_variance, marks, settings.device)
    return pd.DataFrame(rows)


def _compare(
    form: str, num_arms: int, noise_variance: float, marks: tuple[int, ...], device: str
) -> list[dict[str, Any]]:
    task = make_task(num_arms, device, noise_variance=noise_variance)
    double = ucb_on_arms(task, form=form, noise_variance=noise_variance)
    single = ucb_on_arms(task, form=form, noise_variance=noise_variance, dtype=torch.float32)
    rows: list[dict[str, Any]] = []
    seconds_double, seconds_single, worst_loss = [], [], 0.0
    for step in range(marks[-1]):
        mean, deviation = _belief(double)
        index = mean + WIDTH * deviation
        arm, reward, seconds = play(double, task, step)
        chosen, taken = _follow(single, task, step, arm, reward)
        seconds_double.append(seconds)
        seconds_single.append(taken)
        worst_loss = max(worst_loss, float(index.max() - index[chosen]))
        if step + 1 in marks:
            mean, deviation = _belief(double)
            mean32, deviation32 = _belief(single)
            rows.append(
                {
                    "form": form,
                    "arms": num_arms,
                    "noise_variance": noise_variance,
                    "observations": step + 1,
                    "mean_error": float((mean32 - mean).abs().max()),
                    "deviation_error": float((deviation32 - deviation).abs().max()),
                    "smallest_deviation": float(deviation.min()),
                    "worst_index_loss": worst_loss,
                    "seconds_float64": median(seconds_double[-200:]),
                    "seconds_float32": median(seconds_single[-200:]),
                }
            )
    return rows


def _follow(
    policy: IndexPolicy, task: Task, step: int, arm: torch.Tensor, reward: torch.Tensor
) -> tuple[int, float]:
    """What the policy would have played, and the time of its choosing and learning what was played."""
    start = clock(task.device)
    chosen = policy.choose(float(step)).arm
    policy.learn(Observation(float(step), arm, reward))
    return int(chosen), clock(task.device) - start


def _belief(policy: IndexPolicy) -> tuple[torch.Tensor, torch.Tensor]:
    mean, variance = policy.model.marginals()
    return mean.squeeze(0).double(), variance.squeeze(0).double().sqrt()
