"""What one step of a policy brings to the acquisition it is built with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor


def _nothing() -> None:
    """What a step without random numbers, or without choices of its own, has to give."""


@dataclass(frozen=True)
class StepContext:
    """What is known when a choice is made, beside the model. Random numbers are drawn when they are asked for.

    Attributes:
        time: when the choice will be played; None where the model knows of no time.
        width: multiplies sigma, broadcasting to the model's batch; None: the policy has none.
        base_samples: gives standard normal numbers, ``batch_shape x N`` for N arms; None: there are none.
        seeds: gives a seed for each replicate, the same in a batch and alone; None: there are none.
        choices: gives the arms as inputs, ``N x D``, of a model over any inputs; None where a model has its own.
    """

    time: float | None = None
    width: Tensor | None = None
    base_samples: Callable[[], Tensor | None] = _nothing
    seeds: Callable[[], list[int] | None] = _nothing
    choices: Callable[[], Tensor | None] = _nothing


class AtStep(Protocol):
    """An acquisition class, or an object that makes acquisitions, that wants more of a step than a width.

    An index policy calls ``at_step`` once a step, where there is one. Any other acquisition is called with the model,
    and with ``width=`` where the policy has a width.
    """

    def at_step(self, model: Model, step: StepContext) -> AcquisitionFunction:
        """The acquisition of this step."""
