"""How the inputs and targets of ``OnlineGP`` are read and checked, and masks over its batch."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.broadcasting import within
from bandits_torch.models.points.growing_cholesky import GrowingCholesky


def padded(shape: torch.Size, batch_shape: torch.Size) -> torch.Size:
    """``shape`` with leading ones, as long as ``batch_shape``."""
    return torch.Size([1] * (len(batch_shape) - len(shape)) + list(shape))


def points_and_targets(
    X: Tensor, Y: Tensor, batch_shape: torch.Size, data: GrowingCholesky
) -> tuple[Tensor, Tensor]:
    """X, ``batch x n x d``, and Y, ``batch x n x 1``, checked; as ``batch x n x d`` and ``batch x n`` with
    the dtypes and the device of ``data``, whose inputs have d columns. Values are checked on the CPU only."""
    name, d = tuple(batch_shape), data.inputs.shape[-1]
    validation.tensor("X", X)
    validation.tensor("Y", Y)
    ok = X.dim() >= 2 and X.shape[-1] == d and X.shape[-2] >= 1 and within(batch_shape, X.shape[:-2])
    validation.shape_is("X", X, ok, f"batch x n x {d} with n >= 1, batch broadcasting to {name}")
    ok = Y.dim() >= 2 and Y.shape[-2:] == (X.shape[-2], 1) and within(batch_shape, Y.shape[:-2])
    validation.shape_is("Y", Y, ok, f"batch x {X.shape[-2]} x 1, batch broadcasting to {name}")
    for label, value in (("X", X), ("Y", Y)):
        if value.device.type == "cpu":
            validation.finite_tensor(label, value)
    if Y.is_cpu:
        validation.rewards("Y", Y, data.targets.dtype)
    return X.to(data.inputs), Y.to(data.targets).squeeze(-1)


def variances(noise: Tensor, n: int, batch_shape: torch.Size, like: Tensor) -> Tensor:
    """Noise variances ``batch x n x 1`` checked, as ``batch x n``."""
    ok = noise.dim() >= 2 and noise.shape[-2:] == (n, 1) and within(batch_shape, noise.shape[:-2])
    validation.shape_is("noise", noise, ok, f"batch x {n} x 1, batch broadcasting to {tuple(batch_shape)}")
    if noise.device.type == "cpu":
        positive = bool((torch.isfinite(noise) & (noise > 0)).all())
        validation.require(positive, "noise", noise, "finite and > 0")
    return noise.to(like).squeeze(-1)


def mask(where: Tensor | None, batch_shape: torch.Size, device: torch.device) -> Tensor | None:
    """``where`` checked, as long as ``batch_shape``; None if all are True (asked on the CPU only)."""
    if where is None:
        return None
    boolean = isinstance(where, Tensor) and where.dtype == torch.bool
    validation.require(boolean, "where", where, "a boolean tensor")
    expected = f"a shape that broadcasts to {tuple(batch_shape)}"
    validation.shape_is("where", where, within(batch_shape, where.shape), expected)
    if where.device.type == "cpu" and bool(where.all()):
        return None
    return where.to(device).reshape(padded(where.shape, batch_shape))
