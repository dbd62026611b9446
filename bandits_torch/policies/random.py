"""The baseline of every race: an arm or a point drawn uniformly at random."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch.arm_context import ArmContext, mask_of
from bandits_torch.domain import Domain
from bandits_torch.policies.choices import choices_of
from bandits_torch.policies.policy import Choice, Observation, Policy
from bandits_torch.streams import ReplicateStreams


class RandomPolicy(Policy):
    """Draws uniformly among the available arms or points, independently in each replicate.

    Args:
        choices: N, the number of arms, or their features (N, d); or a ``Domain``, whose points it draws, by rejection
            with at most 1 000 repetitions under inequality constraints.
        replicates: S.
        seed: seed of the draws, an integer >= 0.
        first_replicate: number of the first replicate, so replicate k can be run alone.
        device: where the returned arms are; points are on the device of their domain.

    Cost: O(S) per step, O(S N) with a mask. A mask is checked for an available arm unless it is the same tensor as in
    the step before; on a GPU that check waits for the device.

    Raises ValueError for ``choices`` that are none of these, and ``replicates`` below 1.
    """

    _parts = ("_streams",)

    def __init__(
        self,
        choices: Tensor | int | Domain,
        replicates: int = 1,
        *,
        seed: int = 0,
        first_replicate: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.choices = choices_of(choices, replicates)
        self.replicates, self.num_arms = replicates, self.choices.num_arms
        self.dim = self.choices.dim
        # float64 for arms: in float32 the product of a draw below 1 and N can round up to N.
        like = torch.zeros((), dtype=torch.float64, device=device)
        like = choices.bounds if isinstance(choices, Domain) else like
        self._streams = ReplicateStreams(seed, replicates, purpose="policy", first=first_replicate, like=like)

    def choose(self, time: float, available: Tensor | Domain | ArmContext | None = None) -> Choice:
        """Draw uniformly from what is available, whatever the context. Raises ValueError if nothing is; the random
        streams then do not advance."""
        return Choice(self.choices.draw(self._streams, mask_of(available)))

    def learn(self, observation: Observation) -> None:
        """Learns nothing, but checks the observation."""
        self.choices.check(observation)
