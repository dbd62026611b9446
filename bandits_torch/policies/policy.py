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
from bandits_torch.domain import Domain


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
    """Chooses an arm for each of S replicates and learns from the rewards.

    ``choose`` changes nothing but the position of random streams; ``learn`` changes state. ``run`` calls them in turn;
    a live system may not, and then this holds:

    * Missing: a choice whose reward never comes is never learnt. Nothing waits for it, and every clock (of widths,
      windows, restarts) counts what was learnt, not what was chosen.
    * Late or out of order: a model of a function that stays as it is takes rewards in any order, and so do
      ``IndexPolicy``, the policies over priors, ``RegretBalancing``, ``BatchBKB`` and ``CalibratedOPKB``: windows,
      weights, restarts and tests then go by arrival. Under drift an ``IndexPolicy`` on an ``ArmGP`` learns a
      reward of the past exactly, at the cost of learning all it holds again, and a window then goes by time; on
      an ``OnlineGP`` it costs nothing extra. What must predict the reward first (``EventTriggeredRestart``,
      ``PriorElimination``) cannot do so for the past of a drifting function: ValueError. ``Master`` and ``BlockPolicy``
      credit a reward to what they play: they learn of the choice made since the last reward, and of any other
      ValueError.
    * Twice: an observation has no number, so what is learnt twice counts as two. ``AskTell`` numbers them.
    * Time may jump forward as far as it likes; ``choose`` at a time before the latest observation is a ValueError
      under drift.
    * Arms that are gone are masked by ``available``; new ones come in by ``IndexPolicy.add_arms``.
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
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """Choose at ``time`` among the arms with ``available`` True ((N,) or (S, N); None: all).

        On a continuous domain ``available`` is the ``Domain`` of this step; None: the usual one.
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


def best_available(scores: Tensor, available: Tensor | None) -> tuple[Tensor, Tensor]:
    """Largest score and its arm, (S,) each, of scores (N, S) among the available arms; ties go to the smaller index.

    An index that is NaN, or minus infinity, counts as the least number there is: still above an arm that is not
    available, which is never chosen.
    """
    lowest = torch.finfo(scores.dtype).min
    scores = scores.nan_to_num(nan=lowest, posinf=torch.inf, neginf=lowest)
    if available is not None:
        scores = scores.masked_fill(~available.reshape(-1, scores.shape[0]).mT, -torch.inf)
    best, arm = scores.max(0)
    return best, arm


def copied_state(module: torch.nn.Module) -> dict[str, Any]:
    """A module's ``state_dict`` that later steps, which change its tensors in place, leave alone."""
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in module.state_dict().items()}


def check_available(available: Tensor, replicates: int, num_arms: int) -> None:
    """Raise ValueError unless this is a mask (N,) or (S, N) that leaves every replicate an arm (seen on a CPU only)."""
    validation.tensor("available", available)
    allowed = available.shape in ((num_arms,), (replicates, num_arms))
    validation.shape_is("available", available, allowed, f"({num_arms},) or ({replicates}, {num_arms})")
    validation.require(available.dtype == torch.bool, "available", available.dtype, "booleans")
    if available.is_cpu:
        left = bool(available.any(-1).all())
        validation.require(left, "available", available, "at least one arm to choose in every replicate")


def check_turn(observation: Observation, turn: int) -> None:
    """Raise ValueError if the observation says that its choice (``why["turn"]``) was made before the last reward."""
    made = observation.why.get("turn", turn)
    expected = f"{turn}, of a choice made since the last reward: this policy cannot learn late or twice"
    validation.require(isinstance(made, int) and made == turn, "why['turn']", made, expected)


def check_observation(observation: Observation, replicates: int, num_arms: int) -> None:
    """Raise ValueError unless there is one arm (in 0, ..., N - 1, seen on a CPU only) and one reward per replicate."""
    _check_tensors(observation)
    for name in ("arm", "reward"):
        value = getattr(observation, name)
        validation.shape_is(name, value, value.shape == (replicates,), f"({replicates},)")
    arm, expected = observation.arm, f"int64 from 0 to {num_arms - 1}"
    validation.require(arm.dtype == torch.long, "arm", arm, expected)
    if arm.is_cpu:
        least, most = torch.aminmax(arm)
        validation.require(bool(least >= 0) and bool(most < num_arms), "arm", arm, expected)


def _check_tensors(observation: Observation) -> None:
    """Raise ValueError unless arm and reward are tensors, the rewards real numbers and finite (seen on a CPU only)."""
    validation.tensor("arm", observation.arm)
    reward = validation.tensor("reward", observation.reward)
    validation.require(not reward.is_complex(), "reward", reward.dtype, "real numbers")
    if reward.is_cpu:
        validation.finite_tensor("reward", reward)
    validation.finite_number("time", observation.time)
    validation.instance("why", observation.why, Mapping, "a mapping, the why of the choice")


def check_why(observation: Observation, replicates: int, *names: str) -> None:
    """Raise ValueError unless what the choice told under these names is there, (S,) each."""
    for name in names:
        value = observation.why.get(name)
        fits = isinstance(value, Tensor) and value.shape == (replicates,)
        expected = f"a tensor ({replicates},), the {name} that the choice was made with"
        validation.require(fits, f"why[{name!r}]", value, expected)


def check_points(observation: Observation, replicates: int, dim: int) -> None:
    """Raise ValueError unless there is one finite point (d,) and one finite reward per replicate (seen on a CPU)."""
    _check_tensors(observation)
    shape = (replicates, dim)
    validation.shape_is("arm", observation.arm, observation.arm.shape == shape, f"{shape}, a point each")
    reward = observation.reward
    validation.shape_is("reward", reward, reward.shape == (replicates,), f"({replicates},)")
    if reward.is_cpu:
        validation.finite_tensor("arm", observation.arm)
        validation.finite_tensor("reward", reward)


def domain_now(usual: Domain, available: Domain | None) -> Domain:
    """The domain of this step; ValueError for one of another dimension."""
    if available is None:
        return usual
    fits = isinstance(available, Domain) and available.dim == usual.dim
    validation.require(fits, "available", available, f"a Domain of {usual.dim} dimensions")
    return available
