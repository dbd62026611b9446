"""What acquisition functions share: the context of a step, t-batches, and values that are given per arm."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

_Method = TypeVar("_Method", bound=Callable[..., Tensor])
_Class = TypeVar("_Class", bound=type)


def _nothing(*sizes: int) -> None:
    """The default: no random numbers, no choices."""


@dataclass(frozen=True)
class StepContext:
    """What an acquisition function may need at a step besides the model. Random numbers are drawn on request.

    Attributes:
        time: the time of the choice; None for a model without time.
        width: the number that multiplies sigma, broadcasts to the model's batch; None for a policy without a width.
        base_samples: a function that returns standard normal numbers, ``batch_shape x N`` for N arms, or
            ``batch_shape x M x N`` if it is called with M; None: there are none.
        seeds: a function that returns a seed for each replicate, the same in a batch and alone; None: there are none.
        choices: a function that returns the arms as inputs, ``N x D``, for a model over inputs; None for a model over
            arms.
    """

    time: float | None = None
    width: Tensor | None = None
    base_samples: Callable[..., Tensor | None] = _nothing
    seeds: Callable[[], list[int] | None] = _nothing
    choices: Callable[[], Tensor | None] = _nothing


class AtStep(Protocol):
    """An acquisition class, or a factory of acquisition functions, that needs more of a step than a width: an index
    policy calls ``at_step`` once per step if it exists, and any other class with the model, and ``width=`` if it has
    one."""

    def at_step(self, model: Model, step: StepContext) -> AcquisitionFunction:
        """The acquisition of this step."""


def built_by_name(**defaults: Any) -> Callable[[_Class], _Class]:
    """Registers a class with BoTorch: built by name, it takes the arguments of its constructor, with these defaults."""

    def register(cls: Any) -> Any:
        @functools.wraps(cls.__init__)  # BoTorch drops arguments that are not in this signature
        def arguments(model: Model, **given: Any) -> dict[str, Any]:
            return {"model": model} | defaults | given

        acqf_input_constructor(cls)(arguments)
        return cls

    return register


def over_t_batches(expected_q: int | None = None, any_output: bool = False) -> Callable[[_Method], _Method]:
    """BoTorch's ``t_batch_mode_transform``, typed for the methods of a subclass.

    ``any_output``: values may have more batch dimensions than X, those of the model.
    """
    decorate: Any = t_batch_mode_transform(expected_q=expected_q, assert_output_shape=not any_output)
    return decorate


def at_arms(values: Tensor, arm: Tensor) -> Tensor:
    """The entries of ``values``, ``batch x N``, at arm indices ``t_batch``, which broadcast with ``batch``."""
    shape = torch.broadcast_shapes(arm.shape, values.shape[:-1])
    values = values.expand(*shape, values.shape[-1])
    return values.gather(-1, arm.expand(shape).unsqueeze(-1)).squeeze(-1)
