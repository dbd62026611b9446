"""The interface of captured steps, and the captured steps of each kind of policy.

The kinds are ``ArmPolicy`` (its state is a dictionary of tensors, and its own methods are called), index policies over
``ArmGP``, and ``ModelAveraging`` over members over arms (the recipe ``auto``).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, cast

import torch
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from torch import Tensor

from bandits_torch.acquisition.thompson_sampling import ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.covariance_form import Books
from bandits_torch.models.arms.members import PENDING, RecursiveMembers, Seen
from bandits_torch.models.arms.prior import StateSpacePrior
from bandits_torch.models.arms.structured_members import StackedMembers
from bandits_torch.policies.arm_policy import ArmPolicy
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.choices.arms import best_available
from bandits_torch.policies.forgetting import (
    EventTriggeredRestart,
    KeepEverything,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.policies.index import (
    Improvement,
    IndexPolicy,
    RewardImprovementPolicy,
    incumbent,
    with_reward,
)
from bandits_torch.policies.learned_units import HELD
from bandits_torch.policies.policy import Observation
from bandits_torch.state import HasState, copied
from bandits_torch.streams import ReplicateStreams

Given = dict[str, Tensor]  # inputs of a block by name, one row for each of its k steps
Pull = Callable[[Tensor], Tensor]  # maps arms (S,) to rewards (S,)


class CapturedSteps(ABC):
    """The steps of one policy as functions of tensors. They change the policy's state in place; between blocks it is
    the state after as many plain steps.

    The loop calls ``most`` and ``given``, launches every ``step`` and then ``close`` as one block, and calls ``after``.
    """

    blind = True  # whether a block must not read values on the host; a plain call on a CPU may
    faster_in_plain_calls = True  # whether blocks of plain calls on a CPU are faster than steps one by one

    def begin(self, steps: int, most: int) -> None:
        """Prepare for ``steps`` steps, in blocks of at most ``most``."""
        return

    @abstractmethod
    def most(self, times: Sequence[float]) -> int:
        """How many of the next steps, at these times, can be captured; 0: the first must be a plain step."""

    @abstractmethod
    def given(self, times: Sequence[float], of_problem: Given) -> Given:
        """The inputs of the steps at these times that the host computes, in addition to those ``of_problem``."""

    def key(self) -> Hashable:
        """A key that differs between blocks that are different functions or work on different tensors."""
        return ()

    @abstractmethod
    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """Step j of a block: choose, ``pull``, learn. Returns the arms (S,) and values to record, each () or (S,)."""

    def close(self, books: Books) -> Given:
        """Make the updates that are due once, at the end of a block. Returns rows (k, S) computed for all its steps."""
        return {}

    def after(self, times: Sequence[float], rows: Given) -> None:
        """Update the state on the host after a block, given its rows (k, S)."""
        return


class NotCaptured(ValueError):
    """The steps of a policy or a problem cannot be captured. Raised before the first step."""


def refused(what: str, why: str) -> NotCaptured:
    """The error for a policy or a problem whose steps cannot be captured."""
    return NotCaptured(f"capture=True: {what} cannot be captured: {why}")


def write_back(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy new tensors to old ones, given pairs (old, new), in one call for each dtype. They must not share memory."""
    by_dtype: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for old, new in pairs:
        olds, news = by_dtype[old.dtype]
        olds.append(old)
        news.append(new)
    for olds, news in by_dtype.values():
        torch._foreach_copy_(olds, news)  # PyTorch has no public name for it


class _NotStored(torch.nn.Module):
    """In place of observations that are not stored yet: to read them raises NotCaptured."""

    def __init__(self, reader: str) -> None:
        super().__init__()
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        raise refused(self._reader, "it reads the observations that the model holds")


_RULES = (KeepEverything, SlidingWindow, PeriodicRestart, EventTriggeredRestart)
_ACQUISITIONS = (UpperConfidenceBound, ThompsonSampling)
_IMPROVEMENTS = (LogExpectedImprovement, LogProbabilityOfImprovement)


class IndexSteps(CapturedSteps):
    """Steps of GP-UCB, GP-TS, GP-EI, GP-PI and variants: any width, window and drift, restarts at intervals or by mask.

    Width, index, the test of a restart and the change of the posterior are the functions that plain steps call. All
    other work of a plain step is done once a block.

    Args:
        policy: an ``IndexPolicy`` over an ``ArmGP``.

    Raises NotCaptured, a ValueError that says why, for a policy that cannot be captured.
    """

    def __init__(self, policy: IndexPolicy) -> None:
        model, rule, acquisition = policy.model, policy.forgetting, policy.acquisition
        if type(model) is not ArmGP:
            raise refused(type(model).__name__, "the steps of an ArmGP can")
        if isinstance(model.prior, StateSpacePrior):
            raise refused("a kernel over time with a state space", "those with a MarkovTimeKernel can")
        improves = isinstance(acquisition, Improvement) and acquisition.acquisition in _IMPROVEMENTS
        if acquisition not in _ACQUISITIONS and not (improves and type(rule) is KeepEverything):
            shown = getattr(acquisition, "__name__", type(acquisition).__name__)
            raise refused(
                f"acquisition {shown}", "UpperConfidenceBound, ThompsonSampling, gp_ei and gp_pi can"
            )
        if type(rule) not in _RULES:
            raise refused(type(rule).__name__, f"{', '.join(kind.__name__ for kind in _RULES)} can")
        if acquisition is ThompsonSampling and model.drifts:
            raise refused("ThompsonSampling", "under drift every step factors an N x N covariance")
        self.policy, self.model, self.belief, self.rule = policy, model, model.belief, rule
        width, belief = policy.width, cast(Any, self.belief)
        if width is not None:  # one that reads the observations, stored only after a block, is refused
            held, belief.observations = belief.observations, _NotStored(type(width).__name__)
            try:
                width.at(policy.clock + 1, model)
            finally:
                belief.observations = held
        self.samples = acquisition is ThompsonSampling
        self.improves = cast(Improvement, acquisition) if improves else None
        self.by_mask = type(rule) is EventTriggeredRestart
        self.window = rule.window if isinstance(rule, SlidingWindow) else None
        self.interval = rule.interval if isinstance(rule, PeriodicRestart) else None

    # -- between blocks --------------------------------------------------------------------------------

    def begin(self, steps: int, most: int) -> None:
        """Refuse a state that cannot be captured, count its observations, and make room for new ones."""
        clock, device = self.policy.clock, self.model.noise_variance.device
        self.belief.observations.look()
        even = self.belief.observations.length is not None and not isinstance(clock, Tensor)
        if self.window is not None and not (even and self._held == min(clock, self.window)):
            raise refused("SlidingWindow", "its replicates hold different numbers of observations")
        if self.interval is not None and not even:
            raise refused("PeriodicRestart", "its replicates do not restart together")
        if self.samples and self.by_mask:
            raise refused("ThompsonSampling", "a restart by mask would factor its covariance")
        if self.samples:
            self.belief.want_root()  # as the first draw of a plain step would
        factor, kernel = self.belief.form_name == "factor", self.belief.prior.time_kernel
        if self.samples and factor:
            raise refused("ThompsonSampling", "form='factor' keeps no root of the covariance")
        if self.blind and factor and kernel is not None and not kernel.is_stationary:
            raise refused(
                "form='factor'", "under a kernel whose variance grows, the work depends on the arms pulled"
            )
        limit = self.window or self.interval
        room = steps if limit is None else min(steps, limit)
        self.belief.observations.reserve(room + most)
        self._even = even
        # The largest rewards so far; -inf if improvements are measured from the largest mean.
        none = self.model.noise_variance.new_full((self.policy.replicates, 1), -torch.inf)
        self.largest = getattr(self.policy, "largest", none).clone()
        clock = torch.as_tensor(clock, device=device).expand(self.policy.replicates)
        self._clock = clock.clone() if self.by_mask or not even else None  # on the device, for each replicate

    @property
    def _held(self) -> int:
        """The number of observations that every replicate holds; a policy with a window has equal replicates."""
        return cast(int, self.belief.observations.length)

    @property
    def _full(self) -> bool:
        """Whether the window is full: each new observation then replaces the oldest."""
        return self.window is not None and self._held >= self.window

    def most(self, times: Sequence[float]) -> int:
        """The number of steps until the window is full, the next restart at an interval, or the next check of the
        form's costs, whichever comes first, and at most as many as there is room for."""
        belief, clock, wanted = self.belief, self.policy.clock, self.belief.before_look(len(times))
        if self.window is not None:
            wanted = min(wanted, self.window if self._full else self.window - self._held)
            if self._full and not (belief.forgets and belief.form.can_forget):
                return 0  # a plain step prepares the form for removals
        if self.interval is not None:
            wanted = min(wanted, self.interval - cast(int, clock) % self.interval)
        if belief.drifts and belief.now is None:
            return 0  # the clock starts with the first observation
        if self.samples:
            belief.form.joint_root()  # makes the root, which is updated from now on
        return belief.form.reserve(wanted, belief.now or 0.0, self.blind)

    def given(self, times: Sequence[float], of_problem: Given) -> Given:
        """Clock, drift, normal numbers, and the observations that leave the window."""
        k, belief, given = len(times), self.belief, dict[str, Tensor]()
        device = self.model.noise_variance.device
        # A plain step, or a compiled block, may have changed these.
        if self._clock is not None:
            self._clock.copy_(torch.as_tensor(self.policy.clock))
        if isinstance(self.policy, RewardImprovementPolicy):
            self.largest.copy_(self.policy.largest)
        if self._clock is None and self.policy.width is not None:
            clock = cast(int, self.policy.clock)
            given["clock"] = torch.arange(clock + 1, clock + k + 1, device=device)
        if belief.drifts:
            prior, moves, now = belief.form.prior, [], cast(float, belief.now)
            for time in times:
                self.model.check_not_past(time)
                moves.append(prior.drift(now, time))
                now = time
            kept, gained = zip(*moves, strict=True)
            given |= {"kept": torch.stack(kept), "gained": torch.stack(gained)}
            if belief.form_name == "factor":  # it distinguishes points by their times
                given["time"] = torch.tensor(times, dtype=torch.float64, device=device)
            if self.by_mask:
                given["prior"] = torch.stack([prior.present(time) for time in times])
        if self.samples:
            draws = [self.policy.streams.normal(self.model.num_arms) for _ in range(k)]
            given["normal"] = torch.stack(draws)
        if self._full:
            arm, reward, then, _ = belief.observations.held(k)
            leaving = {"leaving_arm": arm, "leaving": belief.residual(arm, reward)}
            if belief.form_name == "factor":
                leaving["leaving_time"] = then
            given |= {name: value.mT.contiguous() for name, value in leaving.items()}
        return given

    def key(self) -> Hashable:
        """The form, where its tensors are stored, and whether observations are removed."""
        return id(self.belief.form), self._full, self.belief.form.place

    # -- in a block ------------------------------------------------------------------------------------

    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """Advance time, pull the best available arm, restart if the reward refutes the model, and learn."""
        belief, form, policy = self.belief, self.belief.form, self.policy
        row: Given = {}
        if belief.drifts:
            form.advance(given["kept"][j], given["gained"][j])
        width = None
        if policy.width is not None:
            counted = self._clock if self._clock is None else self._clock + 1
            step = given["clock"][j] if counted is None else counted.reshape(self.model.batch_shape)
            width = row["width"] = policy.width.at(step, self.model)
        row["arm"] = arm = best_available(self._index(given, j, width, available).mT, available)[1]
        reward = pull(arm).to(belief.prior_mean.dtype)
        if self.by_mask:
            row["restarted"] = self._restart(arm, reward, given["prior"][j] if "prior" in given else 1.0)
        if self._clock is not None:
            self._clock.add_(1)
        if isinstance(policy, RewardImprovementPolicy):
            self.largest.copy_(with_reward(self.largest, arm, reward))
        residual = belief.residual(arm, reward)
        now = given["time"][j] if "time" in given else 0.0
        leaving = [given[name][j] for name in ("leaving_arm", "leaving", "leaving_time") if name in given]
        later = None if self.by_mask else books  # a restart needs up-to-date counts
        form.observe(arm, residual, now, leaving or None, later, self.blind)
        return row

    def _index(self, given: Given, j: int, width: Tensor | None, available: Tensor | None) -> Tensor:
        """The index of every arm, (S, N): UCB, or the draw of Thompson sampling."""
        belief, form = self.belief, self.belief.form
        mean = form.mean if belief.centred else form.mean + belief.prior_mean
        mean = mean.to(belief.prior_mean.dtype)
        if self.samples:
            width = None if width is None else width.reshape(-1)
            return ThompsonSampling.of(mean, cast(Tensor, form.joint_root()), given["normal"][j], width)
        if self.improves is not None:
            among = mean if available is None else mean.masked_fill(~available, -torch.inf)
            best = incumbent(self.largest, among.amax(-1, keepdim=True), available)
            return self.improves.of(mean, form.variance.to(mean.dtype), best)
        return UpperConfidenceBound.of(mean, form.variance.to(mean.dtype), cast(Tensor, width).reshape(-1, 1))

    def _restart(self, arm: Tensor, reward: Tensor, prior: Tensor | float) -> Tensor:
        """Restart replicates whose reward refutes the model; returns which, (S,). ``prior``: present prior variance."""
        policy, clock = self.policy, cast(Tensor, self._clock)

        def predict() -> tuple[Tensor, Tensor]:
            mean, variance = self.model.at(arm)
            return mean.reshape(-1), variance.reshape(-1).sqrt()

        where = cast(Tensor, self.rule.refuted(reward, predict, clock, self.model)).reshape(-1)
        self.belief.form.reset(prior, where)
        clock.masked_fill_(where, 0)
        policy.restarts.add_(where)
        return where

    def close(self, books: Books) -> Given:
        """Update the counts of the form, once a block."""
        self.belief.form.close(books)
        return {}

    # -- after a block ---------------------------------------------------------------------------------

    def after(self, times: Sequence[float], rows: Given) -> None:
        """Store the observations, advance the clocks, and check rounding errors when that is due."""
        belief, policy, k, full = self.belief, self.policy, len(times), self._full
        if self.blind:
            belief.form.played(k, k if full else 0)
        belief.keep(rows["arm"].mT, rows["reward"].to(belief.prior_mean.dtype).mT, times)
        rows["restarts"] = policy.restarts.repeat(k, 1)
        if self.by_mask:
            restarted, step = rows.pop("restarted"), torch.arange(k, device=policy.restarts.device)
            last = torch.where(restarted, step.unsqueeze(-1), -1).amax(0)
            belief.observations.clear(last >= 0, k - last)
            rows["restarts"] += restarted.cumsum(0) - restarted.sum(0)
        if full:
            belief.observations.drop_oldest(k)
            belief.settle()
        belief.count(k)
        if self.by_mask and (not self._even or bool(policy.restarts.any())):
            policy.clock = cast(Tensor, self._clock).clone()
        else:
            policy.clock = policy.clock + k
            if self.by_mask and policy.width and not policy.width.at(policy.clock, self.model).dim():
                rows["width"] = rows["width"].reshape(k, -1)[:, 0]  # until a restart, as in plain steps
        if isinstance(policy, RewardImprovementPolicy):
            policy.largest = self.largest.clone()
        policy.used_width = rows["width"][-1] if "width" in rows else None
        if self.interval is not None and cast(int, policy.clock) % self.interval == 0:
            policy.restart(True)
            rows["restarts"][-1] = policy.restarts


class Draws:
    """Replaces the streams: records which numbers are drawn from them, or returns numbers drawn in advance."""

    def __init__(self, streams: ReplicateStreams | None = None, drawn: Sequence[Tensor] = ()) -> None:
        self._streams, self._drawn = streams, iter(drawn)
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    def normal(self, *shape: int) -> Tensor:
        """See ``ReplicateStreams``."""
        return self._next("normal", shape)

    def uniform(self, *shape: int) -> Tensor:
        """See ``ReplicateStreams``."""
        return self._next("uniform", shape)

    def _next(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        self.asked.append((kind, shape))
        return next(self._drawn) if self._streams is None else getattr(self._streams, kind)(*shape)


class ArmSteps(CapturedSteps):
    """The steps of an ``ArmPolicy``, with random numbers drawn in advance and the new state copied to the old tensors.

    Raises NotCaptured, a ValueError, for a policy that is not ``fixed`` or whose state has values other than tensors.
    """

    def __init__(self, policy: ArmPolicy) -> None:
        of_tensors = all(isinstance(value, Tensor) for value in policy.state.values())
        if not (policy.fixed and of_tensors):
            raise refused(type(policy).__name__, "its steps read values, or its state grows")
        self.policy = policy

    def begin(self, steps: int, most: int) -> None:
        """Choose once to see which random numbers a step draws, and restore the streams."""
        policy, before = self.policy, self.policy.streams.state_dict()
        policy.state = copied(policy.state)  # so that no two tensors share memory
        draws = Draws(policy.streams)
        with torch.no_grad():
            policy.choice(policy.state, 0.0, None, cast(ReplicateStreams, draws))
        policy.streams.load_state_dict(before)
        self._asked = draws.asked

    def most(self, times: Sequence[float]) -> int:
        """All of the steps: no tensor grows."""
        return len(times)

    def given(self, times: Sequence[float], of_problem: Given) -> Given:
        """The times and the random numbers."""
        streams, device = self.policy.streams, self.policy.device
        drawn = [[getattr(streams, kind)(*shape) for kind, shape in self._asked] for _ in times]
        given = {f"draw {i}": torch.stack(of) for i, of in enumerate(zip(*drawn, strict=True))}
        return given | {"time": torch.tensor(times, dtype=torch.float64, device=device)}

    def key(self) -> Hashable:
        """The addresses of the state's tensors, which change at a reset."""
        return tuple(value.data_ptr() for value in self.policy.state.values())

    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """A step of the policy, with its state updated in place."""
        policy, time = self.policy, cast(float, given["time"][j])
        draws = Draws(drawn=[given[f"draw {i}"][j] for i in range(len(self._asked))])
        choice = policy.choice(policy.state, time, available, cast(ReplicateStreams, draws))
        reward = pull(choice.arm).double()
        state = policy.learned(dict(policy.state), Observation(time, choice.arm, reward, choice.why))
        # Copies, because a new value may share memory with the old value of another name.
        write_back(
            [(old, state[name].clone()) for name, old in policy.state.items() if state[name] is not old]
        )
        row = {name: torch.as_tensor(value).clone() for name, value in policy.trace().items()}
        return {"arm": choice.arm} | row


class AveragingSteps(CapturedSteps):
    """The steps of ``auto``. Members that fall behind are reset by mask. A flag says at which steps the plausible
    members are checked. Steps are plain until the origin and unit of rewards are fixed.

    Before a block the host compares the least and the largest reward that any arm can give in it with the range, the
    origin and the unit of rewards. If none can be an outlier or change these, the block does not test for it. Nor does
    it test whether an arm is due for a look if none can be. After a block the host checks whether a member was reset.

    Args:
        policy: a ``ModelAveraging`` over ``ArmMembers``, ``SmoothMembers``, ``LevelMembers`` or ``StackedMembers`` of
            these.

    Raises NotCaptured, a ValueError, for any other model, cycles and a control.
    """

    faster_in_plain_calls = False

    def __init__(self, policy: ModelAveraging) -> None:
        if not isinstance(policy.model, (RecursiveMembers, StackedMembers)):
            raise refused(f"ModelAveraging over {type(policy.model).__name__}", "over ArmMembers it can be")
        if policy.model.has_cycles:
            raise refused("ModelAveraging over CyclicMembers", "without periods it can be")
        if policy.model.control is not None:
            raise refused("ModelAveraging over lifts", "without a control it can be")
        self.policy, self.model, self.parts = policy, policy.model, policy.model.parts
        states: tuple[HasState, ...] = (policy.range, *policy.judged)
        self._states = [(state, name) for state in states for name in state.snapshot]
        self._plain_steps = 0  # each replaces the policy's tensors

    @property
    def turn(self) -> int:
        """The row of every part that is written next."""
        return self.parts[0].turn

    # -- between blocks --------------------------------------------------------------------------------

    def begin(self, steps: int, most: int) -> None:
        """Discard the host's copy of the members' frames, so it is read again."""
        self._present_frames: list[Tensor] | None = None  # the present frames of each part, on the CPU
        self._rates = [part.forgetting_rate.cpu() for part in self.parts]

    def most(self, times: Sequence[float]) -> int:
        """The number of steps until every member has folded once, or until a pause so long that a plain step must
        rescale them."""
        policy, model = self.policy, self.model
        if model.now is None or policy.count < HELD:
            return self._plainly()
        clock, now, gaps = copy.copy(policy.clock), model.now, []  # ``tick`` replaces what a clock holds
        for time in times[: PENDING - self.turn]:
            gaps.append(clock.tick(time) - now)
            now += gaps[-1]
        self._coming_frames = [self._frames_ahead(k, gaps) for k in range(len(self.parts))]
        far = [part.far(frame).any(-1) for part, frame in zip(self.parts, self._coming_frames, strict=True)]
        faded = torch.stack(far).any(0).nonzero()
        return (int(faded[0]) if len(faded) else len(gaps)) or self._plainly()

    def _plainly(self) -> int:
        """Return 0: the next step is a plain step."""
        self._present_frames = None
        self._plain_steps += 1
        return 0

    def _frames_ahead(self, k: int, gaps: list[float]) -> Tensor:
        """The frames of part k at the next steps, (steps, P, s, s)."""
        if self._present_frames is None:
            self._present_frames = [part.frame.cpu() for part in self.parts]
        rate, frame = self._rates[k], self._present_frames[k]
        moved = self.parts[k].passing(rate, torch.tensor(gaps, dtype=rate.dtype).unsqueeze(-1))
        for j, move in enumerate(moved):
            moved[j] = move @ frame
            frame = self._frame_left(k, moved[j], j)
        return moved

    def _frame_left(self, k: int, frame: Tensor, j: int) -> Tensor:
        """What step j of a block leaves of ``frame``, those of part k: the identity where a member folds."""
        frame, part = frame.clone(), self.parts[k]
        frame[part.whose_turn(self.turn + j + 1)] = torch.eye(part.states).to(frame)
        return frame

    def given(self, times: Sequence[float], of_problem: Given) -> Given:
        """For each step: the members' frames, whether the plausible members are checked, the width of the bounds, the
        number of tried arms below which a new one is tried, and how long an arm may go unexamined."""
        policy, model = self.policy, self.model
        expected, noise = of_problem["expected"], of_problem["noise"]
        lowest, highest = (expected.nan_to_num(gap, torch.inf, -torch.inf) for gap in (torch.inf, -torch.inf))
        ends = (lowest.amin(-1) + noise).amin(0), (highest.amax(-1) + noise).amax(0)
        least, most = (end.to(model.noise_variance) for end in ends)
        self.takes_all = policy.takes_all(least, most)
        self.ends = torch.stack([least, most])  # of the rewards that arms can give in the block
        self._read_anew()
        asked, frames = [], self._coming_frames
        for time in times:
            now = policy.clock.tick(time)
            asked.append(policy.asked(policy.count))
            policy.counted()
        end = len(times) - 1
        self._present_frames = [self._frame_left(k, frame[end], end) for k, frame in enumerate(frames)]
        device, kinds = model.arms.device, {"check": torch.bool}
        given = {
            name: torch.tensor([one[name] for one in asked], dtype=kinds.get(name, frames[0].dtype)).to(
                device
            )
            for name in asked[0]
        }
        self._checks = bool(any(one["check"] for one in asked))
        self.looks = policy.looks is not None and policy.looks.may_be_due([one["tau"] for one in asked])
        for k, part in enumerate(self.parts):
            part.now, part.blind = now, self.blind
            given[frames_of(k)] = frames[k][: len(times)].to(device)
        return given

    def _read_anew(self) -> None:
        """Discard values cached from the policy's state: they may be in memory that only an earlier block writes."""
        self.policy.scale.read_anew()
        self.policy.sharing.state_changed()
        self.policy.frame.state_changed()

    def key(self) -> Hashable:
        """The members whose turn it is, whether there is a check, whether an arm can be due, whether no reward can be
        an outlier, whether rewards have more than two values, and the policy's tensors."""
        over = self.policy.two_values.over
        return self.turn, self._checks, self.looks, self.takes_all, over, self._plain_steps

    # -- in a block ------------------------------------------------------------------------------------

    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """A step of the policy, with its state updated in place."""
        policy, model = self.policy, self.model
        if j == 0:
            self._before = [(state, name, getattr(state, name)) for state, name in self._states]
            self._seen = [part.seen_in(given[frames_of(k)]) for k, part in enumerate(self.parts)]
        for k, (part, of_steps) in enumerate(zip(self.parts, self._seen, strict=True)):
            part.frame, part.seen = given[frames_of(k)][j], Seen(*(value[j] for value in of_steps))
        asked: dict[str, Any] = {name: given[name][j] for name in ("width", "few")}
        asked["check"] = given["check"][j] if self._checks else False
        asked["tau"] = given["tau"][j] if self.looks else math.inf
        moments = model.marginals()
        arm = policy.pick(policy.in_one_unit(*moments), asked, available, not self.takes_all)
        reward = pull(arm).to(model.noise_variance)
        believed = None if self.takes_all else policy.range.believe(reward, arm)
        confirmed = None if self.takes_all else policy.range.borne_out
        if model.has_level:  # its marginals are without the level's uncertainty
            mean, variance = model.at(arm)
        else:
            at = arm[:, None, None].expand(-1, policy.num_members, 1)
            mean, variance = (moment.gather(-1, at).squeeze(-1) for moment in moments)
        due, seen, learned = policy.weigh(
            arm, reward, (mean, variance), believed, confirmed, settled=self.takes_all
        )
        if self.blind or bool(due.any()):
            model.reset(due)
            prior_mean, prior_variance = model.prior_at(arm)
            variance = torch.where(due, prior_variance, variance)
            learned = torch.where(due, seen - prior_mean, learned)
            mean = torch.where(due, prior_mean, mean) if model.has_level else mean
        where = None if believed is None else believed.unsqueeze(-1)
        if model.has_level:
            (_, variance), learned = policy.without_jumps(
                arm, seen, (mean, variance), learned, where, blind=self.blind
            )
        policy.tried(arm, where)
        model.learn_now(arm, learned, variance, (self.turn + j) % PENDING, where)
        for name, value in (policy.traced() | {"reward": reward}).items():
            books[name].append(value)
        return {"arm": arm}

    def close(self, books: Books) -> Given:
        """Copy the new state to the tensors that the next block reads, and compute the trace of all steps."""
        rows = {name: torch.stack(values) for name, values in books.items()}
        if self.takes_all:
            rewards = rows["reward"]
            self.policy.range.extend(rewards.amin(0), rewards.amax(0), len(rewards))
        rows = self.policy.trace_of(rows)
        new = [(state, name, old) for state, name, old in self._before if getattr(state, name) is not old]
        write_back([(old, getattr(state, name)) for state, name, old in new])
        for state, name, old in new:
            setattr(state, name, old)
        return rows

    # -- after a block ---------------------------------------------------------------------------------

    def after(self, times: Sequence[float], rows: Given) -> None:
        """Give the members their new frames."""
        self._read_anew()
        if not self.takes_all:  # which scales are known may have changed
            self.policy.scale.state_changed()
        for part, frame in zip(self.parts, cast(list[Tensor], self._present_frames), strict=True):
            part.turn, part.blind, part.seen = (part.turn + len(times)) % PENDING, False, None
            part.frame = frame.to(part.rows.device, copy=True)


def frames_of(part: int) -> str:
    """The name of a part's frames among the inputs of a block."""
    return f"frames of part {part}"
