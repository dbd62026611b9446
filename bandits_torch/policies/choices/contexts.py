"""Arms under a context: a model's inputs are features, context and time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.choices.arms import Arms, ListedArms
from bandits_torch.policies.policy import Observation

INPUTS = "inputs"  # in ``Choice.why``


class ContextualArms(ListedArms):
    """Arms given by features, with a context of c numbers at every step, for a model over d + c inputs and time.

    A choice is told with the inputs that its arm had, features and context, (S, d + c), so that a reward is learned
    with those of its own question, however late. Whoever chooses or learns says which they are by ``at_step`` and
    ``as_chosen``; outside of both there is no context, and asking for inputs is a ValueError (unless c = 0).

    Args:
        model: an ``OnlineModel`` over d + c inputs, or one more, with the time the last; batch shape () or (S,).
        arms: ``(N, d)``.
        context_dim: c >= 0.

    Raises ValueError for a model of another number of inputs and a ``context_dim`` that is no integer >= 0.
    """

    def __init__(self, model: OnlineModel, arms: Tensor, context_dim: int = 0) -> None:
        validation.finite_tensor("choices", arms)
        validation.shape_is("choices", arms, arms.dim() == 2, "(N, d)")
        super().__init__(model, arms)
        self.context_dim = validation.natural("context_dim", context_dim)
        own = arms.shape[-1] + context_dim
        inputs = getattr(model, "input_dim", None)
        expected = f"{own}, features and context, or {own + 1} with time"
        validation.require(inputs in (own, own + 1), "model.input_dim", inputs, expected)
        self._told = own
        self._of_step: Tensor | None = arms if context_dim == 0 else None
        self._of_choice: Tensor | None = None

    # -- what a step brings ----------------------------------------------------------------------------

    def read(self, available: Any) -> tuple[Tensor, Tensor | None]:
        """The inputs of all arms, (N, d + c) or (S, N, d + c), and the mask, of what ``choose`` was given.

        ValueError for a context that is missing, not taken, or of another shape, and for other numbers of arms,
        features or replicates.
        """
        step = step_over(available, self)
        N, d, c, S = self.num_arms, self.arms.shape[-1], self.context_dim, self.replicates
        rows, context = self.arms, step.context
        if step.features is not None:
            rows, shapes = step.features.to(self.arms), ((N, d), (S, N, d))
            validation.shape_is("features", rows, rows.shape in shapes, f"{shapes[0]} or {shapes[1]}")
        if c == 0:
            validation.require(context is None, "context", context, "None: the policy takes none")
            return rows, step.available
        context = checked_context(context, c, S).unsqueeze(-2)  # 1 x c or S x 1 x c
        context = context.to(self.arms.device, torch.float64)  # it may name a period by its time
        shape = torch.broadcast_shapes(rows.shape[:-1], context.shape[:-1])
        return torch.cat([rows.expand(*shape, d), context.expand(*shape, c)], -1), step.available

    @contextmanager
    def at_step(self, rows: Tensor) -> Iterator[None]:
        """Within the block these are the inputs of the arms, without time: see ``read``."""
        before, self._of_step = self._of_step, rows
        try:
            yield
        finally:
            self._of_step = before

    @contextmanager
    def as_chosen(self, inputs: Tensor) -> Iterator[None]:
        """Within the block these are the inputs of what was chosen, (S, d + c), whatever the arm."""
        before, self._of_choice = self._of_choice, inputs
        try:
            yield
        finally:
            self._of_choice = before

    def check(self, observation: Observation, *told: str) -> None:
        """See ``Choices``; the inputs of the choice, too."""
        super().check(observation, *told)
        check_inputs(observation, (self.replicates, self._told))

    # -- inputs ----------------------------------------------------------------------------------------

    def features(self, arm: Tensor) -> Tensor:
        """The inputs of a choice of this step, without time, (S, d + c)."""
        rows = self._known(self._of_step)
        if rows.dim() == 2:
            return rows[arm]
        return rows.gather(1, arm.reshape(-1, 1, 1).expand(-1, 1, rows.shape[-1])).squeeze(1)

    def inputs(self, time: float) -> Tensor:
        """Features of all arms, context and time, ``N x S x 1 x D`` (``N x 1 x 1 x D`` where replicates share)."""
        rows = self._rows(time)
        if rows.dim() == 2:
            return rows.reshape(self.num_arms, *[1] * len(self.model.batch_shape), 1, -1)
        return rows.movedim(0, 1).unsqueeze(-2)

    def inputs_of(self, arm: Tensor, time: float) -> Tensor:
        """Features, context and time of what was chosen."""
        rows = self.features(arm) if self._of_choice is None else self._of_choice.to(self.arms.device)
        return self._maybe_timed(rows, time).reshape(*self._first, 1, -1)

    def _rows(self, time: float) -> Tensor:
        """(N, D) or (S, N, D)."""
        return self._maybe_timed(self._known(self._of_step), time)

    def _known(self, rows: Tensor | None) -> Tensor:
        expected = f"a context of {self.context_dim} numbers: there is none outside of a step"
        validation.require(rows is not None, "context", rows, expected)
        assert rows is not None
        return rows


def step_over(available: Any, arms: Arms) -> ArmContext:
    """What ``choose`` was given, whether a mask or more; ValueError for a mask that leaves no arm."""
    bare = isinstance(available, Tensor) and available.is_floating_point()
    validation.require(not bare, "available", available, "a mask of booleans; a context in an ArmContext")
    step = available if isinstance(available, ArmContext) else ArmContext(available=available)
    if step.available is not None:
        arms.check_available(step.available)
    return step


def checked_context(context: Tensor | None, c: int, S: int) -> Tensor:
    """The context of a step, (c,) or (S, c); ValueError for none, or another shape."""
    expected = f"a tensor ({c},) or ({S}, {c}), in an ArmContext"
    validation.require(context is not None, "context", context, expected)
    assert context is not None
    validation.shape_is("context", context, context.shape in ((c,), (S, c)), f"({c},) or ({S}, {c})")
    return context


def check_inputs(observation: Observation, shape: tuple[int, int]) -> Tensor:
    """The inputs that came with an observation; ValueError unless there are so many, finite."""
    name, inputs = f"why[{INPUTS!r}]", observation.why.get(INPUTS)
    fits = isinstance(inputs, Tensor) and inputs.shape == shape and inputs.is_floating_point()
    validation.require(fits, name, inputs, f"a tensor {shape}, the inputs that the choice was made with")
    assert isinstance(inputs, Tensor)
    if inputs.is_cpu:
        validation.finite_tensor(name, inputs)
    return inputs
