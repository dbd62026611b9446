"""BoTorch's transform to t-batches, with the type that a method of a subclass has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

_Method = TypeVar("_Method", bound=Callable[..., Tensor])


def over_t_batches(expected_q: int | None = None, any_output: bool = False) -> Callable[[_Method], _Method]:
    """``t_batch_mode_transform``, whose annotation takes methods of ``AcquisitionFunction`` itself alone.

    ``any_output``: values may have more batch dimensions than X, those of the model.
    """
    decorate: Any = t_batch_mode_transform(expected_q=expected_q, assert_output_shape=not any_output)
    return decorate
