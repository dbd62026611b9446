"""Drifting draws over the unit square with a measured outcome, a drifting draw too, that must stay below a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import recipes
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.models.outcome_constraint import OutcomeConstraint
from bandits_torch.problems.problem import gaussian_noise
from bandits_torch.streams import ReplicateStreams
from benchmarks.parallel.race import PointDraws

_OF_OUTCOME = 1_000_003  # what is added to the seed for the outcome's own draws
_LIMIT = 0.5  # of the outcome, whose standard deviation is 1
_SEARCH = {"num_restarts": 1, "raw_samples": 64, "options": {"maxiter": 10}}


class SafePointDraws(PointDraws):
    """``PointDraws`` of kind tv-gp with the outcome "load", an independent draw alike, that must stay below 0.5.

    Regret is against the best point of the grid within the limit, or, where there is none, that of the least outcome.
    ``safe_points``: that of the least outcome at step 1. A run records ``violation``: 1 where the outcome is above.
    """

    outcome_names = ("load",)
    noise_is_added = False  # what is measured is drawn beside it

    def __init__(self, horizon: int, replicates: int, seed: int, forgetting_rate: float) -> None:
        super().__init__("tv-gp", horizon, replicates, seed, forgetting_rate)
        self._outcome = PointDraws("tv-gp", horizon, replicates, seed + _OF_OUTCOME, forgetting_rate)
        own = self.knowledge
        load = OutcomeConstraint("load", high=_LIMIT, kernel=own.kernel, noise_variance=own.noise_variance)
        self.knowledge = replace(own, constraints=(load,))
        least = self._outcome.on_grid(1).argmin(-1)
        self.safe_points = self.grid[least].unsqueeze(1)

    def best(self, step: int) -> Tensor:
        """See ``ContinuousProblem``; within the limit."""
        outcome = self._outcome.on_grid(step)
        allowed = (outcome <= _LIMIT) | (outcome == outcome.amin(-1, keepdim=True))
        return self.on_grid(step).masked_fill(~allowed, -torch.inf).amax(-1)

    def measure(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """The outcome with normal noise, (S, 1)."""
        outcome = self._outcome.expected(step, arm)
        return (outcome + gaussian_noise(self._outcome.noise_scale, streams)).unsqueeze(-1)

    def trace(self, step: int, arm: Tensor) -> dict[str, Tensor | float]:
        """``violation`` and ``feasible``, the share of the grid within the limit, (S,) each."""
        feasible = (self._outcome.on_grid(step) <= _LIMIT).double().mean(-1)
        violation = (self._outcome.expected(step, arm) > _LIMIT).double()
        return {"violation": violation, "feasible": feasible}


def play(problem: SafePointDraws, name: str, options: dict[str, Any], horizon: int) -> History:
    """One policy on one problem."""
    safe = {"safe_points": problem.safe_points} if name == "safe_gp_ucb" else {}
    search = {"search": {"raw_samples": 128} if safe else _SEARCH}
    policy = recipes.build(
        name, problem, replicates=problem.replicates, horizon=horizon, **(safe | search | options)
    )
    return run(policy, problem, horizon, seed=1)
