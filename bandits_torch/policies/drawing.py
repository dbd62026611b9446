"""Arms drawn from distributions, and the checks of what came of them, for policies that play at random."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.policy import Observation, check_available, check_observation


def draw(P: Tensor, uniform: Tensor, available: Tensor | None = None) -> Tensor:
    """Arms (S,) drawn from P (S, N) with numbers (S,) uniform on [0, 1), among those available.

    Where no mass is left on the available arms they are drawn uniformly. Raises ValueError for a bad mask.
    """
    if available is not None:
        check_available(available, *P.shape)
        P = P * available
        P = torch.where(P.sum(-1, keepdim=True) > 0, P, available.to(P))
    cumulative = P.cumsum(-1)
    passed = cumulative > uniform.unsqueeze(-1) * cumulative[:, -1:]
    return passed.to(torch.uint8).argmax(-1)  # the first arm whose cumulative share passes


def check_pulls(observation: Observation, replicates: int, num_arms: int) -> None:
    """Arms and rewards (S,), and on a CPU also their values: arms in range, rewards finite."""
    check_observation(observation, replicates, num_arms)
    if observation.reward.is_cpu:
        validation.finite_tensor("reward", observation.reward)
