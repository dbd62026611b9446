"""The base class of policies over arms that consist of settings and one state."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, dataclass_transform

import torch
from torch import Tensor

from bandits_torch.policies.choices.arms import Arms, best_available
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.streams import ReplicateStreams

# Tensors with the replicates as first dimension, and numbers that all replicates share.
State = dict[str, Any]


@dataclass_transform(kw_only_default=True, eq_default=False)
@dataclass(kw_only=True, eq=False, repr=False)
class ArmPolicy(Policy):
    """A policy over N arms that consists of its settings and one state.

    Its author writes three methods, and ``trace``, ``means`` and ``check`` if they are needed::

        init() -> state                                   before the first observation
        choice(state, time, available, streams) -> Choice of every replicate; changes nothing
        learned(state, observation) -> state              after the observation; may change the given state

    The state is a dictionary of tensors with the replicates as first dimension. The settings are the annotated fields
    of the class; as in a dataclass, they are arguments of its constructor. A subclass that checks them does so in
    ``__post_init__``, and then calls ``super().__post_init__()``.

    What users call follows: ``choose`` and ``learn``, which check their arguments and store the state, ``choose_many``,
    ``state_dict``, ``load_state_dict`` and ``reset``, checkpoints, files and captured steps.

    Args:
        num_arms, replicates: N and S.
        seed, first_replicate: the seed of the random numbers, and the number of the first replicate.
        device: where the returned arms and the state are. Rewards are learned in float64.

    Attributes:
        state: what observations change.
        needed: names of tensors (S,) in ``why`` that ``learned`` reads. An observation without them is refused.
        fixed: whether a step reads no value of a tensor and all shapes stay the same, so steps can be captured
            (``run(..., capture=True)``).

    Raises ValueError unless sizes are integers >= 1.
    """

    num_arms: int = field(kw_only=False)
    replicates: int = field(default=1, kw_only=False)
    seed: int = 0
    first_replicate: int = 0
    device: torch.device | str = "cpu"
    state: State = field(init=False)

    needed: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[bool] = True
    _parts = ("streams",)
    _expects = ("state",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        super().__init_subclass__(**kwargs)

    def __post_init__(self) -> None:
        self.choices = Arms(self.num_arms, self.replicates)
        self.device = torch.device(self.device)
        self.streams = ReplicateStreams(
            self.seed, self.replicates, purpose="policy", first=self.first_replicate, device=self.device
        )
        self._begin()

    # -- what an author writes -------------------------------------------------------------------------

    @abstractmethod
    def init(self) -> State:
        """The state before the first observation. ``zeros`` helps."""

    @abstractmethod
    def choice(
        self, state: State, time: float, available: Tensor | None, streams: ReplicateStreams
    ) -> Choice:
        """The choice at ``time`` among ``available`` arms, (N,) or (S, N) booleans; None: all. Random numbers come from
        ``streams``, the same number at every step. It changes nothing else."""

    @abstractmethod
    def learned(self, state: State, observation: Observation) -> State:
        """The state after an observation, which has been checked. The given state may be changed in place."""

    def means(self, state: State) -> Tensor | None:
        """The expected reward of every arm, (S, N), which a pending pull counts as its reward. None: pending pulls are
        ignored, which is right if every choice is an independent draw."""
        return None

    def mean_rewards(self) -> Tensor | None:
        """``means`` of the current state."""
        return self.means(self.state)

    def check(self, observation: Observation) -> None:
        """Raise ValueError unless this policy can learn the observation, whose arm and finite reward have been
        checked."""

    # -- what helps in it ------------------------------------------------------------------------------

    def zeros(self, *shape: int) -> Tensor:
        """Zeros, S x shape, float64."""
        return torch.zeros(self.replicates, *shape, dtype=torch.float64, device=self.device)

    def mask(self, available: Tensor | None) -> Tensor:
        """The available arms, (S, N) booleans."""
        if available is None:
            return torch.ones(self.replicates, self.num_arms, dtype=torch.bool, device=self.device)
        return available.expand(self.replicates, self.num_arms)

    def best(self, scores: Tensor, available: Tensor | None) -> tuple[Tensor, Tensor]:
        """The largest score (S, N) of an available arm, and the arm, (S,) each; ties go to the smaller index."""
        return best_available(scores.mT, available)

    # -- what users call -------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        self.choices.check_available(available)
        return self.choice(self.state, time, available, self.streams)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        self.choices.check(observation, *self.needed)
        self.check(observation)
        reward = observation.reward
        if reward.dtype != torch.float64:
            observation = replace(observation, reward=reward.double())
        self.state = self.learned(self.state, observation)

    def expect(self, pending: Pending, time: float) -> None:
        """Learn a reward equal to the arm's mean, if there are ``means``."""
        means = self.means(self.state)
        if means is not None:
            reward = means.gather(-1, pending.arm.unsqueeze(-1)).squeeze(-1)
            observed = Observation(pending.time, pending.arm, reward, pending.why)
            self.choices.check(observed, *self.needed)
            self.state = self.learned(self.state, observed)

    def _fresh(self) -> dict[str, Any]:
        return {"state": self.init()}
