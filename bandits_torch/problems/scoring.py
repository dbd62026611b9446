"""Expected rewards of what was chosen, and the best there was: read again only where they have changed."""

from __future__ import annotations

import math

from torch import Tensor

from bandits_torch import validation
from bandits_torch.arm_context import ArmContext, mask_of


def available_rewards(expected: Tensor, available: Tensor | ArmContext | None) -> Tensor:
    """The expected rewards ((R, N) or (S, N)), minus infinity where an arm is not available."""
    mask = mask_of(available)
    return expected if mask is None else expected.masked_fill(~mask, -math.inf)


class ArmScores:
    """Scores the arms of a problem: O(S), or O(S N) when expected rewards or mask are not the same memory, unchanged,
    as at the step before.

    Args:
        shape: (replicates, N) of the expected rewards.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._expected_seen: tuple[Tensor | None, int] = (None, 0)
        self._mask_seen: tuple[Tensor | None, int] = (None, 0)

    def __call__(
        self, expected: Tensor, arm: Tensor, available: Tensor | ArmContext | None
    ) -> tuple[Tensor, Tensor]:
        """Expected rewards (S,) of the arms (S,), and of the best available, (S,) or (1,)."""
        mask = mask_of(available)
        if not (_unchanged(expected, self._expected_seen) and _unchanged(mask, self._mask_seen)):
            validation.shape_is("expected_rewards", expected, expected.shape == self._shape, f"{self._shape}")
            self._rewards = available_rewards(expected, mask)
            self._best = self._rewards.amax(-1)
            self._expected_seen, self._mask_seen = _seen(expected), _seen(mask)
        return self._rewards.expand(len(arm), -1).gather(1, arm.unsqueeze(1)).squeeze(1), self._best


def _seen(tensor: Tensor | None) -> tuple[Tensor | None, int]:
    return tensor, 0 if tensor is None else tensor._version


def _unchanged(tensor: Tensor | None, seen: tuple[Tensor | None, int]) -> bool:
    """Whether a tensor shows the numbers seen before, going by memory and write count, not by its values.

    The tensor seen is held on to, so its memory cannot have been given to another.
    """
    old, version = seen
    if tensor is None or old is None:
        return tensor is old
    same_memory = tensor.data_ptr() == old.data_ptr() and tensor.stride() == old.stride()
    return version == tensor._version and same_memory and tensor.shape == old.shape
