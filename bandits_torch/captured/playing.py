"""A run in blocks of captured steps: the problem's inputs to a block, and the loop over blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.arm_context import ArmContext, mask_of
from bandits_torch.captured.blocks import CudaGraphs, PlainCalls, best, compiled_blocks, launcher
from bandits_torch.captured.steps import (
    ArmSteps,
    AveragingSteps,
    Books,
    CapturedSteps,
    Given,
    IndexSteps,
    refused,
)
from bandits_torch.history import Recorder
from bandits_torch.policies.arm_policy import ArmPolicy
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.index import IndexPolicy, RewardImprovementPolicy
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.streams import ReplicateStreams

_STEPS: dict[type[Policy], Callable[[Any], CapturedSteps]] = {
    **dict.fromkeys((IndexPolicy, RewardImprovementPolicy), IndexSteps),
    ModelAveraging: AveragingSteps,
}


class World:
    """What a problem does in a block of steps.

    Args:
        problem: one whose noise does not depend on the arms pulled (``noise_is_added``).
        streams: of the noise, which is drawn number by number as in a plain run.

    Raises ValueError that says why for a problem that cannot be captured.
    """

    def __init__(self, problem: Problem, streams: ReplicateStreams) -> None:
        name = type(problem).__name__
        if problem.dim:
            raise refused(name, "arms by index can be, points of a domain cannot")
        if type(problem).pull is not Problem.pull or type(problem).score is not Problem.score:
            raise refused(name, "it has a pull or a score of its own")
        if isinstance(problem.available(1), ArmContext):
            raise refused(name, "every step has a context")
        if not (problem.noise_is_added and _told_with_noise(type(problem))):
            raise refused(name, "its noise may depend on the arms pulled (noise_is_added is not declared)")
        self.problem, self.streams = problem, streams
        self._none = torch.zeros(streams.replicates, dtype=torch.long, device=problem.arms.device)

    def given(self, first: int, count: int) -> Given:
        """Expected rewards (k, R, N), noise (k, S) and, if arms are missing, masks (k, 1, N) or (k, S, N); k is 1 for
        values that do not change."""
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
    """Row j, or the only row if there is one for all steps."""
    return values[j if len(values) > 1 else 0]


def pulled(given: Given, j: int, arm: Tensor) -> tuple[Tensor, Tensor]:
    """Expected rewards and rewards (S,) of the arms (S,) of step j."""
    expected = at_step(given["expected"], j).expand(len(arm), -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
    return expected, expected + given["noise"][j]


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
    """Whether ``noise_is_added`` was declared in the class that defines ``noise``, or in a subclass of it."""
    order = kind.__mro__
    said = next(i for i, base in enumerate(order) if "noise_is_added" in vars(base))
    return said <= next(i for i, base in enumerate(order) if "noise" in vars(base))


def block(steps: CapturedSteps, count: int, given: Given) -> Given:
    """``count`` steps as one function of tensors, from inputs (k, ...) to recorded values (k, S)."""
    books: Books = defaultdict(list)
    rows = []
    for j in range(count):
        expected: list[Tensor] = []

        def pull(arm: Tensor, j: int = j, expected: list[Tensor] = expected) -> Tensor:
            mean, reward = pulled(given, j, arm)
            expected += [mean, reward]
            return reward

        available = given.get("available")
        mask = None if available is None else at_step(available, j)
        row = steps.step(given, j, mask, pull, books)
        rows.append(row | {"expected": expected[0], "reward": expected[1]})
    steps.close(books)
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]} | {"best": best(given)}


def captured_steps(policy: Policy) -> CapturedSteps:
    """The captured steps of ``policy``; ValueError that says why, if it has none."""
    validation.instance("policy", policy, Policy, "a Policy")
    if isinstance(policy, ArmPolicy):
        return ArmSteps(policy)
    if type(policy) not in _STEPS:
        can = "an ArmPolicy, an IndexPolicy over an ArmGP and ModelAveraging (auto) can"
        raise refused(type(policy).__name__, can)
    return _STEPS[type(policy)](policy)


def may_look(launch: PlainCalls | CudaGraphs) -> bool:
    """Whether a block launched this way may read values on the host. If so, a form that grows does less work."""
    return isinstance(launch, PlainCalls)


def play_captured(
    policy: Policy,
    problem: Problem,
    horizon: int,
    done: int,
    streams: ReplicateStreams,
    recorder: Recorder,
    plain: Callable[[int], None],
    after: Callable[[int], None],
    pause: Callable[[int], int],
    most: int | None = None,
) -> str:
    """Play steps ``done`` + 1 to ``horizon``, at most ``most`` in one launch. Returns how they were launched.

    Args:
        policy, problem, horizon: as of ``run``.
        done: steps played before.
        streams: of the noise.
        recorder: records every block.
        plain: plays a step like ``run`` if it cannot be captured.
        after: called with the number of the last step of every block.
        pause: the number of steps from this one after which the host must decide again.
        most: steps in a launch; None: the number that suits the launcher.

    A block in a graph has ``most`` steps or a power of two: every length is a graph of its own.
    """
    steps, world = captured_steps(policy), World(problem, streams)
    device = problem.arms.device
    launch = compiled_blocks(steps, device) or launcher(device)
    most = launch.block_steps if most is None else most
    steps.static = not may_look(launch)
    steps.begin(horizon - done, most)
    step = done
    while step < horizon:
        wanted = min(most, horizon - step, pause(step))
        times = [problem.time(s) for s in range(step + 1, step + wanted + 1)]
        count = steps.most(times)
        if steps.static and count < most:
            count = 1 << count.bit_length() >> 1  # 0 stays 0
        if count == 0:
            plain(step + 1)
            step += 1
            continue
        start = perf_counter()
        times = times[:count]
        with torch.no_grad():
            given = world.given(step + 1, count) | steps.given(times)
            rows = launch((count, steps.key()), partial(block, steps, count), given)
            steps.after(times, rows)
        recorder.block(step + 1, times, rows, perf_counter() - start)
        step += count
        after(step)
    recorder.one_a_step(steps.finish())
    return launch.said
