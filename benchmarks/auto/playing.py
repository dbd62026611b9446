"""Who plays what, by the protocol; each cell's total regret goes to a table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch
from gpytorch.kernels import ScaleKernel

from bandits_torch import recipes
from bandits_torch.experiments.cells import Block, RecipeSetting
from bandits_torch.loop import run
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Knowledge, Problem
from benchmarks.auto.environments import Simulated
from benchmarks.auto.records import DEVELOPED_ON, Developed, Firm, Unseen
from benchmarks.auto.risers import RISERS, Riser
from benchmarks.leaderboard import settings
from benchmarks.leaderboard.environments import Untold

DEVELOPMENT = (
    "stationary",
    "four-switches",
    "tv-gp-0.01",
    "tv-gp-0.1",
    "cosine",
    "intel-temperature",
    "molene-wind",
)
VALIDATION = tuple(name for name in settings.RANKED if name not in DEVELOPMENT)
SIMULATED = {
    "development": ("heavy-tails", "partial-switches", "drift-stops", "bernoulli"),
    "validation": ("noise-changes", "daily-cycle", "arms-come-and-go", "misleading-history", "bernoulli"),
}
UNSEEN = ("cmu-light", "molene-rain", "beijing-o3")
KEY = ("environment", "policy", "seed", "replicate")
COLUMNS = ("environment", "policy", "replicate", "seed", "regret", "ms_per_step")


def _lengthscale(factor: float) -> Callable[[Knowledge], Knowledge]:
    def mistaken(knowledge: Knowledge) -> Knowledge:
        kernel = copy.deepcopy(knowledge.kernel)
        kernel.lengthscale = factor * kernel.lengthscale
        return replace(knowledge, kernel=kernel)

    return mistaken


def _noise(factor: float) -> Callable[[Knowledge], Knowledge]:
    return lambda knowledge: replace(knowledge, noise_variance=factor * knowledge.noise_variance)


def _in_other_units(knowledge: Knowledge) -> Knowledge:
    """What is told of rewards r where 1000 r + 5000 are played, in units of what is played here."""
    kernel = ScaleKernel(copy.deepcopy(knowledge.kernel)).to(torch.float64)
    kernel.outputscale = 1e-6
    return replace(
        knowledge,
        kernel=kernel.requires_grad_(False),
        noise_variance=1e-6 * knowledge.noise_variance,
        prior_mean=(knowledge.prior_mean - 5000.0) / 1000.0,
    )


@dataclass(frozen=True)
class WithHistory:
    """``auto`` told 200 rewards of every arm from the time before; its problem is a ``Riser``'s."""

    riser: str

    def __call__(self, problem: Problem, block: Block) -> Policy:
        """The policy of these replicates."""
        past = Riser(self.riser).history(block)
        return recipes.auto(problem.arms, history=past, replicates=block.replicates)


HISTORY = "auto, told the history"


@dataclass(frozen=True)
class Misled:
    """``auto`` told the kernel, with a mistake in what is told."""

    mistaken: Callable[[Knowledge], Knowledge]

    def __call__(self, problem: Problem, block: Block) -> Policy:
        """The policy of these replicates."""
        told = self.mistaken(problem.knowledge)
        return recipes.auto(
            problem.arms,
            kernel=told.kernel,
            noise_variance=told.noise_variance,
            prior_mean=told.prior_mean,
            replicates=block.replicates,
        )


MISTAKES = {
    "auto, length-scale times 5": Misled(_lengthscale(5.0)),
    "auto, length-scale over 5": Misled(_lengthscale(0.2)),
    "auto, noise variance times 100": Misled(_noise(100.0)),
    "auto, noise variance over 100": Misled(_noise(0.01)),
    "auto, rewards times 1 000 plus 5 000": Misled(_in_other_units),
}
POLICIES: dict[str, Callable[[Problem, Block], Policy]] = {
    "auto": RecipeSetting("auto"),
    settings.UNTOLD: settings.POLICIES[settings.UNTOLD],
}
NEVER = {
    "auto, never looking again": RecipeSetting("auto", {"look_again": 0.0}),
    f"{settings.UNTOLD}, never looking again": Untold(options={"look_again": 0.0}),
}


def make_problem(environment: str, block: Block, data: Path) -> Problem:
    """The environment for these replicates; records are as long as on the leaderboard, from as many starts."""
    if environment == "firm":
        return Firm()(block)
    if environment in UNSEEN:
        return Unseen(environment, str(data))(block)
    if environment in DEVELOPED_ON:
        return Developed(environment, str(data))(block)
    if environment in RISERS:
        return Riser(environment)(block)
    simulated = {name for names in SIMULATED.values() for name in names}
    if environment in simulated:
        return Simulated(environment)(block)
    return settings.environments(data)[environment](block)


def play(environment: str, policy: str, block: Block, data: Path) -> pd.DataFrame:
    """A row per replicate: total regret (of a hidden riser that of the 500 steps after) and time of a step."""
    torch.manual_seed(block.seed)
    riser = Riser(environment) if environment in RISERS else None
    if riser is not None:
        block = Block(block.replicates, riser.horizon, block.first_replicate, block.seed)
    problem = make_problem(environment, block, data)
    steps = min(block.horizon, problem.horizon or block.horizon)
    block = Block(block.replicates, steps, block.first_replicate, block.seed)
    made = (settings.POLICIES | POLICIES | MISTAKES | NEVER | {HISTORY: WithHistory(environment)})[policy]
    history = run(
        made(problem, block), problem, steps, seed=block.seed, first_replicate=block.first_replicate
    )
    regret = history.regret.sum(-1) if riser is None else riser.counted(history.regret, block)
    return pd.DataFrame(
        {
            "environment": environment,
            "policy": policy,
            "replicate": range(block.first_replicate, block.first_replicate + block.replicates),
            "seed": block.seed,
            "regret": regret.numpy(),
            "ms_per_step": history.ms_per_step,
        },
        columns=list(COLUMNS),
    )
