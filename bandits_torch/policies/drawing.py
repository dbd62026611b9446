"""Arms drawn from distributions, and the checks of what came of them, for policies that play at random."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation


def draw(P: Tensor, uniform: Tensor, available: Tensor | None = None) -> Tensor:
    """Arms (S,) drawn from P (S, N) with numbers (S,) uniform on [0, 1), among those available.

    Where no mass is left on the available arms they are drawn uniformly. Raises ValueError for a mask of
    another shape or kind, or (on a CPU) one that leaves no arm.
    """
    S, N = P.shape
    if available is not None:
        shaped = available.shape in ((N,), (S, N))
        validation.shape_is("available", available, shaped, f"({N},) or ({S}, {N})")
        validation.require(available.dtype == torch.bool, "available", available.dtype, "booleans")
        some = available.is_cuda or bool(available.any(-1).all())
        validation.require(some, "available", available, "at least one arm to choose in every replicate")
        P = P * available
        P = torch.where(P.sum(-1, keepdim=True) > 0, P, available.to(P))
    cumulative = P.cumsum(-1)
    passed = cumulative > uniform.unsqueeze(-1) * cumulative[:, -1:]
    return passed.to(torch.uint8).argmax(-1)  # the first arm whose cumulative share passes


def check_observation(arm: Tensor, reward: Tensor, replicates: int, num_arms: int) -> None:
    """Arms and rewards (S,), and on a CPU also their values: arms in range, rewards finite."""
    for name, value in (("arm", arm), ("reward", reward)):
        validation.shape_is(name, value, value.shape == (replicates,), f"({replicates},)")
    if not reward.is_cuda:
        validation.finite_tensor("reward", reward)
        inside = bool(((arm >= 0) & (arm < num_arms)).all())
        validation.require(inside, "arm", arm, f"integers from 0 to {num_arms - 1}")
