"""Checks of what a batch of models is given, whatever it is over: shapes that broadcast, booleans, noise to add."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bandits_torch import validation


def within(batch_shape: torch.Size, shape: torch.Size) -> bool:
    """Whether ``shape`` broadcasts to ``batch_shape`` without widening it."""
    try:
        return torch.broadcast_shapes(batch_shape, shape) == batch_shape
    except RuntimeError:
        return False


def require_within(batch_shape: torch.Size, shape: torch.Size, name: str) -> None:
    """ValueError unless ``shape`` broadcasts to ``batch_shape``."""
    expected = f"a shape that broadcasts to batch_shape {tuple(batch_shape)}"
    validation.require(within(batch_shape, shape), name, tuple(shape), expected)


def broadcast(name: str, *shapes: Sequence[int]) -> torch.Size:
    """What the shapes broadcast to; ValueError if they do not."""
    try:
        return torch.broadcast_shapes(*map(torch.Size, shapes))
    except RuntimeError as error:
        got = [tuple(shape) for shape in shapes]
        raise ValueError(f"the batches of {name} must broadcast together, got {got}") from error


def noise_added(
    output_indices: list[int] | None, observation_noise: bool | Tensor, noise_variance: Tensor
) -> float | Tensor:
    """Variances that a posterior of one output gets, as BoTorch's arguments ask: broadcasting to ``batch x q``."""
    one = output_indices in (None, [0])
    validation.require(one, "output_indices", output_indices, "None or [0]: one output")
    if isinstance(observation_noise, Tensor):
        return observation_noise.squeeze(-1)
    return noise_variance.unsqueeze(-1) if observation_noise else 0.0


def check_held(held: Tensor, batch_shape: torch.Size, n: int) -> None:
    """ValueError unless these are booleans, ``batch x n``: which of n rows each member holds."""
    boolean = isinstance(held, Tensor) and held.dtype == torch.bool
    validation.require(boolean, "held", held, "a boolean tensor")
    shape = (*batch_shape, n)
    validation.shape_is("held", held, held.shape == shape, str(shape))
