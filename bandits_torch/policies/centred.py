"""A policy told of rewards without their prior mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.policy import Choice, Expect, Observation, Policy


class CentredPolicy(Policy):
    """The policy inside learns reward - ``prior_mean``: exact for a policy over rewards of prior mean zero.

    One number for all arms, since a policy that is told differences alone cannot tell which arm's mean it was.

    Args:
        policy: over arms; it chooses, and learns the difference.
        prior_mean: in units of reward.

    Source: no paper's, a shift of the rewards. Raises ValueError for a ``prior_mean`` that is no finite number.
    """

    def __init__(self, policy: Policy, prior_mean: float) -> None:
        validation.instance("policy", policy, Policy, "a Policy")
        self.policy, self.prior_mean = policy, validation.finite_number("prior_mean", prior_mean)
        self.replicates, self.num_arms, self.dim = policy.replicates, policy.num_arms, policy.dim

    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """As the policy inside chooses."""
        return self.policy.choose(time, available)

    @contextmanager
    def expecting(self, time: float) -> Iterator[Expect]:
        """As the policy inside."""
        with self.policy.expecting(time) as expect:
            yield expect

    def learn(self, observation: Observation) -> None:
        """Learn how far the reward lies above the prior mean."""
        Arms(self.num_arms, self.replicates).check(observation)
        self.policy.learn(replace(observation, reward=observation.reward - self.prior_mean))

    def reset(self, where: Tensor | None = None) -> None:
        """As the policy inside."""
        self.policy.reset(where)

    def trace(self) -> dict[str, Tensor | float]:
        """What the policy inside tells."""
        return self.policy.trace()

    def state_dict(self) -> dict[str, Any]:
        """The state of the policy inside."""
        return self.policy.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        self.policy.load_state_dict(state)
