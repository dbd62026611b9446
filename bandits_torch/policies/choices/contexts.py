"""Arms under a context, which may be any numbers, or one of a finite list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.policies.choices.arms import Arms, ArmsWithModel, ListedArms, ModelArms
from bandits_torch.policies.policy import Observation, Pending

INPUTS = "inputs"  # in ``Choice.why``


class ArmsUnderContext(ArmsWithModel):
    """Base class: arms whose inputs depend on the context of a step.

    Each choice carries its inputs, (S, d + c), so a reward is learned with them, however late. A policy chooses within
    ``at_step``, which sets the inputs of the arms, and learns within ``as_chosen``, which sets those of the choice.
    Outside of both there is no context, and a method that needs inputs raises ValueError (unless c = 0).
    """

    _num_inputs: int  # d + c
    _of_step: Tensor | None = None  # the value of ``at_step``
    _of_choice: Tensor | None = None  # the value of ``as_chosen``

    def at_step(self, step: Tensor) -> AbstractContextManager[None]:
        """Within the block ``step``, which ``read`` returned, determines the inputs of all arms."""
        return self._with_value("_of_step", step)

    def as_chosen(self, inputs: Tensor) -> AbstractContextManager[None]:
        """Within the block ``inputs`` (S, d + c) are those of the choice, whatever the arm."""
        return self._with_value("_of_choice", self._known_by(inputs))

    @contextmanager
    def _with_value(self, name: str, value: Tensor) -> Iterator[None]:
        before = getattr(self, name)
        setattr(self, name, value)
        try:
            yield
        finally:
            setattr(self, name, before)

    def _known_by(self, inputs: Tensor) -> Tensor:
        """The value that ``as_chosen`` sets. Raises ValueError for impossible inputs."""
        return inputs

    def check(self, observation: Observation, *needed: str) -> None:
        """See ``Choices``; also checks the inputs of the choice."""
        super().check(observation, *needed)
        self._known_by(self.inputs_in(observation))

    def inputs_in(self, one: Observation | Pending) -> Tensor:
        """The inputs that a choice carries, (S, d + c). Raises ValueError for others."""
        return check_inputs(one, (self.replicates, self._num_inputs))


class ContextualArms(ArmsUnderContext, ListedArms):
    """Arms given by features, with a context of c numbers at every step, for a model over d + c inputs and time.

    Args:
        model: an ``OnlineModel`` over d + c inputs, or d + c + 1 with time last; batch shape () or (S,).
        arms: ``(N, d)``.
        context_dim: c >= 0.

    Raises ValueError for a model of another number of inputs and a ``context_dim`` that is not an integer >= 0.
    """

    def __init__(self, model: OnlineModel, arms: Tensor, context_dim: int = 0) -> None:
        super().__init__(model, checked_features("choices", arms))
        self.context_dim = validation.natural("context_dim", context_dim)
        self._num_inputs = count = arms.shape[-1] + context_dim
        inputs = getattr(model, "input_dim", None)
        expected = f"{count}, features and context, or {count + 1} with time"
        validation.require(inputs in (count, count + 1), "model.input_dim", inputs, expected)
        self._of_step = arms if context_dim == 0 else None

    def read(self, available: Any) -> tuple[Tensor, Tensor | None]:
        """The inputs of all arms without time, (N, d + c) or (S, N, d + c), and the mask, from ``choose``'s argument.

        Raises ValueError for a context that is missing, not accepted, or of the wrong shape, and for other numbers of
        arms, features or replicates.
        """
        return inputs_under(available, self, self.arms, self.context_dim)

    def features(self, arm: Tensor) -> Tensor:
        """The inputs of a choice of this step, without time, (S, d + c)."""
        rows = self._now()
        if rows.dim() == 2:
            return rows[arm]
        return rows.gather(1, arm.reshape(-1, 1, 1).expand(-1, 1, rows.shape[-1])).squeeze(1)

    def inputs_of(self, arm: Tensor, time: float) -> Tensor:
        """Features, context and time of the choice."""
        rows = self.features(arm) if self._of_choice is None else self._of_choice.to(self.arms.device)
        return self._maybe_timed(rows, time).reshape(*self._first, 1, -1)

    def _rows(self, time: float) -> Tensor:
        """(N, D) or (S, N, D)."""
        return self._maybe_timed(self._now(), time)

    def _now(self) -> Tensor:
        expected = f"a context of {self.context_dim} numbers: there is none outside of a step"
        validation.require(self._of_step is not None, "context", None, expected)
        return cast(Tensor, self._of_step)


def step_over(available: Any, arms: Arms) -> ArmContext:
    """``available``, a mask or an ``ArmContext``, as an ``ArmContext``. Raises ValueError for a mask without an arm."""
    bare = isinstance(available, Tensor) and available.is_floating_point()
    validation.require(not bare, "available", available, "a mask of booleans; a context in an ArmContext")
    step = available if isinstance(available, ArmContext) else ArmContext(available=available)
    if step.available is not None:
        arms.check_available(step.available)
    return step


def inputs_under(
    available: Any, choices: Arms, arms: Tensor, context_dim: int
) -> tuple[Tensor, Tensor | None]:
    """Features and context of all arms, (N, d + c) or (S, N, d + c), and the mask, from the argument of ``choose``.

    ``arms``: their features (N, d), unless the step has others. Errors: see ``ContextualArms.read``.
    """
    step = step_over(available, choices)
    N, d, c, S = choices.num_arms, arms.shape[-1], context_dim, choices.replicates
    rows, context = arms, step.context
    if step.features is not None:
        rows = validation.of_shape("features", step.features.to(arms), (N, d), (S, N, d))
    if c == 0:
        validation.require(context is None, "context", context, "None: the policy takes none")
        return rows, step.available
    context = checked_context(context, c, S).unsqueeze(-2)  # 1 x c or S x 1 x c
    context = context.to(arms.device, torch.float64)  # float32 has too few digits for times
    shape = torch.broadcast_shapes(rows.shape[:-1], context.shape[:-1])
    return torch.cat([rows.expand(*shape, d), context.expand(*shape, c)], -1), step.available


def checked_context(context: Tensor | None, c: int, S: int) -> Tensor:
    """The context of a step, (c,) or (S, c). Raises ValueError if it is missing or has the wrong shape."""
    expected = (
        f"{c} number{'s' if c > 1 else ''} known before the choice: `context=` of an AskTell, or "
        f"`choose(time, ArmContext(context))` with a tensor ({c},) or ({S}, {c})"
    )
    validation.require(context is not None, "context", context, expected)
    return validation.of_shape("context", context, (c,), (S, c))


def check_inputs(observation: Observation | Pending, shape: tuple[int, int]) -> Tensor:
    """The inputs of a choice. Raises ValueError unless they have the right number and are finite."""
    name, inputs = f"why[{INPUTS!r}]", observation.why.get(INPUTS)
    fits = isinstance(inputs, Tensor) and inputs.shape == shape and inputs.is_floating_point()
    expected = f"a tensor {shape}, the inputs of the choice: pass `choice.why` to the observation"
    validation.require(fits, name, inputs, expected)
    assert isinstance(inputs, Tensor)
    if inputs.is_cpu:
        validation.finite_tensor(name, inputs)
    return inputs


def pairs_of(arms: Tensor, contexts: Tensor) -> Tensor:
    """Features of all pairs, (N M, d + c): first the M pairs of the first arm."""
    left, right = arms.repeat_interleave(len(contexts), 0), contexts.repeat(len(arms), 1)
    return torch.cat([left, right], -1)


def number_under(available: Any, choices: Arms, contexts: Tensor) -> tuple[Tensor, Tensor | None]:
    """The number of the context, (S,), and the mask, from the argument of ``choose``. Errors: see
    ``ListedContexts.read``."""
    step = step_over(available, choices)
    expected = "None: the model is over the features that the policy was built with"
    validation.require(step.features is None, "features", step.features, expected)
    context = checked_context(step.context, contexts.shape[-1], choices.replicates)
    return number_of("context", context, contexts).expand(choices.replicates), step.available


def number_of(name: str, context: Tensor, contexts: Tensor) -> Tensor:
    """The numbers of ``context`` (..., c) among the M ``contexts`` (M, c). Raises ValueError for others.

    A context that is not listed counts as the only one, if there is one, that equals it in float32: one of the two may
    have been a tensor of that dtype.
    """
    one = context.to(contexts).unsqueeze(-2)
    found, rounded = (one == contexts).all(-1), (one.float() == contexts.float()).all(-1)
    only = rounded & (rounded.sum(-1, keepdim=True) == 1)
    found = torch.where(found.any(-1, keepdim=True), found, only)
    listed = bool(found.any(-1).all())
    validation.require(listed, name, context, f"one of the {len(contexts)} contexts given")
    return found.to(torch.uint8).argmax(-1)


class ListedContexts(ArmsUnderContext, ModelArms):
    """N arms whose steps come with one of M contexts, for an ``ArmModel`` over the N M pairs of both.

    The model holds the marginals of every pair, so a step costs as much as one over N M arms, however many observations
    there are. ``at_step`` and ``as_chosen`` take and store the number of the context, (S,).

    Args:
        model: over the pairs, in the order of ``pairs_of``.
        arms: (N, d).
        contexts: (M, c), no two the same.

    Raises ValueError for a model over other pairs, and for contexts of the wrong shape or listed twice.
    """

    def __init__(self, model: ArmModel, arms: Tensor, contexts: Tensor) -> None:
        checked_features("choices", arms)
        check_contexts(contexts.to(arms))
        super().__init__(model)
        self.num_arms, self.contexts, pairs = len(arms), contexts.to(arms), pairs_of(arms, contexts.to(arms))
        same = self.arms.shape == pairs.shape and bool((self.arms == pairs).all())
        expected = f"the {len(pairs)} pairs of arm and context, (N M, d + c)"
        validation.require(same, "model.arms", self.arms, expected)
        self._expected, self._num_inputs = f"int64 from 0 to {self.num_arms - 1}", pairs.shape[-1]

    def read(self, available: Any) -> tuple[Tensor, Tensor | None]:
        """The number of the context, (S,), and the mask, from the argument of ``choose``.

        Raises ValueError for a context that is missing, misshapen, or none of the M, and for features of a step.
        """
        return number_under(available, self, self.contexts)

    def _known_by(self, inputs: Tensor) -> Tensor:
        number = number_of("why['inputs']", inputs[..., -self.contexts.shape[-1] :], self.contexts)
        return number.expand(self.replicates)

    def features(self, arm: Tensor) -> Tensor:
        """Features and context of a choice of this step, (S, d + c)."""
        return self.arms[self._index(arm)]

    def _index(self, arm: Tensor) -> Tensor:
        number = self._of_step if self._of_choice is None else self._of_choice
        expected = "one of the contexts given: there is none outside of a step"
        validation.require(number is not None, "context", number, expected)
        assert number is not None
        return arm * len(self.contexts) + number.reshape(-1, *[1] * (arm.dim() - 1))

    def _values(self, acquisition: AcquisitionFunction, time: float) -> Tensor:
        return self._of_step_alone(super()._values(acquisition, time).reshape(len(self.arms), -1).mT).mT

    def marginals(self, time: float, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mean, variance = super().marginals(time)
        return self._of_step_alone(mean), self._of_step_alone(variance)

    def _of_step_alone(self, values: Tensor) -> Tensor:
        """The values (S, N) under the step's context, from those of all pairs, (S or 1, N M)."""
        every = torch.arange(self.num_arms, device=values.device).expand(self.replicates, -1)
        return values.expand(self.replicates, -1).gather(-1, self._index(every))


def checked_features(name: str, arms: Tensor) -> Tensor:
    """Features of arms, (N, d), so small that squares of distances are finite. Raises ValueError for others."""
    return validation.of_shape(name, validation.rewards(name, arms), ("N", "d"))


def check_contexts(contexts: Tensor) -> None:
    """Raises ValueError unless these are M different contexts, (M, c)."""
    validation.finite_tensor("contexts", contexts)
    fits = contexts.dim() == 2 and min(contexts.shape) > 0
    validation.shape_is("contexts", contexts, fits, "(M, c), all possible contexts")
    validation.rewards("contexts", contexts.double())  # the same limit as for ``ArmContext``
    different = len(contexts.unique(dim=0)) == len(contexts)
    validation.require(different, "contexts", contexts, f"different from each other in {contexts.dtype}")
