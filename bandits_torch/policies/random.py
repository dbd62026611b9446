"""The floor of every race: an arm drawn uniformly at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.policies.policy import (
    Choice,
    Observation,
    Policy,
    check_observation,
    check_points,
    domain_now,
)
from bandits_torch.streams import ReplicateStreams

_MOST_DRAWS = 1000


class RandomPolicy(Policy):
    """Draws an arm uniformly among the available ones, in each replicate by itself.

    Args:
        num_arms: N.
        replicates: S.
        seed: of the draws, an integer >= 0.
        first_replicate: number of the first replicate, so that replicate k can be run alone.
        device: of the arms handed out.

    Cost: O(S) a step, O(S N) with a mask. A mask is checked for an available arm when it is not the very
    tensor of the step before; on a GPU that check waits for the device.

    Raises ValueError for ``num_arms`` or ``replicates`` below 1.
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        seed: int = 0,
        first_replicate: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self.replicates = validation.positive_integer("replicates", replicates)
        # float64 whatever the problem's dtype: a float32 draw can round up to 1 and name arm N.
        self._streams = ReplicateStreams(
            seed, replicates, purpose="policy", first=first_replicate, dtype=torch.float64, device=device
        )
        self._checked: tuple[Tensor, int] | None = None

    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The arm number floor(u count) of the ``count`` available ones, u uniform on [0, 1).

        Raises ValueError when a replicate has no arm available; the random stream then stays where it is.
        """
        if available is None:
            return Choice((self._streams.uniform() * self.num_arms).long())
        self._check(available)
        count = available.sum(-1)
        rank = (self._streams.uniform() * count).long()
        passed = available.cumsum(-1) > rank.unsqueeze(-1)  # True from the rank-th available arm on
        return Choice(passed.long().argmax(-1))

    def _check(self, available: Tensor) -> None:
        validation.tensor("available", available)
        seen = self._checked
        if seen is not None and seen[0] is available and seen[1] == available._version:
            return
        shapes = ((self.num_arms,), (self.replicates, self.num_arms))
        ok = available.dtype == torch.bool and tuple(available.shape) in shapes
        validation.shape_is("available", available, ok, f"{shapes[0]} or {shapes[1]} and dtype torch.bool")
        empty = ~available.any(-1)
        if bool(empty.any()):
            where = f" in replicates {empty.nonzero().flatten().tolist()[:8]}" if empty.dim() else ""
            raise ValueError(f"available must leave at least one arm to choose, got none{where}")
        self._checked = (available, available._version)

    def learn(self, observation: Observation) -> None:
        """Learns nothing; what was observed is checked all the same."""
        check_observation(observation, self.replicates, self.num_arms)

    def reset(self, where: Tensor | None = None) -> None:
        """Nothing to unlearn; the random stream goes on, so that a restart brings new draws."""

    def state_dict(self) -> dict[str, Any]:
        """The random streams."""
        return {"streams": self._streams.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        self._streams.load_state_dict(state["streams"])


class RandomPointPolicy(Policy):
    """Draws a point uniformly from a box, in each replicate by itself: the floor of races on a continuous domain.

    Args:
        domain: the box; ``choose`` may be told another. Inequality constraints are met by drawing again, up to
            1 000 times.
        replicates, seed, first_replicate: as for ``RandomPolicy``.
    """

    def __init__(
        self, domain: Domain, replicates: int = 1, *, seed: int = 0, first_replicate: int = 0
    ) -> None:
        self.domain, self.dim, self.num_arms = domain, domain.dim, 0
        self.replicates = validation.positive_integer("replicates", replicates)
        bounds = domain.bounds
        self._streams = ReplicateStreams(
            seed,
            replicates,
            purpose="policy",
            first=first_replicate,
            dtype=bounds.dtype,
            device=bounds.device,
        )

    def choose(self, time: float, available: Domain | None = None) -> Choice:  # type: ignore[override]
        """Uniform points (S, d) of the domain; ValueError where 1 000 draws find none that meets the constraints."""
        domain = domain_now(self.domain, available)
        low, high = domain.bounds
        points = domain.fix(low + (high - low) * self._streams.uniform(self.dim))
        for _ in range(_MOST_DRAWS if domain.inequality_constraints else 0):
            outside = ~domain.contains(points, 0.0)
            if not bool(outside.any()):
                break
            again = domain.fix(low + (high - low) * self._streams.uniform(self.dim))
            points = torch.where(outside.unsqueeze(-1), again, points)
        found = bool(domain.contains(points, 0.0).all())
        validation.require(found, "available", domain, "a domain whose constraints leave some of its box")
        return Choice(points)

    def learn(self, observation: Observation) -> None:
        """Learns nothing; what was observed is checked all the same."""
        check_points(observation, self.replicates, self.dim)

    def reset(self, where: Tensor | None = None) -> None:
        """Nothing to unlearn; the random stream goes on."""

    def state_dict(self) -> dict[str, Any]:
        """The random streams."""
        return {"streams": self._streams.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the policy that gave ``state`` stood."""
        self._streams.load_state_dict(state["streams"])
