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
    validation.tensor("arms", arms)
    validation.shape_is("arms", arms, arms.dim() >= 2 and arms.shape[-2] >= 1, "(*batch, N, d) with N >= 1")
    dtype = dtype or (arms.dtype if arms.is_floating_point() else torch.float64)
    return validation.finite_tensor("arms", arms.detach().to(dtype=dtype, device=device, copy=True))


def split(X: Tensor, num_arms: int, drifts: bool, fewest: int = 1) -> tuple[Tensor, Tensor | None]:
    """Indices (integers) and times (None without drift) of inputs X, ``batch x q x 1`` or ``batch x q x 2``."""
    width = 2 if drifts else 1
    columns = "[arm index, time]" if drifts else "[arm index]"
    validation.tensor("X", X)
    ok = X.dim() >= 2 and X.shape[-1] == width and X.shape[-2] >= fewest
    validation.shape_is("X", X, ok, f"batch_shape x q x {width} with q >= {fewest}: {columns}")
    validation.finite_tensor("X", X)
    index = X[..., 0].long()
    ok = bool(((index == X[..., 0]) & (index >= 0) & (index < num_arms)).all())
    validation.require(ok, "X[..., 0]", X[..., 0], f"arm indices 0 to {num_arms - 1}")
    return index, X[..., 1] if drifts else None


def arms_and_rewards(
    X: Tensor, Y: Tensor, num_arms: int, drifts: bool, batch_shape: torch.Size, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Arms (b, n) and rewards (b, n) of a block of observations, and their times as X has them (None without drift).
    X: ``batch x n x 1`` (or 2), Y: ``batch x n x 1``; dtype: of the model."""
    index, times = split(X, num_arms, drifts, fewest=0)
    validation.tensor("Y", Y)
    validation.shape_is("Y", Y, Y.dim() >= 2 and Y.shape[-1] == 1, "batch_shape x n x 1")
    n = X.shape[-2]
    validation.shape_is("Y", Y, Y.shape[-2] == n, f"batch_shape x {n} x 1, as X has")
    validation.rewards("Y", Y, dtype)
    return flat("X", index, batch_shape, n), flat("Y", Y.squeeze(-1), batch_shape, n), times


def moments(times: Tensor | None, n: int, in_order: bool = True) -> list[float]:
    """The n times of a block of observations, the same in every batch member, none before another (if it matters);
    0 without drift."""
    if times is None:
        return [0.0] * n
    first = times.reshape(-1)[:n]
    validation.require(
        bool((times == first).all()), "X[..., 1]", times, "the same times in every batch member"
    )
    listed = first.tolist()
    ordered = not in_order or all(a <= b for a, b in itertools.pairwise(listed))
    validation.require(ordered, "X[..., 1]", times, "times that do not decrease")
    return listed


def flat(name: str, value: Tensor, batch_shape: torch.Size, *tail: int) -> Tensor:
    """``value``, which must broadcast to ``(*batch_shape, *tail)``, with the batch in one dimension: (b, *tail)."""
    try:
        return value.expand((*batch_shape, *tail)).reshape((batch_shape.numel(), *tail))
    except RuntimeError as error:
        expected = f"a batch that broadcasts to {tuple(batch_shape)}"
        raise ValueError(f"{name} must have {expected}, got shape {tuple(value.shape)}") from error


def flat_mask(where: Tensor, batch_shape: torch.Size) -> Tensor:
    """``where``, booleans that must broadcast to ``batch_shape``, as (b,)."""
    boolean = isinstance(where, Tensor) and where.dtype == torch.bool
    validation.require(boolean, "where", where, "a boolean tensor")
    return flat("where", where, batch_shape)


def points_of(X: Tensor, batch_shape: torch.Size) -> torch.Size:
    """What X's batch and the model's broadcast to, ``(..., *batch_shape)``."""
    members = len(batch_shape)
    try:
        out = torch.broadcast_shapes(X.shape[:-2], batch_shape)
    except RuntimeError:
        out = torch.Size([-1] * members)
    # X must not widen a batch dimension of size 1, which would mix up the members if there are several.
    ok = out[len(out) - members :] == batch_shape or batch_shape.numel() == 1
    validation.shape_is(
        "X", X, ok and -1 not in out, f"t_batch x q x d, t_batch broadcasting to (..., *{tuple(batch_shape)})"
    )
    return out
