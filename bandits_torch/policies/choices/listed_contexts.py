"""Arms under one of finitely many contexts, by a model over all pairs of arm and context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.policies.choices.arms import ModelArms, best_available
from bandits_torch.policies.choices.contexts import check_inputs, checked_context, step_over
from bandits_torch.policies.policy import Observation
from bandits_torch.streams import ReplicateStreams


def pairs_of(arms: Tensor, contexts: Tensor) -> Tensor:
    """Features of all pairs, (N M, d + c): the M of the first arm first."""
    left, right = arms.repeat_interleave(len(contexts), 0), contexts.repeat(len(arms), 1)
    return torch.cat([left, right], -1)


class ListedContexts(ModelArms):
    """N arms whose steps come with one of M contexts, for an ``ArmModel`` over the N M pairs of both.

    Every pair has its marginals in the model, so a step costs what one of N M arms costs, however many observations
    there are. Beside that like ``ContextualArms``, with ``at_step``, ``as_chosen`` and what ``choose`` is told.

    Args:
        model: over the pairs, in the order of ``pairs_of``.
        arms: (N, d).
        contexts: (M, c), no two the same.

    Raises ValueError for a model over other pairs, and contexts of another shape, or some of them twice.
    """

    def __init__(self, model: ArmModel, arms: Tensor, contexts: Tensor) -> None:
        validation.finite_tensor("choices", arms)
        validation.shape_is("choices", arms, arms.dim() == 2, "(N, d)")
        check_contexts(contexts.to(arms))
        super().__init__(model)
        self._pairs = pairs_of(arms, contexts.to(arms))
        same = model.arms.shape == self._pairs.shape and bool((model.arms == self._pairs).all())
        expected = f"the {len(self._pairs)} pairs of arm and context, (N M, d + c)"
        validation.require(same, "model.arms", model.arms, expected)
        self.num_arms, self.arms, self.contexts = len(arms), arms, contexts.to(arms)
        self._expected = f"int64 from 0 to {self.num_arms - 1}"
        self._of_step: Tensor | None = None  # the number of its context, (S,)
        self._of_choice: Tensor | None = None

    # -- what a step brings ----------------------------------------------------------------------------

    def read(self, available: Any) -> tuple[Tensor, Tensor | None]:
        """The number of the context, (S,), and the mask, of what ``choose`` was given.

        ValueError for a context that is missing, of another shape, or none of the M, and for features of a step.
        """
        step = step_over(available, self)
        expected = "None: the model is over the features that the policy was built with"
        validation.require(step.features is None, "features", step.features, expected)
        context = checked_context(step.context, self.contexts.shape[-1], self.replicates)
        return self._number("context", context.to(self.contexts)), step.available

    def _number(self, name: str, context: Tensor) -> Tensor:
        found = (context.unsqueeze(-2) == self.contexts).all(-1)
        listed = bool(found.any(-1).all())
        validation.require(listed, name, context, f"one of the {len(self.contexts)} contexts given")
        return found.to(torch.uint8).argmax(-1).expand(self.replicates)

    @contextmanager
    def at_step(self, rows: Tensor) -> Iterator[None]:
        """Within the block the context has this number, (S,): see ``read``."""
        before, self._of_step = self._of_step, rows
        try:
            yield
        finally:
            self._of_step = before

    @contextmanager
    def as_chosen(self, inputs: Tensor) -> Iterator[None]:
        """Within the block the context is that of what was chosen, whose inputs these are, (S, d + c)."""
        before, self._of_choice = self._of_choice, self._number_in(inputs)
        try:
            yield
        finally:
            self._of_choice = before

    def _number_in(self, inputs: Tensor) -> Tensor:
        return self._number("why['inputs']", inputs.to(self.contexts)[..., self.arms.shape[-1] :])

    def check(self, observation: Observation, *told: str) -> None:
        """See ``Choices``; the context of the choice, too."""
        super().check(observation, *told)
        self._number_in(check_inputs(observation, (self.replicates, self._pairs.shape[-1])))

    # -- pairs -----------------------------------------------------------------------------------------

    def features(self, arm: Tensor) -> Tensor:
        """Features and context of a choice of this step, (S, d + c)."""
        return self._pairs[self._pair(arm)]

    def _pair(self, arm: Tensor) -> Tensor:
        number = self._of_step if self._of_choice is None else self._of_choice
        expected = "one of those given: there is none outside of a step"
        validation.require(number is not None, "context", number, expected)
        assert number is not None
        return arm * len(self.contexts) + number

    def _of_all(self, values: Tensor) -> Tensor:
        """Of values (S, N M) those of the step's context, (S, N)."""
        every = torch.arange(self.num_arms, device=values.device).unsqueeze(-1)
        return values.gather(-1, self._pair(every).mT)

    def inputs_of(self, arm: Tensor, time: float) -> Tensor:
        """See ``ModelArms``, of the pair."""
        return super().inputs_of(self._pair(arm), time)

    def observe(self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False) -> None:
        """See ``ModelArms``, of the pair."""
        super().observe(self._pair(arm), reward, time, late=late)

    def _expect(self, arm: Tensor, time: float) -> None:
        super()._expect(self._pair(arm), time)

    def observe_noisy(self, arm: Tensor, reward: Tensor, time: float, noise_variance: Tensor) -> None:
        """See ``ModelArms``, of the pair."""
        super().observe_noisy(self._pair(arm), reward, time, noise_variance)

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """See ``ModelArms``, of the pair."""
        return super().predict(self._pair(arm), time)

    def marginals(self, time: float, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of every arm under the step's context, (S, N) each."""
        shape = (self.replicates, len(self._pairs))
        mean, variance = (moment.reshape(shape) for moment in self.model.marginals(time))
        return self._of_all(mean), self._of_all(variance)

    def best(
        self, acquisition: AcquisitionFunction, time: float, available: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """All pairs scored in one call, the best of the step's context."""
        scores = acquisition(self.inputs(time)).reshape(len(self._pairs), -1)
        scores = scores.expand(-1, self.replicates)
        value, arm = best_available(self._of_all(scores.mT).mT, available)
        return arm, value

    def step(self, time: float, width: Tensor | None, streams: ReplicateStreams) -> StepContext:
        """Normal numbers of every pair."""
        pairs = len(self._pairs)
        shape = (*self.model.batch_shape, pairs)
        return StepContext(time, width, base_samples=lambda: streams.normal(pairs).reshape(shape))


def check_contexts(contexts: Tensor) -> None:
    """ValueError unless these are M different contexts, (M, c)."""
    validation.finite_tensor("contexts", contexts)
    fits = contexts.dim() == 2 and min(contexts.shape) > 0
    validation.shape_is("contexts", contexts, fits, "(M, c), all contexts there can be")
    different = len(contexts.unique(dim=0)) == len(contexts)
    validation.require(different, "contexts", contexts, f"different from each other in {contexts.dtype}")
