"""What is told of a question: a reward for every replicate, and the outcomes measured beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation


def numbers(name: str, value: Any) -> Tensor:
    """A number, of NumPy or torch too, or a tensor or sequence of numbers, all finite, in float64."""
    is_real = not (value.is_complex() if isinstance(value, Tensor) else np.iscomplexobj(value))
    try:
        numbers = torch.as_tensor(value if is_real else None, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        validation.require(False, name, value, "a finite number, or a tensor of such")
        raise
    return validation.rewards(name, numbers.detach())


def for_each(name: str, value: Tensor, replicates: int) -> Tensor:
    """A number for each replicate, (S,)."""
    fits = value.shape in ((), (replicates,))
    validation.shape_is(name, value, fits, f"() or ({replicates},)")
    return value.expand(replicates)


def outcomes_of(given: Any, names: tuple[str, ...], replicates: int) -> Tensor:
    """Outcomes (S, m) in the order of their names, of a mapping from those or of numbers in that order."""
    S = replicates
    validation.require(len(names) > 0, "outcomes", given, "None: the policy learns the reward alone")
    if isinstance(given, Mapping):
        validation.known_names("outcomes", given, names)
        validation.require(set(given) == set(names), "outcomes", tuple(given), f"all of {names}")
        columns = {name: numbers(f"outcomes[{name!r}]", given[name]) for name in names}
        return torch.stack(
            [for_each(f"outcomes[{name!r}]", column, S) for name, column in columns.items()], -1
        )
    values = numbers("outcomes", given)
    fits = values.shape in ((len(names),), (S, len(names)))
    validation.shape_is("outcomes", values, fits, f"({len(names)},) or ({S}, {len(names)}), {names}")
    return values.expand(S, len(names))
