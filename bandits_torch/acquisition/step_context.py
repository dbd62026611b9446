"""What one step of a policy brings to the acquisition it is built with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor


def _nothing(*sizes: int) -> None:
    """What a step without random numbers, or without choices of its own, has to give."""


@dataclass(frozen=True)
class StepContext:
    """What an acquisition function may need at a step besides the model. Random numbers are drawn on request.

    Attributes:
        time: of the choice; None for a model without time.
        width: multiplies sigma, broadcasts to the model's batch; None for a policy without one.
        base_samples: gives standard normal numbers, ``batch_shape x N`` for N arms, or called with M
            ``batch_shape x M x N``; None: there are none.
        seeds: gives a seed for each replicate, the same in a batch and alone; None: there are none.
        choices: gives the arms as inputs, ``N x D``, of a model over any inputs; None where a model has its own.
    """

    time: float | None = None
    width: Tensor | None = None
    base_samples: Callable[..., Tensor | None] = _nothing
    seeds: Callable[[], list[int] | None] = _nothing
    choices: Callable[[], Tensor | None] = _nothing


class AtStep(Protocol):
    """An acquisition class, or a factory of acquisition functions, that needs more of a step than a width.

    An index policy calls ``at_step`` once per step if it exists. It calls any other acquisition class with the model,
    and with ``width=`` if the policy has one.
    """

    def at_step(self, model: Model, step: StepContext) -> AcquisitionFunction:
        """The acquisition of this step."""
