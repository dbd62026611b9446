"""Plain and captured steps of a policy on a device, one after another, and what they cost."""

from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bandits_torch.captured import captured_steps
from bandits_torch.captured.blocks import ProblemInputs, block, launcher
from bandits_torch.policies import Observation, Policy
from bandits_torch.problems import Problem, StationaryProblem
from bandits_torch.streams import ReplicateStreams
from benchmarks.speed.measuring import clock
from benchmarks.speed.saturation import host_waits
from benchmarks.speed.workload import NOISE_VARIANCE, make_task, ucb_on_arms

# Operations that say how memory is seen, and launch nothing.
_VIEWS = {
    "alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "movedim", "permute", "select", "slice",
    "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as",
    "_reshape_alias", "_unsafe_view", "is_same_size", "resolve_conj", "resolve_neg", "sym_size",
}  # fmt: skip
# How many kernels an operation launches that is written in others, as PyTorch's profiler shows: copies come first, and
# the largest number is tested for infinity.
_SEVERAL = {"logsumexp": 9, "masked_fill": 2, "scatter": 2, "scatter_reduce": 2, "baddbmm": 2}
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# Operations whose result the host has to know, or whose shape depends on values.
_WAITS = {
    "_local_scalar_dense",
    "item",
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "is_nonzero",
    "unique_dim",
}


class CountLaunches(TorchDispatchMode):
    """``with CountLaunches() as asked: ...``; then ``kernels`` (operations that are no views; those written in others
    count as several), ``host_reads`` and ``allocated`` bytes of results."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.host_reads = self.allocated = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if _dense(x)}
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name in _WAITS:
            self.host_reads += 1
        if name not in _VIEWS and name not in _EMPTY:
            self.kernels += _SEVERAL.get(name, 1)
        for x in tree_leaves(out):
            if _dense(x) and x.untyped_storage().data_ptr() not in given:
                self.allocated += x.untyped_storage().nbytes()
        return out


def _dense(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.layout == torch.strided and x.device.type != "meta"


@dataclass(frozen=True)
class Settings:
    """``device``: ``"cuda"`` or ``"cpu"``; ``small``: a rehearsal; ``ends``: ``perf_counter`` at which a page has to
    stop."""

    device: str
    small: bool
    ends: float = field(default=float("inf"))

    def pick(self, full: Any, small: Any) -> Any:
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

    def __init__(self, policy: Policy, problem: Problem, k: int = 32, blind: bool | None = None) -> None:
        self.policy, self.problem, self.k, self.done = policy, problem, k, 0
        device = problem.arms.device
        self.streams = ReplicateStreams(
            0, policy.replicates, dtype=problem.arms.dtype, device=device, purpose="noise"
        )
        self.inputs = ProblemInputs(problem, self.streams)
        self.launch = launcher(device)
        # Whether blocks look at no value though they may; None: as in a run.
        self.blind = self.launch.blind if blind is None else blind
        self.steps: Any = None

    def plain(self, count: int) -> None:
        self.steps = None
        for _ in range(count):
            self.done += 1
            time = self.problem.time(self.done)
            choice = self.policy.choose(time)
            reward = self.problem.pull(self.done, choice.arm, self.streams)
            self.policy.learn(Observation(time, choice.arm, reward, choice.why))

    def captured(self, count: int) -> None:
        """Captured steps, at least so many."""
        if self.steps is None:
            self.steps = captured_steps(self.policy)
            self.steps.blind = self.blind
            self.steps.begin(100_000, self.k)
        end = self.done + count
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
                given = self.inputs.given(self.done + 1, size)
                given |= self.steps.given(times[:size], given)
                rows = self.launch((size, self.steps.key()), partial(block, self.steps, size), given)
                self.steps.after(times[:size], dict(rows))
            self.done += size


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
    device: str,
    k: int = 32,
    blind: bool | None = None,
) -> dict[str, Any]:
    """Seconds, kernels and host waits of plain and captured steps; the captured ones after their graphs are made."""
    stepper = Stepper(policy, problem, k, blind)
    stepper.plain(before)
    measured: dict[str, Any] = {"plain_seconds": seconds_a_step(stepper.plain, steps, device)}
    measured["plain_waits"] = host_waits(partial(stepper.plain, 4), device) / 4
    with CountLaunches() as asked:
        stepper.plain(1)
    measured |= {"plain_kernels": asked.kernels, "plain_reads": asked.host_reads}
    stepper.captured(3 * k)
    measured["captured_seconds"] = seconds_a_step(stepper.captured, max(steps, 2 * k), device)
    measured["captured_waits"] = host_waits(partial(stepper.captured, 2 * k), device) / (2 * k)
    return measured | _counts_of_block(stepper)


def _counts_of_block(stepper: Stepper) -> dict[str, float]:
    """What a step of a block asks for that is launched as it is, without what the host does around it."""
    plain, counted = stepper.launch, CountLaunches()
    sizes = []

    def counting(key: Any, work: Any, given: Any) -> Any:
        sizes.append(key[0])
        with counted:
            return work(given)

    stepper.launch = counting
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
