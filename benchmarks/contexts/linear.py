"""Environments that the package ``coba`` generates, and its linear policies, against CGP-UCB."""

import importlib.util
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from bandits_torch import ArmContext, Problem, recipes, run
from bandits_torch.problems import Knowledge
from bandits_torch.streams import ReplicateStreams
from benchmarks.pages import say

ENVIRONMENTS = ("linear", "kernel", "mlp", "neighbors")
DEVELOPMENT = 1000  # the first seed of what chooses settings; what is reported has seeds 1, 2, ...
OURS = [{"stretch": s, "width": w} for s in (1.0, 2.0, 4.0) for w in (0.5, 2.0)]
AUTO, CGP, LINEAR = "auto", "CGP-UCB", ("LinUCB (coba)", "LinTS (coba)")
EXPLORATION = (0.03, 0.1, 0.3, 1.0)  # alpha of LinUCB, v of LinTS; their default is 1
NOISE, SCALE, MEAN = 0.05**2, 0.25**2, 0.5  # of rewards that coba scales to [0, 1]


def has_coba() -> bool:
    return importlib.util.find_spec("coba") is not None


class CobaProblem(Problem):
    """Environments of ``coba``, one a replicate, whose contexts and features change at each step; without noise, as
    there."""

    def __init__(self, name: str, horizon: int, seeds: range) -> None:
        import coba

        make = getattr(coba.Environments, f"from_{name}_synthetic")
        self.interactions = [list(islice(make(horizon, seed=seed)[0].read(), horizon)) for seed in seeds]

        def of(key: Callable[[Any], Any]) -> Tensor:
            return torch.tensor([[key(one) for one in each] for each in self.interactions]).double()

        self.contexts, self.features = of(lambda one: one["context"]), of(lambda one: one["actions"])
        self.rewards = of(lambda one: [one["rewards"](action) for action in one["actions"]])
        self.arms, self.replicates, self.horizon = self.features[0, 0], len(seeds), horizon
        kernel = MaternKernel(nu=2.5).double()
        self.knowledge = Knowledge(kernel, NOISE, context_dim=self.contexts.shape[-1], context_kernel=kernel)

    def available(self, step: int) -> ArmContext:
        """Context and features of the step, of each replicate."""
        return ArmContext(self.contexts[:, step - 1], self.features[:, step - 1])

    def expected_rewards(self, step: int) -> Tensor:
        return self.rewards[:, step - 1]

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        return torch.zeros(len(arm)).double()


def ours(problem: CobaProblem, stretch: float, width: float) -> Tensor:
    """Mean reward of each replicate under CGP-UCB; lengthscales are ``stretch`` times the median distance seen in the
    first 20 steps, before any reward."""

    def matern(rows: Tensor) -> MaternKernel:
        kernel = MaternKernel(nu=2.5).double()
        kernel.lengthscale = stretch * torch.pdist(rows).median()
        return kernel

    arm = ScaleKernel(matern(problem.features[:, :20].flatten(0, 2)[:400])).double()
    arm.outputscale = torch.tensor(SCALE).double()
    context = matern(problem.contexts[:, :20].flatten(0, 1))
    policy = recipes.cgp_ucb(
        problem.arms,
        arm,
        NOISE,
        context_dim=problem.contexts.shape[-1],
        context_kernel=context,
        prior_mean=MEAN,
        replicates=problem.replicates,
        width=width,
    )
    return run(policy, problem, problem.horizon).rewards.mean(-1)


def without_kernel(problem: CobaProblem) -> Tensor:
    """Mean reward of each replicate under ``auto``, given how many numbers a context has."""
    policy = recipes.auto(problem.arms, context_dim=problem.contexts.shape[-1], replicates=problem.replicates)
    return run(policy, problem, problem.horizon).rewards.mean(-1)


def theirs(problem: CobaProblem, name: str, exploration: float) -> Tensor:
    """Mean reward of each replicate under a policy of ``coba``, in its own loop."""
    import coba

    means = []
    for seed, interactions in enumerate(problem.interactions):
        learner: Any = None if name == "random" else getattr(coba, name)(exploration, seed=seed + 1)
        total, draw = 0.0, coba.CobaRandom(seed)
        for one in interactions:
            context, actions = one["context"], one["actions"]
            if learner is None:
                total += one["rewards"](draw.choice(actions))
                continue
            action, probability = learner.predict(context, actions)[:2]
            reward = one["rewards"](action)
            learner.learn(context, action, reward, probability)
            total += reward
        means.append(total / len(interactions))
    return torch.tensor(means).double()


def race(horizon: int, seeds: int, racing: Sequence[str] = (CGP, *LINEAR, "random")) -> pd.DataFrame:
    """One row for each environment, policy and seed; settings are the best of equal-sized grids on other seeds."""
    rows = []
    for name in ENVIRONMENTS:
        problem = CobaProblem(name, horizon, range(1, seeds + 1))
        tuning = CobaProblem(name, horizon // 2, range(DEVELOPMENT, DEVELOPMENT + 2))
        grids: dict[str, list[tuple[str, Callable[[CobaProblem], Tensor]]]] = {
            AUTO: [("", without_kernel)],
            CGP: [(f"{one}", lambda p, one=one: ours(p, **one)) for one in OURS],
            LINEAR[0]: [(f"alpha {x}", lambda p, x=x: theirs(p, "LinUCBLearner", x)) for x in EXPLORATION],
            LINEAR[1]: [(f"v {x}", lambda p, x=x: theirs(p, "LinTSLearner", x)) for x in EXPLORATION],
            "random": [("", lambda p: theirs(p, "random", 0.0))],
        }
        best = float(problem.rewards.amax(-1).mean())
        for policy in racing:
            grid = grids[policy]
            setting, play = max(grid, key=lambda one: float(one[1](tuning).mean())) if grid[1:] else grid[0]
            means = play(problem)
            say(f"{name}, {policy}, {setting}: {float(means.mean()):.3f} of at most {best:.3f}")
            rows += [
                {"environment": name, "policy": policy, "setting": setting, "seed": seed + 1, "reward": mean}
                for seed, mean in enumerate(means.tolist())
            ]
        rows += [
            {"environment": name, "policy": "best arms", "setting": "", "seed": seed + 1, "reward": mean}
            for seed, mean in enumerate(problem.rewards.amax(-1).mean(-1).tolist())
        ]
    return pd.DataFrame(rows)
