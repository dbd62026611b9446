"""A policy told of rewards without their prior mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices import Arms
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.policies.wrapping import WrappingPolicy


class CentredPolicy(WrappingPolicy):
    """The policy inside learns reward - ``prior_mean``: exact for a policy over rewards of prior mean zero.

    One number for all arms, since a policy that is told differences alone cannot tell which arm's mean it was.

    Args:
        policy: over arms; it chooses, and learns the difference.
        prior_mean: in units of reward.

    Source: no paper's, a shift of the rewards. Raises ValueError for a ``prior_mean`` that is no finite number.
    """

    def __init__(self, policy: Policy, prior_mean: float) -> None:
        validation.instance("policy", policy, Policy, "a Policy")
        self.prior_mean = validation.finite_number("prior_mean", prior_mean)
        self._around(policy)

    def learn(self, observation: Observation) -> None:
        """Learn how far the reward lies above the prior mean."""
        Arms(self.num_arms, self.replicates).check(observation)
        self.policy.learn(replace(observation, reward=observation.reward - self.prior_mean))

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """What the policy inside believes, if it tells, and the prior mean."""
        mean, variance = super().marginals(time, points)
        return mean + self.prior_mean, variance
