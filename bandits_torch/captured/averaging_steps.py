"""Captured steps of ``ModelAveraging`` over members over arms: the recipe ``auto``."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import cast

import torch
from torch import Tensor

from bandits_torch.captured.steps import Books, CapturedSteps, Given, Pull, refused, write_back
from bandits_torch.models.arms.level_members import LevelMembers
from bandits_torch.models.arms.members import PENDING, RecursiveMembers
from bandits_torch.models.arms.stacked_members import StackedMembers
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.learned_units import HELD
from bandits_torch.state import HasState


class AveragingSteps(CapturedSteps):
    """The steps of ``auto``. Members that fall behind are reset by mask. A flag says at which steps the plausible
    members are checked. The first rewards, held until the origin and unit of rewards are fixed, take plain steps.

    Args:
        policy: a ``ModelAveraging`` over ``ArmMembers``, ``SmoothMembers`` or ``StackedMembers``.

    After a block the host checks whether a member was reset in it. Raises ValueError for another model.
    """

    def __init__(self, policy: ModelAveraging) -> None:
        if not isinstance(policy.model, (RecursiveMembers, StackedMembers)):
            raise refused(f"ModelAveraging over {type(policy.model).__name__}", "over ArmMembers it can be")
        if policy.model.has_cycles:
            raise refused("ModelAveraging over CyclicMembers", "without periods it can be")
        if isinstance(policy.model, LevelMembers):
            raise refused("ModelAveraging over LevelMembers", "without a control it can be")
        self.policy, self.model, self.parts = policy, policy.model, policy.model.parts
        states: tuple[HasState, ...] = (policy.range, *policy.judged)
        self._states = [(state, name) for state in states for name in state.snapshot]
        self._plain_steps = 0  # after one the policy has other tensors

    @property
    def turn(self) -> int:
        """The row of every part that is written next."""
        return self.parts[0].turn

    # -- between blocks --------------------------------------------------------------------------------

    def begin(self, steps: int, most: int) -> None:
        """Mark that the fading of members must be read again when it is next needed."""
        self._frames: list[Tensor] | None = None  # of each part, now
        self._counting = [part.rows.new_ones(part.rows.shape[:2]) for part in self.parts]
        self._rates = [part.forgetting_rate.cpu() for part in self.parts]

    def most(self, times: Sequence[float]) -> int:
        """The steps up to the end of the members' turns, or up to a pause so long that a plain step has to rescale
        them."""
        policy, model = self.policy, self.model
        if model.now is None or policy.count < HELD:
            return self._plainly()
        clock, now, gaps = copy.copy(policy.clock), model.now, []  # ``tick`` replaces what a clock holds
        for time in times[: PENDING - self.turn]:
            gaps.append(clock.tick(time) - now)
            now += gaps[-1]
        self._coming = [self._ahead(k, gaps) for k in range(len(self.parts))]
        far = [part.far(frame).any(-1) for part, frame in zip(self.parts, self._coming, strict=True)]
        faded = torch.stack(far).any(0).nonzero()
        return (int(faded[0]) if len(faded) else len(gaps)) or self._plainly()

    def _plainly(self) -> int:
        """No step can be captured: the next one is a plain step."""
        self._frames = None
        self._plain_steps += 1
        return 0

    def _ahead(self, k: int, gaps: list[float]) -> Tensor:
        """The frames of part k at the next steps, (steps, P, s, s)."""
        if self._frames is None:
            self._frames = [part.frame.cpu() for part in self.parts]
        rate, frame = self._rates[k], self._frames[k]
        moved = self.parts[k].passing(rate, torch.tensor(gaps, dtype=rate.dtype).unsqueeze(-1))
        for j, move in enumerate(moved):
            moved[j] = move @ frame
            frame = self._left(k, moved[j], j)
        return moved

    def _left(self, k: int, frame: Tensor, j: int) -> Tensor:
        """The frames of part k after step j of a block: whole again where members fold."""
        frame, part = frame.clone(), self.parts[k]
        frame[part.whose_turn(self.turn + j + 1)] = torch.eye(part.states).to(frame)
        return frame

    def given(self, times: Sequence[float]) -> Given:
        """How much members fade from step to step, at which steps the plausible ones are checked, the width of the
        bounds, the number of tried arms below which a new one is tried, and how long an arm may go unexamined."""
        policy, model = self.policy, self.model
        self._read_anew()
        asked, frames = [], self._coming
        for time in times:
            now = policy.clock.tick(time)
            asked.append(policy.asked(policy.count))
            policy.counted()
        end = len(times) - 1
        self._frames = [self._left(k, frame[end], end) for k, frame in enumerate(frames)]
        device, kinds = model.arms.device, {"check": torch.bool}
        given = {
            name: torch.tensor([one[name] for one in asked], dtype=kinds.get(name, frames[0].dtype)).to(
                device
            )
            for name in asked[0]
        }
        self._checks = bool(any(one["check"] for one in asked))
        for k, (part, counting) in enumerate(zip(self.parts, self._counting, strict=True)):
            part.now = now
            part.counting = counting if self.static else None
            given[frames_of(k)] = frames[k][: len(times)].to(device)
        return given

    def _read_anew(self) -> None:
        """What a block has computed from the policy's state lies in memory that only this block writes again."""
        self.policy.scale.read_anew()
        self.policy.frame.state_changed()

    def key(self) -> Hashable:
        """The members whose turn it is, whether there is a check, and the policy's tensors."""
        return self.turn, self._checks, self._plain_steps

    # -- in a block ------------------------------------------------------------------------------------

    def step(self, given: Given, j: int, available: Tensor | None, pull: Pull, books: Books) -> Given:
        """A step of the policy, with its state updated in place."""
        policy, model = self.policy, self.model
        for k, part in enumerate(self.parts):
            part.frame.copy_(given[frames_of(k)][j])
        asked = {name: given[name][j] for name in ("width", "few", "tau")}
        check = given["check"][j] if self._checks else False
        arm = policy.pick(policy.members(None), asked | {"check": check}, available)
        reward = pull(arm).to(model.noise_variance)
        held = [(state, name, getattr(state, name)) for state, name in self._states]
        believed = policy.range.believe(reward, arm)
        at = model.at(arm)
        due, seen, learned = policy.weigh(arm, reward, at, believed)
        held = [(state, name, old) for state, name, old in held if getattr(state, name) is not old]
        write_back([(old, getattr(state, name)) for state, name, old in held])
        for state, name, old in held:
            setattr(state, name, old)
        if self.static or bool(due.any()):
            model.reset(due)
            prior = model.prior_at(arm)
            at = torch.where(due, prior[0], at[0]), torch.where(due, prior[1], at[1])
            learned = torch.where(due, seen - at[0], learned)
        where = believed.unsqueeze(-1)
        policy.tried(arm, where)
        model.learn_now(arm, at[0] + learned, at, (self.turn + j) % PENDING, where)
        told = cast(dict[str, Tensor], policy.trace())
        return {"arm": arm} | told | {name: told[name].clone() for name in ("resets", "doubted")}

    # -- after a block ---------------------------------------------------------------------------------

    def after(self, times: Sequence[float], rows: Given) -> None:
        """Empty members that were reset and have not had their turn since."""
        self._read_anew()
        for k, (part, counting) in enumerate(zip(self.parts, self._counting, strict=True)):
            part.turn, part.counting = (part.turn + len(times)) % PENDING, None
            if not self.static:  # a compiled loop leaves them
                part.frame = cast(list[Tensor], self._frames)[k].clone()
            empty = counting == 0
            if self.static and bool(empty.any()):
                member, run = empty.nonzero(as_tuple=True)
                part.rows[member, run] = 0.0
                counting.fill_(1.0)


def frames_of(part: int) -> str:
    """The frames of a part at every step, by name."""
    return f"frames of part {part}"
