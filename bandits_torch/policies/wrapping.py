"""What a policy around another hands on as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from bandits_torch.policies.policy import Choice, Expect, Policy


class WrappingPolicy(Policy):
    """A policy around ``policy``, which chooses; what is learned, and all that differs, is the subclass's."""

    _parts = ("policy",)
    policy: Policy

    def _around(self, policy: Policy) -> None:
        self.policy = policy
        self.replicates, self.num_arms, self.dim = policy.replicates, policy.num_arms, policy.dim

    def choose(self, time: float, available: Any = None) -> Choice:
        """As the policy inside chooses."""
        return self.policy.choose(time, available)

    @property
    def innermost(self) -> Policy:
        """The policy inside, or the one inside that if it is around another."""
        inside = self.policy
        return inside.innermost if isinstance(inside, WrappingPolicy) else inside

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """As the policy inside."""
        return self.policy.needs_unit

    @property
    def knows_past(self) -> bool:  # type: ignore[override]
        """As the policy inside."""
        return self.policy.knows_past

    def numbers_per_step(self, observations: int) -> int:
        """As the policy inside."""
        return self.policy.numbers_per_step(observations)

    @contextmanager
    def expecting(self, time: float) -> Iterator[Expect]:
        """As the policy inside."""
        with self.policy.expecting(time) as expect:
            yield expect

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """What the policy inside believes, if it tells: mean and variance, (S, N) each."""
        return self.policy.marginals(time, points)  # type: ignore[attr-defined]

    def trace(self) -> dict[str, Tensor | float]:
        """What the policy inside tells."""
        return self.policy.trace()
