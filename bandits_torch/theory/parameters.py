"""Parameters of the theory's formulas: numbers, or tensors with one value per member of a model's batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel

Parameter = float | Tensor


def checked(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    """``check(name, value)`` for a number, or for each entry of a tensor (which is returned as it is)."""
    if not isinstance(value, Tensor):
        return check(name, value)
    for entry in value.flatten().tolist():
        check(name, entry)
    return value


def checked_scale(noise_scale: Parameter | None) -> Parameter | None:
    """R > 0, or None for the model's sqrt(lambda)."""
    return None if noise_scale is None else checked(validation.positive, "noise_scale", noise_scale)


def scale_of(noise: Tensor, noise_scale: Parameter | None) -> Parameter:
    """R as given, or else sqrt(lambda), lambda = ``noise``."""
    return noise.sqrt() if noise_scale is None else like(noise, noise_scale)


def check_step(step: int | Tensor) -> None:
    """Check that an integer step is at least 1. A tensor is not checked: that would synchronise with the device."""
    if not isinstance(step, Tensor):
        validation.positive_integer("step", step)


def clock(step: int | Tensor, model: OnlineModel) -> Tensor:
    """The step as a tensor with the dtype and device of the model's noise variance."""
    noise = model.noise_variance
    return step.to(noise) if isinstance(step, Tensor) else noise.new_full((), step)


def like(noise: Tensor, value: Parameter) -> Parameter:
    """A parameter ready for arithmetic with ``noise``: tensors in its dtype and on its device."""
    return value.to(noise) if isinstance(value, Tensor) else value


def log(value: Parameter) -> Parameter:
    """Natural logarithm of a number or a tensor."""
    return torch.log(value) if isinstance(value, Tensor) else math.log(value)
