"""A run in blocks of captured steps: a problem's inputs to a block, the loop over blocks, and how a block is launched.

A block is a plain call, a CUDA graph, or a loop that numba compiles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from torch import Tensor

from bandits_torch import validation
from bandits_torch.captured.steps import (
    ArmSteps,
    AveragingSteps,
    Books,
    CapturedSteps,
    Given,
    IndexSteps,
    frames_of,
    refused,
)
from bandits_torch.files import interrupts_held_back
from bandits_torch.history import Recorder
from bandits_torch.models.arms.covariance_form import CovarianceForm
from bandits_torch.models.arms.members import PENDING, ArmMembers, SmoothMembers
from bandits_torch.policies.arm_policy import ArmPolicy
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.choices.arms import Arms
from bandits_torch.policies.index import IndexPolicy, RewardImprovementPolicy
from bandits_torch.policies.learned_units import MemberScale
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.sharing import FixedShare
from bandits_torch.problems.problem import Problem, available_rewards
from bandits_torch.state import writes
from bandits_torch.streams import ReplicateStreams

Block = Callable[[Given], Given]


class PlainCalls:
    """Calls the block. On a CPU a block saves the Python code between the kernels."""

    block_steps = 32
    blind = False  # a block may read values on the host, so that a growing form does less work

    @property
    def said(self) -> str:
        """How blocks were launched."""
        return "plain calls"

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block."""
        return block(given)


class CudaGraphs:
    """Replays CUDA graphs, one for each kind of block.

    The first block of a kind runs on a side stream, as a warm-up. The second is captured, which does not run it, and
    replayed, as are all later ones. The inputs of a block are copied to where the graph reads them. They include the
    random numbers: a graph draws none.

    The ``most`` most recently used graphs are kept. A graph takes the memory of the intermediate results of its block.
    """

    block_steps = 32
    blind = True
    most = 16
    said = "CUDA graphs"

    def __init__(self) -> None:
        self._side = torch.cuda.Stream()
        self._warm: set[Hashable] = set()
        self._graphs: dict[Hashable, tuple[Any, Given, Given]] = {}
        self.captured = 0  # graphs captured so far

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block, valid until the next block of this kind."""
        shapes = tuple((name, tuple(value.shape), value.dtype) for name, value in sorted(given.items()))
        key = (key, shapes)
        if key in self._graphs:
            graph, read, rows = self._graphs[key] = self._graphs.pop(key)  # the most recently used last
            for name, value in given.items():
                if read[name].data_ptr() != value.data_ptr():
                    read[name].copy_(value)
            graph.replay()
            return dict(rows)
        if key not in self._warm:
            self._warm.add(key)
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                rows = block(given)
            torch.cuda.current_stream().wait_stream(self._side)
            return rows
        if len(self._graphs) >= self.most:
            self._graphs.pop(next(iter(self._graphs)))
        read = {name: value.clone() for name, value in given.items()}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._side):
            rows = block(read)
        self.captured += 1
        self._graphs[key] = graph, read, rows
        graph.replay()
        return dict(rows)


def launcher(device: torch.device) -> PlainCalls | CudaGraphs:
    """The launcher of blocks for this device."""
    return CudaGraphs() if device.type == "cuda" else PlainCalls()


def best(given: Given) -> Tensor:
    """The best expected rewards among the available arms, (k, S), or fewer rows that broadcast to it."""
    return available_rewards(given["expected"], given.get("available")).amax(-1)


_NONE = torch.zeros(1, 1, 1, dtype=torch.float64)


class CompiledBlocks(PlainCalls):
    """Plays all steps of a block for one replicate before the next one, so a replicate's state is read from memory
    once a block and not once a step. Compiled by numba, which the extra ``fast`` installs.

    A block that the loop cannot play is played by ``PlainCalls``. ``said`` counts both. Arms differ from those of plain
    steps only if two indices are equal up to rounding.

    Args:
        steps: the captured steps.
        play: ``index_block`` or ``averaging_block``, which plays a block, writes its arms, rewards and expected
            rewards, (k, S) each, and returns its other rows; None, with nothing changed, if it cannot play the block.
        block_steps: the largest number of steps in a block.
    """

    def __init__(self, steps: CapturedSteps, play: Callable[..., Given | None], block_steps: int) -> None:
        self.steps, self.play, self.block_steps = steps, play, block_steps
        self._compiled, self._plain = 0, 0  # steps played either way

    def __call__(self, key: Hashable, block: Block, given: Given) -> Given:
        """The rows of the block."""
        count, replicates = given["noise"].shape
        arm = torch.zeros(count, replicates, dtype=torch.long)
        reward, expected = torch.zeros(2, count, replicates, dtype=torch.float64)
        every = torch.ones(1, 1, given["expected"].shape[-1], dtype=torch.bool)
        from_problem = given["expected"].double(), given["noise"].double(), given.get("available", every)
        rows = self.play(self.steps, given, _arrays(*from_problem), (arm, reward, expected))
        if rows is None:
            self._plain += count
            return super().__call__(key, block, given)
        self._compiled += count
        rows |= {"arm": arm, "reward": reward.to(given["noise"]), "expected": expected.to(given["expected"])}
        return rows | {"best": best(given)}

    @property
    def said(self) -> str:
        """How many steps were compiled, and how many were not."""
        return f"{self._compiled} compiled, {self._plain} in plain calls"


def index_block(
    steps: Any, given: Given, from_problem: tuple[Any, ...], written: tuple[Tensor, ...]
) -> Given | None:
    """A block of ``IndexSteps``: upper confidence bounds, Thompson sampling or improvements over an ``ArmGP`` in the
    covariance form, in float64, with a width that depends on the step and the information gain alone
    (``Width.root_of_gain``).

    Cost: O(32 N) per step and replicate, and a fold, O(32 N^2), every 32 steps, at the speed of the cache while N^2
    numbers fit in it.
    """
    from bandits_torch.captured import compiled_loops

    loop: Any = compiled_loops
    policy, belief, improves = steps.policy, steps.belief, steps.improves
    form, width = belief.form, policy.width
    used_width, bounds = torch.zeros_like(written[1]), improves is None and width is not None
    if not isinstance(form, CovarianceForm) or form.mean.dtype != torch.float64:
        return None
    roots: Any = (1 + used_width, used_width, used_width)  # a width of 1, for draws
    if bounds:
        roots = width.root_of_gain(given["clock"].unsqueeze(-1), steps.model) if "clock" in given else None
    if roots is None:
        return None
    A, P, Q = (torch.as_tensor(part, dtype=torch.float64).expand(used_width.shape) for part in roots)
    if bounds:  # a subclass may have changed ``at`` but not ``root_of_gain``
        at, first = width.at(given["clock"][0], steps.model), A[0] + (P[0] * form.gain + Q[0]).sqrt()
        if not torch.allclose(first, at.expand(len(first)), rtol=1e-9):
            return None
    if form.filled:
        form.fold()
    root = _NONE
    if "normal" in given:
        form.root = root = cast(Tensor, form.root).contiguous()
    variance = form.variance.contiguous()  # a copy if it is a view of C's diagonal
    state = form.mean, variance, form.covariance, root, form.kept, form.gained, form.gain, form.surprise
    rounding = form.removed, form.suspect
    prior = form.prior_covariance, belief.prior_mean, form.noise_variance.squeeze(-1)
    moves = [given.get(name, _NONE) for name in ("kept", "gained", "normal")]
    moves += given.get("leaving_arm", written[0]), given.get("leaving", used_width)
    by_expectation = improves is not None and improves.acquisition is LogExpectedImprovement
    kinds = ["kept" in given, "leaving" in given, "normal" in given]
    kinds += improves is not None, by_expectation, hasattr(policy, "largest")
    inputs = _arrays(*prior), from_problem, _arrays(A, P, Q), _arrays(*moves), tuple(kinds)
    margin = 0.0 if improves is None else improves.margin
    loop.play_index(
        _shared(*state, *rounding), *inputs, margin, steps.largest.numpy(), _shared(*written, used_width)
    )
    return {"width": used_width if at.dim() else used_width[:, 0].clone()} if bounds else {}


def averaging_block(
    steps: Any, given: Given, from_problem: tuple[Any, ...], written: tuple[Tensor, ...]
) -> Given | None:
    """A block of ``AveragingSteps``: ``auto`` over ``ArmMembers`` and ``SmoothMembers`` in float64, with
    ``look_again``, after the origin and unit of rewards and every member's scale have been estimated, and while no
    reward can change the unit.

    Cost: that of the members, at the speed of the cache while P N 24 numbers fit in it.
    """
    from bandits_torch.captured import compiled_loops

    loop: Any = compiled_loops
    policy, parts = steps.policy, steps.parts
    scale, sharing, frame, noise = policy.scale, policy.sharing, policy.frame, policy.model.noise_variance
    framed = not steps.takes_all and bool(scale.learn_offset.any())
    if (framed and not frame.holds(steps.ends)) or bool((scale.strength + scale.count == 0).any()):
        return None
    for part in parts:
        part.clear_rows()
    found = {}
    for state in (scale, sharing, policy.two_values, policy.range, policy.looks, policy):
        for name, value in state.snapshot.items():
            setattr(state, name, value.contiguous())
            found[name.lstrip("_")] = getattr(state, name)
    rates, which = policy.model.forgetting_rate.unique(return_inverse=True)
    members = sharing.log_prior, scale.strength, scale.learn_offset, policy.forgetting_rate, rates, which
    of_all = noise.expand(policy.model.batch_shape), frame.offset.squeeze(-1), frame.factor.squeeze(-1)
    numbers = policy.range.expected, scale.memory, scale.tail, scale.clip
    shared = sharing.share, sharing.behind, sharing.memory, sharing.at_once
    of_parts = tuple(
        loop.Part(
            *_arrays(part.covariances, part.alike, part.kernel, part.prior_mean, part.prior_variance),
            *_shared(part.mean, part.reduction, part.rows, part.pending),
            *_arrays(given[frames_of(k)]),
            sum(len(before.kernel) for before in parts[:k]),
            np.empty((len(from_problem[1]), *part.rows[:, 0, : part.states].shape)),
        )
        for k, part in enumerate(parts)
    )
    held = loop.Held(*_shared(*(found[name] for name in loop.Held._fields)))
    constants = loop.Told(*_arrays(*members, *of_all), *numbers, *shared, policy.plausible, policy.try_all)
    asked = loop.Asked(*_arrays(*(given[name] for name in loop.Asked._fields)))
    trace = noise.new_zeros(len(loop.TRACE), *written[0].shape)
    loop.play_averaging(
        of_parts, held, constants, asked, steps.turn, *from_problem, *_shared(*written, trace)
    )
    scale.state_changed()
    rows = dict(zip(loop.TRACE, trace, strict=True))
    return rows | {name: rows[name].long() for name in ("resets", "doubted")}


def _shared(*values: Tensor) -> tuple[Any, ...]:
    """NumPy arrays that share the tensors' memory."""
    return tuple(value.numpy() for value in values)


def _arrays(*values: Tensor) -> tuple[Any, ...]:
    """NumPy arrays for reading."""
    return tuple(np.ascontiguousarray(value.numpy()) for value in values)


def compiled_blocks(steps: CapturedSteps, device: torch.device) -> CompiledBlocks | None:
    """A launcher of compiled blocks for these steps; None for other policies, on another device, or without numba."""
    if device.type != "cpu" or find_spec("numba") is None:
        return None
    if isinstance(steps, AveragingSteps):
        policy = steps.policy
        over_arms = all(type(part) in (ArmMembers, SmoothMembers) for part in steps.parts)
        kinds = type(policy.scale), type(policy.sharing), policy.model.noise_variance.dtype
        known = over_arms and policy.looks is not None and kinds == (MemberScale, FixedShare, torch.float64)
        return CompiledBlocks(steps, averaging_block, PENDING) if known else None
    # 256, because the first pass over C reads it from memory, once a block
    by_index = isinstance(steps, IndexSteps) and not steps.by_mask
    return CompiledBlocks(steps, index_block, 256) if by_index else None


_STEPS: dict[type[Policy], Callable[[Any], CapturedSteps]] = {
    **dict.fromkeys((IndexPolicy, RewardImprovementPolicy), IndexSteps),
    ModelAveraging: AveragingSteps,
}


class ProblemInputs:
    """The inputs of a block that come from the problem.

    Args:
        problem: one whose noise does not depend on the arms pulled (``noise_is_added``).
        streams: the streams of the noise, which is drawn step by step as in a plain run.

    Raises ValueError that says why for a problem that cannot be captured.
    """

    def __init__(self, problem: Problem, streams: ReplicateStreams) -> None:
        why = problem.why_not_in_blocks()
        if why:
            raise refused(type(problem).__name__, why)
        self.problem, self.streams = problem, streams
        self._none = torch.zeros(streams.replicates, dtype=torch.long, device=problem.arms.device)
        self._arms = Arms(problem.num_arms, streams.replicates)
        self._shapes = (problem.num_arms,), (streams.replicates, problem.num_arms)

    def given(self, first: int, count: int) -> Given:
        """Expected rewards (k, R, N), noise (k, S) and, if arms are not available, masks (k, 1, N) or (k, S, N). The
        first dimension is 1 if expected rewards or masks do not change."""
        steps, problem = range(first, first + count), self.problem
        expected = self._each(problem.expected_rewards, steps)
        for one in {one.shape: one for one in expected}.values():  # as ``Problem.score`` does
            validation.of_shape("expected_rewards", one, (problem.replicates, problem.num_arms))
        given = {
            "expected": _stacked(expected),
            "noise": torch.stack([problem.noise(step, self._none, self.streams) for step in steps]),
        }
        masks = self._each(self._mask, steps)
        if any(mask is not None for mask in masks):
            every = torch.ones(problem.num_arms, dtype=torch.bool, device=problem.arms.device)
            filled = [every if mask is None else mask for mask in masks]
            if len({mask.dim() for mask in filled}) > 1:
                filled = list(torch.broadcast_tensors(*filled))
            available = _stacked(filled)
            given["available"] = available.reshape(len(available), -1, problem.num_arms)
            if available.is_cpu and not bool(available.any(-1).all()):
                for mask in filled:
                    self._arms.check_available(mask)
        return given

    def _mask(self, step: int) -> Tensor | None:
        """The mask of a step, checked as in a plain step, but not whether it leaves an arm."""
        mask = self.problem.available(step)
        usual = type(mask) is Tensor and mask.dtype == torch.bool and mask.shape in self._shapes
        if mask is not None and not usual:
            self._arms.check_available(cast(Any, mask))
        return cast(Any, mask)

    def _each(self, ask: Callable[[int], Any], steps: range) -> list[Any]:
        """What ``ask`` returns at these steps, tensors or None; copies if it writes to tensors that it returned
        before."""
        found = [(one, one if one is None else writes(one)) for one in map(ask, steps)]
        if all(one is None or writes(one) == count for one, count in found):
            return [one for one, _ in found]
        return [one if one is None else one.clone() for one in map(ask, steps)]


def at_step(values: Tensor, j: int) -> Tensor:
    """Row j, or the only row."""
    return values[j if len(values) > 1 else 0]


def pulled(given: Given, j: int, arm: Tensor) -> tuple[Tensor, Tensor]:
    """Expected rewards and rewards (S,) of the arms (S,) of step j."""
    expected = at_step(given["expected"], j).expand(len(arm), -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
    return expected, expected + given["noise"][j]


def _stacked(values: list[Tensor]) -> Tensor:
    first = values[0]
    same = all(
        value is first
        or (
            value.data_ptr() == first.data_ptr()
            and value.shape == first.shape
            and value.stride() == first.stride()
        )
        for value in values
    )
    return first.unsqueeze(0) if same else torch.stack(values)


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
    counted = steps.close(books) | {"best": best(given)}
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]} | counted


def captured_steps(policy: Policy) -> CapturedSteps:
    """The captured steps of ``policy``. Raises NotCaptured, a ValueError that says why, if it has none."""
    validation.instance("policy", policy, Policy, "a Policy")
    if isinstance(policy, ArmPolicy):
        return ArmSteps(policy)
    if type(policy) not in _STEPS:
        can = "an ArmPolicy, an IndexPolicy over an ArmGP and ModelAveraging (auto) can"
        raise refused(type(policy).__name__, can)
    return _STEPS[type(policy)](policy)


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
    *,
    if_faster: bool = False,
) -> str:
    """Play steps ``done`` + 1 to ``horizon``, at most ``most`` in one launch. Returns how they were launched.

    Args:
        policy, problem, horizon: those of ``run``.
        done: number of steps already played.
        streams: the streams of the noise.
        recorder: records every block.
        plain: plays a step that cannot be captured, as ``run`` does.
        after: called with the number of the last step of every block.
        pause: the largest number of steps that may follow this one before the host must decide again.
        most: steps in a launch; None: the launcher's ``block_steps``.
        if_faster: raise NotCaptured, before the first step, if plain steps are faster than these blocks.

    An interrupt takes effect after the block that is being played, so the policy is left after a whole step.

    The number of steps in a graph is ``most`` or a power of two, because every number needs another graph.
    """
    steps, inputs = captured_steps(policy), ProblemInputs(problem, streams)
    device = problem.arms.device
    launch = compiled_blocks(steps, device) or launcher(device)
    if if_faster and type(launch) is PlainCalls and not steps.faster_in_plain_calls:
        raise refused(type(policy).__name__, "its steps are faster one by one, without the extra fast")
    most = launch.block_steps if most is None else most
    steps.blind = launch.blind
    steps.begin(horizon - done, most)
    step = done
    while step < horizon:
        wanted = min(most, horizon - step, pause(step))
        times = [problem.time(s) for s in range(step + 1, step + wanted + 1)]
        count = steps.most(times)
        if steps.blind and count < most:
            count = 1 << count.bit_length() >> 1  # 0 stays 0
        if count == 0:
            plain(step + 1)
            step += 1
            continue
        start = perf_counter()
        times = times[:count]
        with interrupts_held_back(), torch.no_grad():
            given = inputs.given(step + 1, count)
            given |= steps.given(times, given)
            rows = launch((count, steps.key()), partial(block, steps, count), given)
            steps.after(times, rows)
            recorder.block(step + 1, times, rows, perf_counter() - start)
            step += count
            after(step)
    return launch.said
