"""Averaging over members for arms under a context, for listed contexts or any."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.choices.arms import Arms, best_available
from bandits_torch.policies.choices.contexts import (
    INPUTS,
    check_contexts,
    check_inputs,
    inputs_under,
    number_of,
    number_under,
    pairs_of,
)
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.policies.wrapping import WrappingPolicy


class UnderContexts(WrappingPolicy):
    """A policy over N arms under a context, around a policy that averages over members.

    ``choose`` takes an ``ArmContext``. A choice carries the inputs of its arm, features and context, ``why["inputs"]``
    (S, d + c), and a reward is learned with the inputs of its own question, however late it comes.
    """

    takes_contexts = True
    policy: ModelAveraging | PointAveraging

    def _over(self, policy: Policy, arms: Tensor, context_dim: int) -> None:
        self._around(policy)
        validation.finite_tensor("arms", arms)
        validation.shape_is("arms", arms, arms.dim() == 2, "(N, d)")
        self.arms, self.context_dim = arms, validation.positive_integer("context_dim", context_dim)
        self.num_arms, self.dim = len(arms), 0
        self.choices = Arms(self.num_arms, self.replicates, arms.dtype)

    @abstractmethod
    def _known_as(self, arm: Tensor, inputs: Tensor) -> Tensor:
        """The inner policy's choice for arms (S,) with these inputs (S, d + c)."""

    def learn(self, observation: Observation) -> None:
        """Learn the reward of a choice with the inputs that it was made with."""
        self.choices.check(observation)
        inputs = check_inputs(observation, (self.replicates, self.arms.shape[-1] + self.context_dim))
        self.policy.learn(replace(observation, arm=self._known_as(observation.arm, inputs), why={}))

    def expect(self, pending: Pending, time: float) -> None:
        """Pending pulls count with the inputs of their own question, as in the inner policy."""
        arm = self._known_as(pending.arm, pending.why[INPUTS])
        self.policy.expect(replace(pending, arm=arm), time)

    @property
    def innermost(self) -> Policy:
        """This policy: the inner one does not know arms under a context."""
        return self

    @abstractmethod
    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of every arm's expected reward at ``time`` under a context, an ``ArmContext``: (S, N) each.

        Raises ValueError for a time before the latest observation.
        """

    @abstractmethod
    def components(self, time: float, points: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """The mixture's parts under a context: see the ``components`` of the inner policy."""


class PairAveraging(UnderContexts):
    """``ModelAveraging`` over the N M pairs of N arms and M contexts; a step chooses among the pairs of its context.

    Args:
        policy: over the pairs, those of the first arm first.
        arms: features, (N, d).
        contexts: (M, c), all contexts there can be.

    Cost: a step of ``policy``. Source: the choice among the arms of a step's context is that of CGP-UCB (Krause & Ong
    2011, Algorithm 1). Raises ValueError for a policy over another number of arms, and for contexts that are not
    different; ``choose`` raises it for an unlisted context.
    """

    policy: ModelAveraging

    def __init__(self, policy: ModelAveraging, arms: Tensor, contexts: Tensor) -> None:
        validation.instance("policy", policy, ModelAveraging, "a ModelAveraging")
        check_contexts(contexts)
        self._over(policy, arms, contexts.shape[-1])
        self.contexts = contexts.to(arms)
        check_contexts(self.contexts)
        self._pairs = pairs_of(arms, self.contexts)
        validation.require(
            policy.num_arms == len(self._pairs), "policy", policy.num_arms, f"over {len(self._pairs)} pairs"
        )

    def choose(self, time: float, available: Any = None) -> Choice:
        """The best available arm (S,), among the pairs with the step's context."""
        number, mask = number_under(available, self.choices, self.contexts)
        S, N, M = self.replicates, self.num_arms, len(self.contexts)
        open_to = torch.nn.functional.one_hot(number, M).bool().unsqueeze(-2).expand(S, N, M)
        if mask is not None:
            open_to = open_to & mask.unsqueeze(-1)
        pair = self.policy.choose(time, open_to.reshape(S, N * M)).arm
        return Choice(pair // M, {INPUTS: self._pairs[pair]})

    def _known_as(self, arm: Tensor, inputs: Tensor) -> Tensor:
        number = number_of(f"why[{INPUTS!r}]", inputs[..., self.arms.shape[-1] :], self.contexts)
        return arm * len(self.contexts) + number

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """See ``UnderContexts``."""
        mean, variance = (self._under(points, moment) for moment in self.policy.marginals(time))
        return mean, variance

    def components(self, time: float, points: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """See ``ModelAveraging.components``."""
        weights, mean, variance = self.policy.components(time)
        return weights, self._under(points, mean), self._under(points, variance)

    def _under(self, context: Any, values: Tensor) -> Tensor:
        """The entries of values (S, ..., N M) under a context, (S, ..., N)."""
        number, _ = number_under(context, self.choices, self.contexts)
        each = values.unflatten(-1, (self.num_arms, -1))
        at = number.reshape(-1, *[1] * (each.dim() - 1)).expand(*each.shape[:-1], 1)
        return each.gather(-1, at).squeeze(-1)


class ContextAveraging(UnderContexts):
    """``PointAveraging`` over features and context; a step chooses among N points: the arms under its context.

    Args:
        policy: over d + c inputs, or those that matter. Its width is used, but not its search and its looks.
        arms: features, (N, d), unless a step has others.
        context_dim: c.
        matters: columns of the context that the policy uses; None: all.
        counted: arms are 0, ..., N - 1, (N, 1), and the policy's inputs are the context and then one input for each
            arm, which is 1 for that arm.

    Cost: a step of ``policy`` and O(S P N n^2) for n observations held, without a search. Source: as ``PairAveraging``.
    Raises ValueError for a policy over another number of inputs, and contexts of another shape.
    """

    policy: PointAveraging

    def __init__(
        self,
        policy: PointAveraging,
        arms: Tensor,
        context_dim: int,
        matters: Sequence[int] | None = None,
        *,
        counted: bool = False,
    ) -> None:
        validation.instance("policy", policy, PointAveraging, "a PointAveraging")
        self._over(policy, arms, context_dim)
        d, columns = arms.shape[-1], range(context_dim) if matters is None else matters
        self._columns = torch.tensor([*range(d), *(d + k for k in columns)], device=arms.device)
        self.counted = counted
        own = len(self._columns) + (self.num_arms - 1 if counted else 0)
        validation.require(
            policy.dim == own, "policy", policy.dim, f"over {own} inputs, features and context"
        )

    def choose(self, time: float, available: Any = None) -> Choice:
        """The available arm (S,) with the largest m + width sqrt(v) under the step's context."""
        rows, mask = self._rows(available)
        _, arm = best_available(self.policy.values(time, self._seen(rows)).mT, mask)
        return Choice(arm, {INPUTS: rows[torch.arange(len(rows), device=arm.device), arm]})

    def _rows(self, available: Any) -> tuple[Tensor, Tensor | None]:
        """Inputs of all arms, (S, N, d + c), and the mask."""
        rows, mask = inputs_under(available, self.choices, self.arms, self.context_dim)
        return rows.expand(self.replicates, *rows.shape[-2:]), mask

    def _known_as(self, arm: Tensor, inputs: Tensor) -> Tensor:
        return self._seen(inputs)

    def _seen(self, inputs: Tensor) -> Tensor:
        """The columns of inputs (..., d + c) that the inner policy uses."""
        seen = inputs[..., self._columns]
        if not self.counted:
            return seen
        arm = torch.nn.functional.one_hot(seen[..., 0].long(), self.num_arms)
        return torch.cat([seen[..., 1:], arm.to(seen)], -1)

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """See ``UnderContexts``."""
        return self.policy.marginals(time, self._seen(self._rows(points)[0]))

    def components(self, time: float, points: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """See ``PointAveraging.components``."""
        return self.policy.components(time, self._seen(self._rows(points)[0]))
