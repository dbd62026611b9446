"""What waiting costs anyone: the regret of a player who knows all that was true when the last answer was asked for."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from bandits_torch.problems.problem import Problem
from benchmarks.parallel.points import PointDraws
from benchmarks.parallel.race import MODES, Q, Size, problem_of


@cache
def floor(kind: str, over: str, size: Size, mode: str) -> Tensor:
    """Regret of each replicate, (S,), that no policy is below in expectation, whatever it was told so far.

    A question of step t can count on answers of questions asked late steps before, the first ones on none: 1 step one
    at a time and with workers, eight with eight open. The player here knows all of f_{t - late}, without noise, and
    plays its maximum, which is that of the mean of f_t given it (tv-gp is a Markov process). Where f was drawn anew in
    between, or nothing was answered yet, all choices are alike to anyone: the mean regret over all of them counts.
    """
    problem, late = problem_of(kind, over, size), Q if mode.startswith(f"{Q} rolling") else 1
    asked = 1 if late == Q or MODES[mode][0] == 1 else Q  # questions of a step
    steps = range(1, size.horizon + 1)
    if mode.startswith(f"{Q} in batches"):
        steps, late = range(1, size.horizon + 1, Q), Q
    elif mode == f"{Q} workers":
        steps = range(1, size.horizon // Q + 1)
    drifts = kind == "tv-gp"
    total = torch.zeros(size.replicates).double()
    for step in steps:
        values = _values(problem, step)
        known = _values(problem, step - late) if step > late else None
        of_use = known is not None and (drifts or torch.equal(known, values))
        if of_use:
            assert known is not None
            played = values.gather(-1, known.argmax(-1, keepdim=True)).squeeze(-1)
        else:
            played = values.mean(-1)
        total += asked * (values.amax(-1) - played)
    return total


def _values(problem: Problem, step: int) -> Tensor:
    """f_step of all arms, or of the points of a grid, (S, N)."""
    if isinstance(problem, PointDraws):
        return problem.on_grid(step)
    values = problem.expected_rewards(step)
    return values.expand(problem.replicates, -1)
