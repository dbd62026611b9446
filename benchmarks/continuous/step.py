"""A step at t = 1 000 observations in d = 4 against optimize_acqf alone, interleaved in one process."""

from __future__ import annotations

from time import perf_counter

import pandas as pd
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel

from bandits_torch import recipes
from bandits_torch.acquisition import UpperConfidenceBound
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.policies.policy import Observation

DIM = 4


def step_ratio(observations: int, repeats: int = 15) -> pd.DataFrame:
    """Seconds of a whole step (choose, learn) of tv_gp_ucb, and of optimize_acqf alone on the same model, a row each.

    ``optimize_acqf`` gets the same number of restarts, raw samples and rounds, and time as a fixed feature.
    """
    generator = torch.Generator().manual_seed(0)
    domain = Domain(torch.tensor([[0.0] * DIM, [1.0] * DIM]).double())
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    search = PointSearch()
    policy = recipes.tv_gp_ucb(
        domain, kernel.requires_grad_(False), 0.01, forgetting_rate=0.001, width=2.0, search=search
    )
    for step in range(observations):
        x = torch.rand(1, DIM, generator=generator, dtype=torch.float64)
        policy.learn(Observation(float(step), x, torch.sin(5 * x.sum(-1)) + 0.001 * step))
    rows = []
    bounds = torch.cat([domain.bounds, torch.tensor([[0.0], [1e6]]).double()], -1)
    for repeat in range(repeats):
        now = float(observations + repeat)
        begun = perf_counter()
        optimize_acqf(
            UpperConfidenceBound(policy.model, 2.0),
            bounds,
            q=1,
            num_restarts=search.num_restarts,
            raw_samples=search.raw_samples,
            fixed_features={DIM: now},
            options=dict(search.options),
        )
        alone = perf_counter() - begun
        begun = perf_counter()
        choice = policy.choose(now)
        chosen = perf_counter() - begun
        reward = torch.sin(5 * choice.arm.sum(-1)) + 0.001 * now
        begun = perf_counter()
        policy.learn(Observation(now, choice.arm, reward, choice.why))
        learnt = perf_counter() - begun
        rows.append({"observations": observations, "alone": alone, "choose": chosen, "learn": learnt})
    return pd.DataFrame(rows)
