"""Takes down a run on a continuous domain: points in place of arms, scored by the problem's own maximum."""

from __future__ import annotations

import math
from typing import Any, cast

from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.problem import Problem
from bandits_torch.recorder import Recorder


class PointRecorder(Recorder):
    """A ``Recorder`` of points (S, d); a point outside the domain of its step is refused as an arm not available is."""

    def __init__(self, policy: Policy, problem: Problem, horizon: int) -> None:
        super().__init__(policy, problem, horizon)
        self._arms = self._rewards.new_zeros(*self._shape, problem.dim)

    def chosen(self, step: int, arm: Tensor) -> None:
        """Take down the points (S, d), before they are played."""
        shape = (self._shape[1], self._problem.dim)
        ok = arm.shape == shape and arm.is_floating_point()
        validation.shape_is("arm", arm, ok, f"{shape}, floating point: a point of each replicate")
        self._arms[step - 1] = arm

    def _score(self, step: int, arm: Tensor, available: Any) -> tuple[Tensor, Tensor]:
        """Expected rewards (S,), minus infinity outside the domain, and the maximum over it."""
        problem = cast(ContinuousProblem, self._problem)
        domain = problem.domain if available is None else available
        inside = domain.contains(arm) & (arm - domain.fix(arm)).eq(0).all(-1)
        return problem.expected(step, arm).where(inside, -math.inf), problem.best(step)
