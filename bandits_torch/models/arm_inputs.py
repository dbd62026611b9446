"""How the inputs of ``ArmGP`` are read and checked: arm indices, times, and what broadcasts over the batch."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from bandits_torch import validation


def features_of(arms: Tensor | int, dtype: torch.dtype | None, device: torch.device | str | None) -> Tensor:
    """Arms as ``(*batch, N, d)`` features; a number N stands for the indices 0, ..., N - 1."""
    if isinstance(arms, int):
        validation.positive_integer("arms", arms)
        return torch.arange(arms, dtype=dtype or torch.float64, device=device).unsqueeze(-1)
    validation.shape_is("arms", arms, arms.dim() >= 2 and arms.shape[-2] >= 1, "(*batch, N, d) with N >= 1")
    arms = arms.to(dtype=dtype or (arms.dtype if arms.is_floating_point() else torch.float64), device=device)
    return validation.finite_tensor("arms", arms)


def split(X: Tensor, num_arms: int, drifts: bool) -> tuple[Tensor, Tensor | None]:
    """Indices (integers) and times (None without drift) of inputs X, ``batch x q x 1`` or ``batch x q x 2``."""
    width = 2 if drifts else 1
    columns = "[arm index, time]" if drifts else "[arm index]"
    validation.shape_is(
        "X", X, X.dim() >= 2 and X.shape[-1] == width, f"batch_shape x q x {width}: {columns}"
    )
    validation.finite_tensor("X", X)
    index = X[..., 0].long()
    ok = bool(((index == X[..., 0]) & (index >= 0) & (index < num_arms)).all())
    validation.require(ok, "X[..., 0]", X[..., 0], f"arm indices 0 to {num_arms - 1}")
    return index, X[..., 1] if drifts else None


def moments(times: Tensor | None, n: int) -> list[float]:
    """The n times of a block of observations, the same in every batch member, none before another; 0 without drift."""
    if times is None:
        return [0.0] * n
    rows = times.reshape(-1, n)
    validation.require(
        bool((rows == rows[:1]).all()), "X[..., 1]", times, "the same times in every batch member"
    )
    in_order = rows[0].tolist()
    ordered = all(a <= b for a, b in itertools.pairwise(in_order))
    validation.require(ordered, "X[..., 1]", times, "times that do not decrease")
    return in_order


def flat(name: str, value: Tensor, batch_shape: torch.Size) -> Tensor:
    """``value``, which must broadcast to ``(*batch_shape, n)``, with the batch in one dimension: (b, n)."""
    try:
        return value.expand(*batch_shape, value.shape[-1]).reshape(-1, value.shape[-1])
    except RuntimeError as error:
        expected = f"a batch that broadcasts to {tuple(batch_shape)}"
        raise ValueError(f"{name} must have {expected}, got shape {tuple(value.shape)}") from error


def flat_mask(where: Tensor, batch_shape: torch.Size) -> Tensor:
    """``where``, booleans that must broadcast to ``batch_shape``, as (b,)."""
    validation.require(where.dtype == torch.bool, "where", where, "a boolean tensor")
    return flat("where", where.unsqueeze(-1), batch_shape).squeeze(-1)
