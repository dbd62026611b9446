"""Plain and captured steps of a policy on a device, one after another, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import torch

from bandits_torch.captured import captured_steps
from bandits_torch.captured.blocks import CudaGraphs, World, block, launcher
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.problems.stationary import StationaryProblem
from bandits_torch.streams import ReplicateStreams
from benchmarks.gpu.launches import CountLaunches
from benchmarks.speed.measuring import clock
from benchmarks.speed.saturation import host_waits
from benchmarks.speed.workload import NOISE_VARIANCE, make_task, ucb_on_arms


@dataclass(frozen=True)
class Settings:
    """What was asked for, and until when.

    Attributes:
        device: ``"cuda"`` or ``"cpu"``.  small: a rehearsal.  ends: ``perf_counter`` at which a page has to stop.
    """

    device: str
    small: bool
    ends: float = field(default=float("inf"))

    def pick(self, full: Any, small: Any) -> Any:
        """``small`` in a rehearsal, else ``full``."""
        return small if self.small else full

    @property
    def left(self) -> float:
        """Seconds this page has left."""
        return self.ends - perf_counter()


def smooth_problem(
    num_arms: int, replicates: int, device: str, dtype: torch.dtype = torch.float64
) -> Problem:
    """Functions of the speed benchmarks' task, as a problem."""
    task = make_task(num_arms, "cpu", replicates=replicates)
    arms, functions = (value.to(device=device, dtype=dtype) for value in (task.arms, task.functions))
    return StationaryProblem(arms, functions, NOISE_VARIANCE**0.5)


def ucb(num_arms: int, replicates: int, device: str, **options: Any) -> tuple[Policy, Problem]:
    """GP-UCB of constant width and what it plays against."""
    task = make_task(num_arms, device, replicates=replicates)
    policy = ucb_on_arms(task, **options)
    return policy, smooth_problem(num_arms, replicates, device, policy.model.noise_variance.dtype)


class Stepper:
    """Plays on: ``plain`` or ``captured`` steps, with nobody waiting for a result."""

    def __init__(self, policy: Policy, problem: Problem, k: int = 32, static: bool | None = None) -> None:
        self.policy, self.problem, self.k, self.done = policy, problem, k, 0
        device = problem.arms.device
        self.streams = ReplicateStreams(
            0, policy.replicates, dtype=problem.arms.dtype, device=device, purpose="noise"
        )
        self.world = World(problem, self.streams)
        self.launch = launcher(device)
        # Whether blocks look at no value though they may; None: as in a run.
        self.static = isinstance(self.launch, CudaGraphs) if static is None else static
        self.steps: Any = None

    def plain(self, count: int) -> None:
        """Steps as ``run`` plays them."""
        self.steps = None
        for _ in range(count):
            self.done += 1
            time = self.problem.time(self.done)
            choice = self.policy.choose(time)
            reward = self.problem.pull(self.done, choice.arm, self.streams)
            self.policy.learn(Observation(time, choice.arm, reward, choice.why))

    def captured(self, count: int) -> int:
        """Captured steps, at least so many; how many blocks they were."""
        if self.steps is None:
            self.steps = captured_steps(self.policy)
            self.steps.static = self.static
            self.steps.begin(100_000, self.k)
        end, blocks = self.done + count, 0
        while self.done < end:
            times = [self.problem.time(self.done + j + 1) for j in range(self.k)]
            size = self.steps.most(times)
            size = size if size == self.k else 1 << size.bit_length() >> 1
            if size == 0:
                steps, self.steps = self.steps, None
                self.plain(1)
                self.steps = steps
                continue
            with torch.no_grad():
                given = self.world.given(self.done + 1, size) | self.steps.given(times[:size])
                rows = self.launch((size, self.steps.key()), partial(block, self.steps, size), given)
                self.steps.after(times[:size], dict(rows))
            self.done, blocks = self.done + size, blocks + 1
        return blocks


def seconds_a_step(work: Any, steps: int, device: str) -> float:
    """Of ``work(steps)``, waiting for the device before and after alone."""
    start = clock(device)
    work(steps)
    return (clock(device) - start) / steps


def both(
    policy: Policy,
    problem: Problem,
    before: int,
    steps: int,
    settings: Settings,
    k: int = 32,
    static: bool | None = None,
) -> dict[str, Any]:
    """Seconds, kernels and host waits of plain and captured steps; the captured ones after their graphs are made."""
    stepper, device = Stepper(policy, problem, k, static), settings.device
    stepper.plain(before)
    told: dict[str, Any] = {"plain_seconds": seconds_a_step(stepper.plain, steps, device)}
    told["plain_waits"] = host_waits(partial(stepper.plain, 4), device) / 4
    with CountLaunches() as asked:
        stepper.plain(1)
    told |= {"plain_kernels": asked.kernels, "plain_reads": asked.host_reads}
    stepper.captured(3 * k)
    told["captured_seconds"] = seconds_a_step(stepper.captured, max(steps, 2 * k), device)
    told["captured_waits"] = host_waits(partial(stepper.captured, 2 * k), device) / (2 * k)
    return told | _counts_of_block(stepper)


def _counts_of_block(stepper: Stepper) -> dict[str, float]:
    """What a step of a block asks for that is launched as it is, without what the host does around it."""
    plain, counted = stepper.launch, CountLaunches()
    sizes = []

    def counting(key: Any, work: Any, given: Any) -> Any:
        sizes.append(key[0])
        with counted:
            return work(given)

    stepper.launch = counting  # type: ignore[assignment]
    try:
        stepper.captured(stepper.k)
    finally:
        stepper.launch = plain
    steps = sum(sizes)
    return {
        "captured_kernels": counted.kernels / steps,
        "captured_reads": counted.host_reads,
        "captured_allocated": counted.allocated / steps,
    }
