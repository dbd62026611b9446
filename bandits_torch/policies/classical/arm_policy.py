"""What the classical policies share: numbers for each arm of each replicate, and the range of rewards."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.choices.arms import best_available
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy

Range = tuple[float, float]


class ArmPolicy(Policy):
    """Plays the available arm of the largest index; ties go to the smallest index, arms never pulled come first.

    What it knows is a dictionary of tensors, ``_numbers``, with replicates along the first dimension.

    Args:
        num_arms: N.
        replicates: S.
        reward_range: (low, high) of the rewards; None: of those seen so far.
        device: of the arms handed out.

    Cost: O(S N) a step, unless a subclass says otherwise. Raises ValueError for sizes below 1, and a
    ``reward_range`` that is no pair of finite numbers, the first less than the second.
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        reward_range: Range | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.choices = Arms(num_arms, replicates)
        self.num_arms, self.replicates = num_arms, replicates
        self.reward_range = None if reward_range is None else _checked_range(reward_range)
        self.device = torch.device(device)
        self._begin()

    _expects = ("_numbers",)
    _numbers: dict[str, Tensor]
    needed: tuple[str, ...] = ()  # what ``learn`` needs of ``Choice.why``

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """Not empty where a range is given, which is in units of reward."""
        return "" if self.reward_range is None else "its reward_range is in units of reward"

    # -- what subclasses say ---------------------------------------------------------------------------

    def _fresh(self) -> dict[str, Any]:
        return {"_numbers": self._initial()}

    def _initial(self) -> dict[str, Tensor]:
        """The numbers before the first step, (S, ...) each."""
        low, high = self.reward_range or (torch.inf, -torch.inf)
        return {
            "count": self._zeros(self.num_arms),  # pulls of each arm that still count, or their weight
            "sum": self._zeros(self.num_arms),  # of their rewards
            "clock": self._zeros(),  # rewards learnt
            "low": self._zeros() + low,
            "high": self._zeros() + high,
        }

    @abstractmethod
    def _index(self) -> Tensor:
        """The index of every arm, (S, N), where the rewards seen differ."""

    def _update(self, rows: Tensor, arm: Tensor, reward: Tensor) -> None:
        """Learn the reward (S,) of the arm (S,); ``rows`` is 0, ..., S - 1."""
        self._numbers["count"][rows, arm] += 1
        self._numbers["sum"][rows, arm] += reward

    # -- one step --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The best available arm of each replicate; its index is ``why["index"]``, (S,)."""
        if available is not None:
            self.choices.check_available(available)
        best, arm = best_available(self._scores().mT, available)
        return Choice(arm, {"index": best})

    def _expect(self, pending: Pending, time: float) -> None:
        """As one whose reward is the arm's mean; that of an arm never pulled, the mean of all."""
        numbers, at = self._numbers, pending.arm.unsqueeze(-1)
        count, total = numbers["count"].gather(-1, at), numbers["sum"].gather(-1, at)
        everywhere = numbers["sum"].sum(-1, keepdim=True) / numbers["count"].sum(-1, keepdim=True).clamp_min(
            1e-300
        )
        numbers["sum"].scatter_add_(-1, at, torch.where(count > 0, total / count, everywhere))
        numbers["count"].scatter_add_(-1, at, torch.ones_like(count))
        numbers["clock"] += 1

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        """Count the pull and its reward."""
        self.choices.check(observation, *self.needed)
        self._check(observation)
        reward = observation.reward.to(self._numbers["sum"])
        if self.reward_range is None:
            self._numbers["low"] = torch.minimum(self._numbers["low"], reward)
            self._numbers["high"] = torch.maximum(self._numbers["high"], reward)
        self._numbers["clock"] += 1
        self._update(torch.arange(self.replicates, device=self.device), observation.arm, reward)

    def _check(self, observation: Observation) -> None:
        """Raise ValueError unless this policy can learn the observation, which is one of an arm and a reward."""

    def _scores(self) -> Tensor:
        """The index of every arm, (S, N): infinite for one never pulled; until rewards differ, who was pulled least."""
        count = self._numbers["count"]
        level = ~(self._spread > 0).unsqueeze(-1)
        return torch.where(level, -count, self._index()).masked_fill(count == 0, torch.inf)

    # -- rewards ---------------------------------------------------------------------------------------

    @property
    def _spread(self) -> Tensor:
        """high - low, (S,); not above 0 before two rewards differ."""
        return self._numbers["high"] - self._numbers["low"]

    def _means(self) -> Tensor:
        """Mean reward of each arm, (S, N)."""
        return self._numbers["sum"] / self._numbers["count"]

    def _scaled(self, reward: Tensor) -> Tensor:
        """Rewards (S, ...) as they lie in the range, in [0, 1]; 1/2 before two rewards differ."""
        shape = (-1,) + (1,) * (reward.dim() - 1)
        low, spread = self._numbers["low"].reshape(shape), self._spread.reshape(shape)
        return torch.where(spread > 0, (reward - low) / spread, 0.5).clamp(0.0, 1.0)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self.replicates, *shape, dtype=torch.float64, device=self.device)


def _checked_range(reward_range: Range) -> Range:
    expected = "two finite numbers, the first less than the second"
    pair = isinstance(reward_range, (tuple, list)) and len(reward_range) == 2
    validation.require(pair, "reward_range", reward_range, expected)
    low, high = (validation.finite_number("reward_range", end) for end in reward_range)
    validation.require(low < high, "reward_range", reward_range, expected)
    return low, high
