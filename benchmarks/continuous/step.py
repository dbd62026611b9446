"""What a step over a domain costs: tv_gp_ucb beside ``optimize_acqf`` alone, and auto beside plain BoTorch."""

from time import perf_counter, process_time

import pandas as pd
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel

from bandits_torch import Domain, UpperConfidenceBound, recipes
from bandits_torch.acquisition import PointSearch
from bandits_torch.policies import Observation
from benchmarks.continuous.rivals import PlainBoTorch

DIM, AUTO_DIM = 4, 3
MARKS = (25, 50, 100, 200, 400)


def step_ratio(observations: int = 1000, repeats: int = 15) -> pd.DataFrame:
    """Seconds of a whole step (choose, learn) of tv_gp_ucb, and of optimize_acqf alone on the same model, with as many
    restarts, raw samples and rounds, a row each."""
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


def auto_step(marks: tuple[int, ...] = MARKS, steps: int = 20) -> pd.DataFrame:
    """Processor seconds of a step, a row for each number of rewards: both learn the same ones and choose in turn.
    ``auto`` refines its members every fifth reward, later every twentieth, so a mean of twenty steps has at least one
    refinement."""
    generator = torch.Generator().manual_seed(0)
    domain = Domain(torch.tensor([[0.0] * AUTO_DIM, [1.0] * AUTO_DIM], dtype=torch.float64))
    horizon = max(marks)
    auto = recipes.auto(domain, seed=0)
    plain = PlainBoTorch(domain, horizon, 1, 0, acquisition="ucb", over_time=True)
    rows, done = [], 0
    for mark in marks:
        while done < mark - steps:
            point = torch.rand(1, AUTO_DIM, generator=generator, dtype=torch.float64)
            for policy in (auto, plain):
                policy.learn(_observation(done, point))
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
