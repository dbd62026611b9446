"""Index policies over arms under a context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.step_context import AtStep
from bandits_torch.arm_context import ArmContext
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.choices import ModelChoices
from bandits_torch.policies.choices.contexts import INPUTS, ContextualArms, ListedContexts
from bandits_torch.policies.forgetting import ForgettingRule
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Choice, Observation, Pending
from bandits_torch.theory.widths import Width


class ContextualPolicy(IndexPolicy):
    """Plays argmax over the arms of acquisition(model) at [features, context] of a step: CGP-UCB and similar policies.

    A context that all arms share, features that change from step to step, and a mask come with ``choose``::

        choice = policy.choose(time, ArmContext(torch.tensor([temperature, load])))

    One exact model over arm x context learns them all (Krause & Ong 2011, Algorithm 1). ``choice.why`` carries the
    inputs of the arm chosen, ``inputs`` (S, d + c), and ``learn`` takes them from there: a reward that comes late is
    learned with the context of its own question.

    If there are finitely many contexts and all are known (``contexts``), a model over all pairs of arm and context
    replaces it, and a step costs the same however many observations there are.

    Args:
        model: an ``OnlineModel`` over d + c inputs [features, context], or d + c + 1 with the time the last
            (``OnlineGP``), of batch shape () or (S,). With ``contexts`` an ``ArmModel`` (``ArmGP``) over the N M pairs
            [features, context], those of the first arm first.
        acquisition, width, seed, first_replicate: see ``IndexPolicy``.
        choices: features of the arms, (N, d).
        context_dim: c, numbers of the context; 0 if only features change, or nothing.
        contexts: (M, c), all possible contexts, with features that do not change; None: any context.
        forgetting: bounds the cost of a step, which is O(n (n + N)) with n observations held; default: keep all.

    Raises ValueError for a model over another number of inputs, or other pairs, and as ``IndexPolicy``. ``choose``
    raises ValueError, with nothing changed, for a context that is missing, not taken, of another shape, or none of
    ``contexts``.
    """

    choices: ContextualArms | ListedContexts
    takes_contexts = True

    def __init__(
        self,
        model: OnlineModel,
        acquisition: Callable[..., AcquisitionFunction] | AtStep,
        *,
        choices: Tensor,
        context_dim: int = 0,
        contexts: Tensor | None = None,
        width: Width | None = None,
        forgetting: ForgettingRule | None = None,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        validation.tensor("choices", choices)
        self.context_dim, self.contexts = validation.natural("context_dim", context_dim), contexts
        super().__init__(
            model,
            acquisition,
            choices=choices,
            width=width,
            forgetting=forgetting,
            seed=seed,
            first_replicate=first_replicate,
        )

    def _choices_over(self, model: OnlineModel, choices: Any, **search: Any) -> ModelChoices:
        if self.contexts is None:
            return ContextualArms(model, choices, self.context_dim)
        validation.instance("model", model, ArmModel, "an ArmModel, with contexts")
        listed = ListedContexts(cast(ArmModel, model), choices, self.contexts)
        own = listed.contexts.shape[-1]
        validation.require(self.context_dim == own, "context_dim", self.context_dim, f"{own}, as contexts")
        return listed

    def add_arms(self, arms: Tensor, **options: Any) -> None:
        """Raises ValueError: not possible under contexts. Features may change from step to step instead."""
        validation.require(False, "arms", arms, "those that the policy was built with, under contexts")

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | ArmContext | None = None) -> Choice:  # type: ignore[override]
        """The best available arm (S,) under the step's context; its index is ``why["index"]``, its inputs
        ``why["inputs"]``, (S, d + c)."""
        rows, mask = self.choices.read(available)
        with self.choices.at_step(rows):
            choice = super().choose(time, mask)
            return Choice(choice.arm, {**choice.why, INPUTS: self.choices.features(choice.arm)})

    def learn_checked(self, observation: Observation) -> None:
        """See ``IndexPolicy``, with the inputs of the choice."""
        with self.choices.as_chosen(observation.why[INPUTS]):
            super().learn_checked(observation)

    def predicted(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """See ``IndexPolicy``, with the inputs of the choice."""
        with self.choices.as_chosen(observation.why[INPUTS]):
            return super().predicted(observation)

    def expect(self, pending: Pending, time: float) -> None:
        """See ``IndexPolicy``: pending pulls count with the inputs of their own question."""
        with self.choices.as_chosen(pending.why[INPUTS]):
            super().expect(pending, time)

    @torch.no_grad()
    def marginals(self, time: float, points: Tensor | ArmContext | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` under a context, an ``ArmContext``, (S, N) each."""
        with self.choices.at_step(self.choices.read(points)[0]):
            return self.choices.marginals(time)
