"""The contract of a policy: it chooses, it learns, and it never sees the problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described


@dataclass(frozen=True)
class Choice:
    """What a policy chose.

    Attributes:
        arm: index of the arm of each replicate, (S,) integers; on a continuous domain its points, (S, d).
        why: what ``learn`` will need of this choice (the width used, the prior that won, ...).
    """

    arm: Tensor
    why: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """What came of a choice.

    Attributes:
        time: when the arm was pulled, in the problem's unit of time, not when the reward arrived.
        arm: (S,) integers or (S, d) points, as chosen.
        reward: (S,) rewards; the replicates learn together.
        why: the ``why`` of the choice.
    """

    time: float
    arm: Tensor
    reward: Tensor
    why: Mapping[str, Any] = field(default_factory=dict)


class Policy(Described, ABC):
    """Chooses an arm, or a point, for each of S replicates and learns from the rewards.

    ``choose`` changes nothing but the position of random streams; ``learn`` changes state. ``run`` calls them in turn;
    a live system may not, and then this holds of every policy:

    * Missing: a choice whose reward never comes is never learnt. Nothing waits for it, and every clock (of widths,
      windows, restarts) counts what was learnt, not what was chosen.
    * Late or out of order: each policy says whether it learns a reward whose time is past; one that does not raises
      ValueError. Unless it says otherwise, windows, weights, restarts and tests go by arrival.
    * Twice: an observation has no number, so what is learnt twice counts as two. ``AskTell`` numbers them.
    * Time may jump forward as far as it likes. Where the model drifts, ``choose`` at a time before the latest
      observation is a ValueError.
    * The state is whole between any two calls, so another process can take over (``save_policy``).

    Attributes:
        replicates: S.
        num_arms: N; 0 on a continuous domain.
        dim: d, how many coordinates a point has; 0 where arms are chosen by index.
    """

    replicates: int
    num_arms: int
    dim: int = 0

    @abstractmethod
    def choose(self, time: float, available: Any = None) -> Choice:
        """Choose at ``time`` among the arms with ``available`` True ((N,) or (S, N); None: all).

        On a continuous domain ``available`` is the ``Domain`` of this step; None: the usual one. An arm that is not
        available is never chosen.
        """

    @abstractmethod
    def learn(self, observation: Observation) -> None:
        """Learn what came of a choice. A ValueError leaves the policy unchanged."""

    @abstractmethod
    def reset(self, where: Tensor | None = None) -> None:
        """Back to the state before the first step, in the replicates where ``where`` ((S,)) is True."""

    def trace(self) -> dict[str, Tensor | float]:
        """Numbers worth keeping of the last step, each a scalar or (S,); the loop records them."""
        return {}

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The policy's whole state as tensors and plain values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""


def copied_state(module: torch.nn.Module) -> dict[str, Any]:
    """A module's ``state_dict`` that later steps, which change its tensors in place, leave alone."""
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in module.state_dict().items()}


def check_turn(observation: Observation, turn: int) -> None:
    """Raise ValueError if the observation says that its choice (``why["turn"]``) was made before the last reward."""
    made = observation.why.get("turn", turn)
    expected = f"{turn}, of a choice made since the last reward: this policy cannot learn late or twice"
    validation.require(isinstance(made, int) and made == turn, "why['turn']", made, expected)
