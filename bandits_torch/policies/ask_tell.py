"""A policy in a live system: questions have numbers, answers come late, twice, out of order or never."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.policy import Choice, Observation, Policy


@dataclass(frozen=True)
class Question:
    """Which arm to pull, and the number to tell its reward by.

    Attributes:
        id: 0, 1, 2, ... in the order of asking.
        time: when it was asked.
        arm: (S,) integers, or (S, d) points.
    """

    id: int
    time: float
    arm: Tensor


class AskTell:
    """Numbers a policy's choices, so that a reward needs no more than the number of its question.

    * Late, out of order: ``tell`` hands the policy time, arm and reasons of the choice; ``Policy`` says what becomes of
      a reward that comes after others, by kind of policy. A policy that cannot learn it any more raises ValueError,
      and nothing changes: ``drop`` the question.
    * Twice: the first counts. Every other ``tell`` of a number is ignored and says so.
    * Never: open questions hold nothing up; ``drop`` removes those that are too old.

    Its state is the policy's and the open questions, so it moves between processes as a policy does::

        live = AskTell(recipes.tv_gp_ucb(arms, kernel, noise_variance))
        load_policy(path, live)
        question = live.ask(time)
        save_policy(path, live)      # another process may tell

    Args:
        policy: who answers; it must be asked through here alone.
    """

    def __init__(self, policy: Policy) -> None:
        validation.instance("policy", policy, Policy, "a Policy")
        self.policy, self.replicates, self.num_arms = policy, policy.replicates, policy.num_arms
        self._asked = 0
        self._open: dict[int, tuple[float, Choice]] = {}

    @property
    def name(self) -> str:
        """What policy it is."""
        return f"AskTell({type(self.policy).__name__})"

    @property
    def open(self) -> tuple[int, ...]:
        """Numbers of the questions without an answer, oldest first."""
        return tuple(self._open)

    def ask(self, time: float, available: Tensor | None = None) -> Question:
        """What to pull at ``time``, among the arms with ``available`` True; see ``Policy.choose``."""
        validation.finite_number("time", time)
        choice = self.policy.choose(time, available)
        question = Question(self._asked, float(time), choice.arm)
        self._open[question.id] = (question.time, choice)
        self._asked += 1
        return question

    def tell(self, id: int, reward: float | Tensor) -> bool:
        """Learn the reward, a number or (S,), of a question; False if it was told or dropped before.

        Raises ValueError, with nothing changed, for a number never asked, a reward that is not finite, or one that the
        policy cannot learn any more.
        """
        known = isinstance(id, int) and not isinstance(id, bool) and 0 <= id < self._asked
        validation.require(known, "id", id, f"of a question asked, 0 to {self._asked - 1}")
        if id not in self._open:
            return False
        time, choice = self._open[id]
        value = torch.as_tensor(reward, dtype=torch.float64, device=choice.arm.device)
        validation.finite_tensor("reward", value)
        ok = value.shape in ((), (self.replicates,))
        validation.shape_is("reward", value, ok, f"() or ({self.replicates},)")
        self.policy.learn(Observation(time, choice.arm, value.expand(self.replicates), choice.why))
        del self._open[id]
        return True

    def drop(self, before: float) -> int:
        """Give up the open questions asked before this time; how many there were."""
        old = [id for id, (time, _) in self._open.items() if time < before]
        for id in old:
            del self._open[id]
        return len(old)

    def state_dict(self) -> dict[str, Any]:
        """The policy's state and the open questions."""
        questions = [(id, time, choice.arm, dict(choice.why)) for id, (time, choice) in self._open.items()]
        return {"policy": self.policy.state_dict(), "asked": self._asked, "open": questions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the one that gave ``state`` stood."""
        self.policy.load_state_dict(state["policy"])
        self._asked = state["asked"]
        self._open = {id: (time, Choice(arm, why)) for id, time, arm, why in state["open"]}
