"""A run in blocks of captured steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from bandits_torch.captured.compiled import compiled_blocks
from bandits_torch.captured.launching import CudaGraphs, PlainCalls, launcher, rows_of
from bandits_torch.captured.steps import Books, CapturedSteps, Given, captured_steps
from bandits_torch.captured.world import World, best, pulled
from bandits_torch.policies.policy import Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.recorder import Recorder
from bandits_torch.streams import ReplicateStreams


def block(steps: CapturedSteps, count: int, given: Given) -> Given:
    """``count`` steps as one function of tensors: what is given, (k, ...) each, to what is recorded, (k, S) each."""
    books: Books = defaultdict(list)
    rows = []
    for j in range(count):
        expected: list[Tensor] = []

        def pull(arm: Tensor, j: int = j, expected: list[Tensor] = expected) -> Tensor:
            mean, reward = pulled(given, j, arm)
            expected += [mean, reward]
            return reward

        available = given.get("available")
        mask = None if available is None else available[j if len(available) > 1 else 0]
        row = steps.step(given, j, mask, pull, books)
        rows.append(row | {"expected": expected[0], "reward": expected[1]})
    steps.close(books)
    return rows_of(rows) | {"best": best(given)}


def may_look(launch: PlainCalls | CudaGraphs) -> bool:
    """Whether a block launched so may look at values: where that costs nothing, a form that grows does less."""
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
    """Play steps ``done`` + 1 to ``horizon``, at most ``most`` in one launch; how they were launched.

    Args:
        policy, problem, horizon: as of ``run``.
        done: steps played before.
        streams: of the noise.
        recorder: takes down every block.
        plain: plays a step as ``run`` does; for those that cannot be captured.
        after: called with the number of the last step of every block.
        pause: how many steps after this one the host wants to be asked again.
        most: steps in a launch; None: as many as suit how they are launched.

    A block has ``most`` steps or a power of two: every length is a graph of its own.
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
        count = count if count == most else 1 << count.bit_length() >> 1  # 0 stays 0
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
