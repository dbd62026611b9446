"""Who plays what, by the protocol; each cell's total regret goes to a table."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from gpytorch.kernels import ScaleKernel

from bandits_torch import recipes, run
from bandits_torch.experiments import Block, RecipeSetting
from bandits_torch.policies import Policy
from bandits_torch.problems import Knowledge, Problem
from benchmarks.auto.environments import DEVELOPED_ON, RISERS, SIMULATED, UNSEEN, FirmTable, Riser, record
from benchmarks.leaderboard import settings
from benchmarks.leaderboard.environments import AutoWithoutKernel

DEVELOPMENT = (
    *("stationary", "four-switches", "tv-gp-0.01", "tv-gp-0.1", "cosine"),
    *("intel-temperature", "molene-wind"),
)
VALIDATION = tuple(name for name in settings.RANKED if name not in DEVELOPMENT)
ENVIRONMENTS = (*settings.RANKED, *UNSEEN, *DEVELOPED_ON, *SIMULATED, *RISERS, "firm")
KEY = ("environment", "policy", "seed", "replicate")


def _lengthscale(factor: float) -> Callable[[Knowledge], Knowledge]:
    def mistaken(knowledge: Knowledge) -> Knowledge:
        kernel = copy.deepcopy(knowledge.kernel)
        kernel.lengthscale = factor * kernel.lengthscale
        return replace(knowledge, kernel=kernel)

    return mistaken


def _noise(factor: float) -> Callable[[Knowledge], Knowledge]:
    return lambda knowledge: replace(knowledge, noise_variance=factor * knowledge.noise_variance)


def _in_other_units(knowledge: Knowledge) -> Knowledge:
    """What is given of rewards r where 1000 r + 5000 are played, in units of what is played here."""
    kernel = ScaleKernel(copy.deepcopy(knowledge.kernel)).to(torch.float64)
    kernel.outputscale = 1e-6
    return replace(
        knowledge,
        kernel=kernel.requires_grad_(False),
        noise_variance=1e-6 * knowledge.noise_variance,
        prior_mean=(knowledge.prior_mean - 5000.0) / 1000.0,
    )


HISTORY = "auto, with history"  # 200 rewards of every arm from the time before a riser
# What is given, with a mistake.
MISTAKES: dict[str, Callable[[Knowledge], Knowledge]] = {
    "auto, length-scale times 5": _lengthscale(5.0),
    "auto, length-scale over 5": _lengthscale(0.2),
    "auto, noise variance times 100": _noise(100.0),
    "auto, noise variance over 100": _noise(0.01),
    "auto, rewards times 1 000 plus 5 000": _in_other_units,
}
POLICIES: dict[str, Callable[[Problem, Block], Policy]] = {
    "auto": RecipeSetting("auto"),
    settings.NO_KERNEL: settings.POLICIES[settings.NO_KERNEL],
}
NEVER = {
    "auto, never looking again": RecipeSetting("auto", {"look_again": 0.0}),
    f"{settings.NO_KERNEL}, never looking again": AutoWithoutKernel(options={"look_again": 0.0}),
}


PLAYERS = (*settings.POLICIES, *POLICIES, *MISTAKES, *NEVER, HISTORY)


def make_problem(environment: str, block: Block, data: Path) -> Problem:
    """The environment for these replicates. A firm has one, whose table is that of the block's seed plus its number."""
    if environment == "firm":
        return FirmTable(block.seed + block.first_replicate)
    if environment in (*UNSEEN, *DEVELOPED_ON):
        return record(environment, block, data)
    made = {name: Riser(name) for name in RISERS} | SIMULATED | settings.environments(data)
    return made[environment](block)


def make_policy(name: str, environment: str, problem: Problem, block: Block) -> Policy:
    if name == HISTORY:
        past = Riser(environment).history(block)
        return recipes.auto(problem.arms, history=past, replicates=block.replicates)
    if name in MISTAKES:
        wrong = MISTAKES[name](problem.knowledge)
        given = {"prior_mean": wrong.prior_mean, "replicates": block.replicates}
        return recipes.auto(problem.arms, wrong.kernel, wrong.noise_variance, **given)
    return (settings.POLICIES | POLICIES | NEVER)[name](problem, block)


def play(environment: str, policy: str, block: Block, data: Path) -> pd.DataFrame:
    """A row per replicate: total regret (of a hidden riser that of the 500 steps after) and time of a step."""
    torch.manual_seed(block.seed)
    riser = Riser(environment) if environment in RISERS else None
    if riser is not None:
        block = replace(block, horizon=riser.horizon)
    problem = make_problem(environment, block, data)
    steps, first = min(block.horizon, problem.horizon or block.horizon), block.first_replicate
    block = replace(block, horizon=steps)
    built = make_policy(policy, environment, problem, block)
    history = run(built, problem, steps, seed=block.seed, first_replicate=first)
    regret = history.regret.sum(-1) if riser is None else riser.counted(history.regret, block)
    return pd.DataFrame(
        {
            "environment": environment,
            "policy": policy,
            "replicate": range(first, first + block.replicates),
            "seed": block.seed,
            "regret": regret.numpy(),
            "ms_per_step": history.ms_per_step,
        }
    )
