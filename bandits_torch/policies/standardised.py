"""A policy told of rewards in units of their own spread, about their own mean, learned as the first of them come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.policies.wrapping import WrappingPolicy


class StandardisedPolicy(WrappingPolicy):
    """The policy inside learns (reward - ``offset``) / ``scale``, the mean and standard deviation of the first rewards.

    After rewards number 1, 2, 4, ..., ``warm_up`` the two are computed anew from all rewards so far, and the policy is
    reset and learns those again in the new unit; then they stay. So what it believes is at every moment exactly that of
    a policy built with the prior mean offset + scale m, the covariance scale^2 k and the noise variance scale^2 lambda
    (m, k, lambda its own), told of the rewards as they are, and choices do not depend on unit and origin of rewards.
    While all rewards are equal, ``scale`` is 1. Each replicate has its own.

    A level or spread that changes later is not followed: take ``recipes.auto``, which learns both for good.

    Args:
        policy: any that learns an observation anew after ``reset`` in another unit. Those that cannot say why
            (``needs_unit``): they hold limits or ranges in units of reward, learn rewards in turn, or learn the unit by
            themselves.
        warm_up: rewards that unit and origin are learned from.

    Cost: up to ``warm_up`` steps at a reward that changes the unit; nothing after the warm-up, when the rewards kept
    for it are dropped. Widths for functions of bounded norm, or noise of known scale, then mean units of ``scale``.

    Source: no paper's; an affine change of a Gaussian process. Raises ValueError for another policy, and a ``warm_up``
    below 2.
    """

    needs_unit = "it learns the unit by itself"

    def __init__(self, policy: Policy, *, warm_up: int = 64) -> None:
        validation.instance("policy", policy, Policy, "a Policy")
        why = policy.needs_unit
        name = type(policy.innermost if isinstance(policy, WrappingPolicy) else policy).__name__
        expected = f"one that can be told rewards in another unit later ({why})"
        validation.require(not why, "policy", name, expected)
        enough = validation.positive_integer("warm_up", warm_up) >= 2
        validation.require(enough, "warm_up", warm_up, "an integer >= 2")
        self.warm_up = warm_up
        self._around(policy)
        self.outcome_names = policy.outcome_names
        self._begin()

    offset: Tensor
    scale: Tensor
    _told: list[Observation]
    _count: int
    _lasting = ("offset", "scale")

    def _fresh(self) -> dict[str, Any]:
        offset = torch.zeros(self.replicates, dtype=torch.float64)
        return {"offset": offset, "scale": torch.ones_like(offset), "_told": [], "_count": 0}

    def state_changed(self) -> None:
        """Observations are observations again."""
        self._told = [one if isinstance(one, Observation) else Observation(**one) for one in self._told]

    def _restarted(self, where: Tensor | None) -> None:
        """With all replicates the unit is learned anew, with some it stays."""
        if where is None or bool(where.all()):
            self._begin()
        else:
            self._told, self._count = [], self.warm_up

    def learn(self, observation: Observation) -> None:
        """Learn the reward in the unit of now; or, if it is time, all of them in a new unit."""
        reward = validation.tensor("reward", observation.reward)
        fits = reward.shape == (self.replicates,)
        validation.shape_is("reward", reward, fits, f"({self.replicates},)")
        count = self._count + 1
        told = []
        if count <= self.warm_up:
            validation.rewards("reward", reward)
            told = [*self._told, observation]
        if told and (count & (count - 1) == 0 or count == self.warm_up):
            self._learn_anew(told)
        else:
            self.policy.learn(_standard(observation, self.offset, self.scale))
        self._count, self._told = count, told if count < self.warm_up else []

    def _learn_anew(self, told: list[Observation]) -> None:
        """Learn all of these in the unit that follows from them; nothing is changed where one is refused."""
        offset, scale = _unit_of(torch.stack([one.reward.double() for one in told]))
        before = self.policy.state_dict()
        try:
            self.policy.reset()
            for one in told:
                self.policy.learn(_standard(one, offset, scale))
        except Exception:
            self.policy.load_state_dict(before)
            raise
        self.offset, self.scale = offset, scale

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance in units of reward, (S, N) each, of what the policy inside tells them of."""
        mean, variance = super().marginals(time, points)
        offset, scale = self.offset.to(mean).unsqueeze(-1), self.scale.to(mean).unsqueeze(-1)
        return offset + scale * mean, scale.square() * variance

    def trace(self) -> dict[str, Tensor | float]:
        """What the policy inside tells, ``offset`` and ``scale``."""
        return self.policy.trace() | {"offset": self.offset, "scale": self.scale}


def _unit_of(rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Offset and scale (S,) of rewards (n, S): their mean and standard deviation."""
    offset, spread = rewards.mean(0), rewards.std(0, correction=0)
    rounding = 1e-12 * rewards.abs().amax(0)
    return offset, torch.where(spread > rounding, spread, 1.0)


def _standard(observation: Observation, offset: Tensor, scale: Tensor) -> Observation:
    """The observation in this unit."""
    reward, noise = observation.reward, observation.noise_variance
    offset, scale = offset.to(reward), scale.to(reward)
    noise = None if noise is None else noise / scale.square()
    return replace(observation, reward=(reward - offset) / scale, noise_variance=noise)
