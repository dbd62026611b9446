"""Members of several kinds over the same arms, as one model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.level_members import LevelMembers
from bandits_torch.models.arms.members import MembersOverArms, RecursiveMembers, Time


class StackedMembers(MembersOverArms):
    """The members of several models, one model after the other: for example ``ArmMembers``, then ``SmoothMembers``.

    Args:
        parts: models over the same arms, of the same replicates.

    Cost: the sum of the parts' costs. Source: that of its parts; the combination is ours.
    Raises ValueError for parts that do not fit each other, and without a part.
    """

    def __init__(self, parts: Sequence[RecursiveMembers]) -> None:
        super().__init__()
        validation.instance("parts", parts, (list, tuple), "a list of models")
        validation.require(len(parts) > 0, "parts", parts, "at least one")
        for part in parts:
            expected = "ArmMembers, SmoothMembers or CyclicMembers"
            validation.instance("parts", part, RecursiveMembers, expected)
            validation.require(not isinstance(part, LevelMembers), "parts", part, expected)
            fits = part.replicates == parts[0].replicates and torch.equal(part.arms, parts[0].arms)
            validation.require(fits, "parts", part, "models over the same arms, of the same replicates")
        self.stacked = torch.nn.ModuleList(parts)
        self.replicates = parts[0].replicates
        self.has_cycles = any(part.has_cycles for part in parts)
        self._sizes = [len(part.forgetting_rate) for part in parts]
        noises = [part.noise_variance.expand(part.batch_shape) for part in parts]
        self.register_buffer("noise_variance", torch.cat(noises, -1), persistent=False)
        for name in ("forgetting_rate", "prior_mean"):
            whole = torch.cat([getattr(part, name) for part in parts])
            self.register_buffer(name, whole, persistent=False)

    @property
    def parts(self) -> tuple[RecursiveMembers, ...]:
        """The parts that have a recursion of their own, in the order of their members."""
        return tuple(self.stacked)  # type: ignore[arg-type]

    @property
    def arms(self) -> Tensor:  # type: ignore[override]
        """(N, d)."""
        return self.parts[0].arms

    @property
    def now(self) -> float | None:  # type: ignore[override]
        """The time of the latest observation."""
        return self.parts[0].now

    def _each(self, *values: Tensor) -> list[tuple[RecursiveMembers, list[Tensor]]]:
        """Each part, with its slices of tensors (S, P, ...)."""
        shares = [value.split(self._sizes, 1) for value in values]
        return [(part, [share[k] for share in shares]) for k, part in enumerate(self.parts)]

    def marginals(self, time: Time | None = None) -> tuple[Tensor, Tensor]:
        return _joined([part.marginals(time) for part in self.parts])

    def at(self, arm: Tensor, time: Time | None = None) -> tuple[Tensor, Tensor]:
        return _joined([part.at(arm, time) for part in self.parts])

    def prior_at(self, arm: Tensor, time: Time | None = None) -> tuple[Tensor, Tensor]:
        return _joined([part.prior_at(arm, time) for part in self.parts])

    def covariance_with(self, arm: Tensor, time: Time | None = None) -> Tensor:
        return torch.cat([part.covariance_with(arm, time) for part in self.parts], 1)

    def likeness(self, arm: Tensor, weights: Tensor) -> Tensor:
        return sum(part.likeness(arm, own) for part, (own,) in self._each(weights))  # type: ignore[return-value]

    def observe_arms(
        self, arm: Tensor, reward: Tensor, time: Time | None = None, where: Tensor | None = None
    ) -> None:
        for part, (own, *here) in self._each(*self._expanded(reward, where)):
            part.observe_arms(arm, own, time, *here)

    def learn_now(
        self, arm: Tensor, reward: Tensor, at: tuple[Tensor, Tensor], turn: int, where: Tensor | None = None
    ) -> None:
        for part, (mean, variance, own, *here) in self._each(*at, *self._expanded(reward, where)):
            part.learn_now(arm, own, (mean, variance), turn, *here)

    def _expanded(self, reward: Tensor, where: Tensor | None) -> list[Tensor]:
        """Both, (S, P), or ``reward`` alone."""
        return [value.expand(self.batch_shape) for value in (reward, where) if value is not None]

    def prior_between(self, arms: Tensor, times: Sequence[Time]) -> Tensor:
        return torch.cat([part.prior_between(arms, times) for part in self.parts], 1)

    def condition_mean(self, where: Tensor, arms: Tensor, times: Sequence[Time], weights: Tensor) -> None:
        for part, (here, own) in self._each(where, weights):
            part.condition_mean(here, arms, times, own)

    def grow_from(self, small: StackedMembers) -> None:  # type: ignore[override]
        """Take over what ``small`` learned, a model of the same kinds of members over the first of these arms."""
        for part, other in zip(self.parts, small.parts, strict=True):
            part.grow_from(other)

    def reset(self, where: Tensor | None = None) -> None:
        if where is None:
            for part in self.parts:
                part.reset()
            return
        for part, (here,) in self._each(where):
            part.reset(here)


def _joined(moments: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    mean, variance = zip(*moments, strict=True)
    return torch.cat(mean, 1), torch.cat(variance, 1)
