"""What models of many Gaussian processes over the same arms have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from bandits_torch.description import Described


class MembersOverArms(Described, torch.nn.Module, ABC):
    """P Gaussian processes over N arms, S replicates of each, that learn the same arms' rewards: the interface.

    Times must not decrease; an earlier time counts as now.
    """

    can_condition_mean = True  # which ``ArmModel`` cannot
    replicates: int
    now: float | None
    arms: Tensor  # (N, d)
    noise_variance: Tensor  # (P,) or (S, P)
    forgetting_rate: Tensor  # (P,), per unit of time; of smooth change that of equal integral
    prior_mean: Tensor  # (P, N)

    @property
    def batch_shape(self) -> torch.Size:
        """(S, P)."""
        return torch.Size((self.replicates, len(self.forgetting_rate)))

    @property
    def num_arms(self) -> int:
        """N."""
        return self.arms.shape[-2]

    @abstractmethod
    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now): (S, P, N) each."""

    @abstractmethod
    def at(self, arm: Tensor, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one arm per replicate, ``arm`` (S,), under every member: (S, P) each."""

    @abstractmethod
    def prior_at(self, arm: Tensor) -> tuple[Tensor, Tensor]:
        """``at`` before the first observation."""

    @abstractmethod
    def covariance_with(self, arm: Tensor, time: float | None = None) -> Tensor:
        """Posterior covariance of every arm with one per replicate, ``arm`` (S,), at ``time``: (S, P, N)."""

    @abstractmethod
    def likeness(self, arm: Tensor) -> Tensor:
        """Squared prior correlation of every arm with one per replicate, ``arm`` (S,), once the mean over all arms is
        taken off what arms earn: (S, P, N). A level that all arms share says nothing of one of them."""

    @abstractmethod
    def observe_arms(
        self, arm: Tensor, reward: Tensor, time: float | None = None, where: Tensor | None = None
    ) -> None:
        """Learn one reward per member, ``reward`` that broadcasts to (S, P), of one arm per replicate, (S, 1); with
        ``where``, that broadcasts to (S, P), in the members that have True there."""

    @abstractmethod
    def learn_now(
        self, arm: Tensor, reward: Tensor, at: tuple[Tensor, Tensor], turn: int, where: Tensor | None = None
    ) -> None:
        """``observe_arms`` at the time it is now, of arms (S,) whose moments are ``at``; the row of ``pending`` that is
        written is ``turn``."""

    @abstractmethod
    def prior_between(self, arms: Tensor, times: list[float]) -> Tensor:
        """Prior covariances between observations of ``arms`` (S, K) at ``times``: (S, P, K, K)."""

    @abstractmethod
    def condition_mean(self, where: Tensor, arms: Tensor, times: list[float], weights: Tensor) -> None:
        """Set the mean to that of a posterior with ``weights`` (S, P, K) on the prior covariances with observations of
        ``arms`` (S, K) at ``times``, in the members with ``where`` (S, P) True. The covariance stays."""

    @abstractmethod
    def reset(self, where: Tensor | None = None) -> None:
        """Back to the prior in the members with ``where`` (S, P) True; the clock goes on."""
