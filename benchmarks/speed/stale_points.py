"""Over points under drift: does a step slow down as observations come in, and what do those dropped cost?"""

import math
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bandits_torch import Domain, recipes
from bandits_torch.policies import Observation
from benchmarks.pages import say
from benchmarks.speed.measuring import clock, median
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import NOISE_VARIANCE, WIDTH, prior

_DIM, RATE = 2, 0.03
PLACES = 2_000  # where means are compared
GIVEN = 1_100  # observations before a mark that a policy is given: those before them correlate less than 1e-7 with it


def measure(settings: Settings) -> pd.DataFrame:
    """Medians of choose and learn at each number of observations, steps of all interleaved in one process; and the
    largest difference from the model that drops nothing, up to 2 000 observations."""
    marks, steps = ((20, 40, 80), 3) if settings.fast else ((200, 2_000, 20_000), 16)
    at_mark, errors = {}, {}
    for mark in marks:
        inputs, rewards = _observations(mark, settings.device)
        own = _policy(settings.device)
        for row, reward in zip(inputs[-GIVEN:], rewards[-GIVEN:], strict=True):
            own.learn(Observation(float(row[-1]), row[None, :-1], reward.reshape(1), {}))
        at_mark[mark] = own
        errors[mark] = _error(own, inputs, rewards) if mark <= 2_000 else math.nan
        say(f"{mark} observations, {int(own.model.num_observations)} held")
    seconds: dict[int, list[tuple[float, float]]] = {mark: [] for mark in marks}
    for step in range(steps):
        for mark, policy in at_mark.items():
            now = float(mark + step)
            begun = clock(settings.device)
            choice = policy.choose(now)
            chosen = clock(settings.device)
            policy.learn(Observation(now, choice.arm, _function(choice.arm, now), choice.why))
            seconds[mark].append((chosen - begun, clock(settings.device) - chosen))
    rows: list[dict[str, Any]] = []
    for mark, policy in at_mark.items():
        choose, learn = zip(*seconds[mark], strict=True)
        rows.append(
            {
                "observations": mark,
                "held": int(policy.model.num_observations),
                "steps": steps,
                "choose_seconds": median(list(choose)),
                "learn_seconds": median(list(learn)),
                "seconds_per_step": median([a + b for a, b in seconds[mark]]),
                "mean_seconds_per_step": sum(a + b for a, b in seconds[mark]) / steps,
                "mean_error": errors[mark],
                "bound": float(policy.forgetting.mean),
            }
        )
    return pd.DataFrame(rows)


def _policy(device: str) -> Any:
    bounds = torch.zeros(2, _DIM, dtype=torch.float64, device=device)
    bounds[1] = 1.0
    own: Any = recipes.tv_gp_ucb(
        Domain(bounds), prior(), NOISE_VARIANCE, forgetting_rate=RATE, width=WIDTH, replicates=1
    )
    own.model.requires_grad_(False)
    return own


def _observations(count: int, device: str) -> tuple[Tensor, Tensor]:
    """Points and times (n, d + 1) of steps 0 to n - 1, and rewards (n,)."""
    generator = torch.Generator(device).manual_seed(0)
    x = torch.rand(count, _DIM, generator=generator, dtype=torch.float64, device=device)
    time = torch.arange(count, dtype=torch.float64, device=device)
    noise = torch.randn(count, generator=generator, dtype=torch.float64, device=device)
    return torch.cat([x, time.unsqueeze(-1)], -1), _function(x, time) + math.sqrt(NOISE_VARIANCE) * noise


def _function(x: Tensor, time: float | Tensor) -> Tensor:
    time = torch.as_tensor(time).to(x)
    return torch.sin(6 * x[..., 0] + 0.02 * time) * torch.cos(4 * x[..., 1] - 0.01 * time)


@torch.no_grad()
def _error(policy: Any, inputs: Tensor, rewards: Tensor) -> float:
    """Largest difference of means from all observations, by one dense solve."""
    model, now = policy.model, inputs[-1, -1]
    x = torch.rand(PLACES, _DIM, generator=torch.Generator().manual_seed(1)).to(inputs)
    at = torch.cat([x, now.expand(PLACES, 1)], -1)
    K = model.kernel(inputs).to_dense() + NOISE_VARIANCE * torch.eye(len(inputs)).to(inputs)
    weights = torch.cholesky_solve(rewards.unsqueeze(-1), torch.linalg.cholesky(K))
    dense = (model.kernel(at, inputs).to_dense() @ weights).squeeze(-1)
    return float((dense - policy.marginals(float(now), x)[0][0]).abs().max())
