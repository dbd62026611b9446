"""The base of the classical policies: counts and sums of each arm's rewards, and the range of rewards."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.arm_policy import ArmPolicy, State
from bandits_torch.policies.policy import Choice, Observation
from bandits_torch.streams import ReplicateStreams

Range = tuple[float, float]


class MeansPolicy(ArmPolicy):
    """Plays the available arm with the largest index; ties go to the smallest number, arms never pulled come first.

    Args:
        num_arms, replicates, seed, first_replicate, device: as for ``ArmPolicy``.
        reward_range: (low, high) of the rewards; None: of those seen so far.

    Cost: O(S N) a step, unless a subclass says otherwise. Raises ValueError as ``ArmPolicy``, and for a
    ``reward_range`` that is not a pair of finite numbers, the first less than the second.
    """

    reward_range: Range | None = None

    def __post_init__(self) -> None:
        if self.reward_range is not None:
            self.reward_range = checked_range(self.reward_range)
        super().__post_init__()

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """The reason why the policy needs the unit of rewards: a range is given. Empty if none is."""
        return "" if self.reward_range is None else "its reward_range is in units of reward"

    def init(self) -> State:
        """See ``ArmPolicy``."""
        low, high = self.reward_range or (torch.inf, -torch.inf)
        return {
            "count": self.zeros(self.num_arms),  # pulls of each arm that still count, or their weight
            "sum": self.zeros(self.num_arms),  # of their rewards
            "clock": self.zeros(),  # rewards learnt
            "low": self.zeros() + low,
            "high": self.zeros() + high,
        }

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        """The index of every arm, (S, N), once rewards differ; by default ``means``."""
        return self.means(state)

    def scores(self, state: State, streams: ReplicateStreams) -> Tensor:
        """The index of every arm, (S, N): infinite if never pulled; until rewards differ, the arm pulled least
        leads."""
        count, level = state["count"], ~(spread(state) > 0).unsqueeze(-1)
        return torch.where(level, -count, self.index(state, streams)).masked_fill(count == 0, torch.inf)

    def choice(
        self, state: State, time: float, available: Tensor | None, streams: ReplicateStreams
    ) -> Choice:
        """The best available arm of each replicate; its index is ``why["index"]``, (S,)."""
        best, arm = self.best(self.scores(state, streams), available)
        return Choice(arm, {"index": best})

    def learned(self, state: State, observation: Observation) -> State:
        """Count the pull and its reward."""
        reward, at = observation.reward, observation.arm.unsqueeze(-1)
        if self.reward_range is None:
            state["low"] = torch.minimum(state["low"], reward)
            state["high"] = torch.maximum(state["high"], reward)
        state["clock"] += 1
        state["count"].scatter_add_(-1, at, torch.ones_like(at, dtype=torch.float64))
        state["sum"].scatter_add_(-1, at, reward.unsqueeze(-1))
        return state

    def means(self, state: State) -> Tensor:
        """The mean reward of each arm, (S, N); for an arm never pulled, the mean over all arms' rewards."""
        count, total = state["count"], state["sum"]
        everywhere = total.sum(-1, keepdim=True) / count.sum(-1, keepdim=True).clamp_min(1e-300)
        return torch.where(count > 0, total / count, everywhere)


def spread(state: State) -> Tensor:
    """high - low, (S,); not above 0 before two rewards differ."""
    return state["high"] - state["low"]


def scaled(state: State, reward: Tensor) -> Tensor:
    """Rewards (S, ...) as they lie in the range, in [0, 1]; 1/2 before two rewards differ."""
    shape = (-1,) + (1,) * (reward.dim() - 1)
    low, width = state["low"].reshape(shape), spread(state).reshape(shape)
    return torch.where(width > 0, (reward - low) / width, 0.5).clamp(0.0, 1.0)


def checked_range(reward_range: Range) -> Range:
    expected = "two finite numbers, the first less than the second"
    pair = isinstance(reward_range, (tuple, list)) and len(reward_range) == 2
    validation.require(pair, "reward_range", reward_range, expected)
    low, high = (validation.finite_number("reward_range", end) for end in reward_range)
    validation.require(low < high, "reward_range", reward_range, expected)
    return low, high
