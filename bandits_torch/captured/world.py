"""The problem's side of captured steps: rewards, noise and masks of a block, laid out before it."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.arm_context import ArmContext, mask_of
from bandits_torch.captured.steps import Given, refused
from bandits_torch.problems.problem import Problem, available_rewards
from bandits_torch.streams import ReplicateStreams


class World:
    """What a problem does in a block of steps.

    Args:
        problem: one whose noise does not depend on the arms pulled (``noise_is_added``).
        streams: of the noise: it is drawn as in a plain run, number by number.

    Raises ValueError that says why for a problem that cannot be captured.
    """

    def __init__(self, problem: Problem, streams: ReplicateStreams) -> None:
        name = type(problem).__name__
        if problem.dim:
            raise refused(name, "arms by index can be, points of a domain cannot")
        if type(problem).pull is not Problem.pull or type(problem).score is not Problem.score:
            raise refused(name, "it has a pull or a score of its own")
        if isinstance(problem.available(1), ArmContext):
            raise refused(name, "a context comes with every step")
        if not (problem.noise_is_added and _told_with_noise(type(problem))):
            raise refused(name, "its noise may depend on the arms pulled (noise_is_added is not declared)")
        self.problem, self.streams = problem, streams
        self._none = torch.zeros(streams.replicates, dtype=torch.long, device=problem.arms.device)

    def given(self, first: int, count: int) -> Given:
        """Expected rewards (k, R, N), noise (k, S) and, if arms are missing, masks (k, 1, N) or (k, S, N); k is 1 for
        what stays as it is."""
        steps, problem = range(first, first + count), self.problem
        given = {
            "expected": _stacked([problem.expected_rewards(step) for step in steps]),
            "noise": torch.stack([problem.noise(step, self._none, self.streams) for step in steps]),
        }
        masks = [mask_of(problem.available(step)) for step in steps]
        if any(mask is not None for mask in masks):
            every = torch.ones(problem.num_arms, dtype=torch.bool, device=problem.arms.device)
            filled = [(every if mask is None else mask).reshape(-1, problem.num_arms) for mask in masks]
            given["available"] = _stacked(filled)
        return given


def at_step(values: Tensor, j: int) -> Tensor:
    """Row j of what may be one row for all steps."""
    return values[j if len(values) > 1 else 0]


def pulled(given: Given, j: int, arm: Tensor) -> tuple[Tensor, Tensor]:
    """Expected rewards and rewards (S,) of the arms (S,) of step j."""
    expected = at_step(given["expected"], j).expand(len(arm), -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
    return expected, expected + given["noise"][j]


def best(given: Given) -> Tensor:
    """The best expected rewards there were, (k, S) or of fewer rows that broadcast to it."""
    return available_rewards(given["expected"], given.get("available")).amax(-1)


def _stacked(values: list[Tensor]) -> Tensor:
    first = values[0]
    same = all(
        value.data_ptr() == first.data_ptr()
        and value.shape == first.shape
        and value.stride() == first.stride()
        for value in values
    )
    return first.unsqueeze(0) if same else torch.stack(values)


def _told_with_noise(kind: type) -> bool:
    """Whether ``noise_is_added`` is said of the very method ``noise`` that the class has."""
    order = kind.__mro__
    said = next(i for i, base in enumerate(order) if "noise_is_added" in vars(base))
    return said <= next(i for i, base in enumerate(order) if "noise" in vars(base))
