"""Tables of real rewards: rows are times, columns are arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation


@validation.names_arguments
@dataclass(frozen=True)
class RewardTable:
    """Rewards of every arm at every time.

    Attributes:
        rewards: (T, N) float64, T >= 1, N >= 2; NaN where a reward is missing.
        times: (T,) float64, strictly increasing, or None: one row per unit of time.
        arm_names: N different names; default "0", "1", ...
        notes: a reader's remarks on the file, one line each.
        in_seconds: whether times are known to count seconds, as those read from dates do.

    Raises:
        ValueError: for anything else.
    """

    rewards: Tensor
    times: Tensor | None = None
    arm_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    in_seconds: bool = False

    def __post_init__(self) -> None:
        rewards = validation.tensor("rewards", self.rewards)
        validation.shape_is("rewards", rewards, rewards.dim() == 2, "(T, N)")
        validation.require(
            rewards.shape[0] >= 1, "rewards", tuple(rewards.shape), "a table of at least one row"
        )
        validation.require(
            rewards.shape[1] >= 2, "rewards", tuple(rewards.shape), "a table of at least two arms"
        )
        names = tuple(self.arm_names) or tuple(str(n) for n in range(rewards.shape[1]))
        object.__setattr__(self, "arm_names", names)
        validation.require(len(names) == rewards.shape[1], "arm_names", names, f"{rewards.shape[1]} names")
        _check_unique(names)
        if bool(torch.isinf(rewards).any()):
            row, column = torch.isinf(rewards).nonzero()[0].tolist()
            raise ValueError(
                f"rewards must be finite, got infinity in row {row + 1}, column {names[column]!r}"
            )
        if bool((rewards.abs() > (most := validation.largest_reward(rewards.dtype))).any()):
            row, column = (rewards.abs() > most).nonzero()[0].tolist()
            value, where = float(rewards[row, column]), f"row {row + 1}, column {names[column]!r}"
            raise ValueError(f"rewards must be at most {most:g} in size, got {value:g} in {where}")
        if self.times is not None:
            _check_times(self.times, rewards.shape[0])

    def forward_filled(self) -> RewardTable:
        """A copy in which a missing reward is the arm's last one; before an arm's first it stays missing."""
        filled = pd.DataFrame(self.rewards.numpy()).ffill().to_numpy()
        return replace(self, rewards=torch.from_numpy(filled.copy()))


def _check_times(times: Tensor, rows: int) -> None:
    validation.shape_is("times", times, times.shape == (rows,), f"({rows},), one time per row")
    validation.finite_tensor("times", times)
    late = times.diff() <= 0
    if bool(late.any()):
        row = int(late.nonzero()[0])
        raise ValueError(
            f"times must increase from row to row, got {times[row].item()} in row {row + 1} "
            f"and {times[row + 1].item()} in row {row + 2}"
        )


def _check_unique(names: Sequence[str]) -> None:
    known: set[str] = set()
    twice: set[str] = set()
    for name in names:
        (twice if name in known else known).add(name)
    validation.require(not twice, "arm names", sorted(twice), "all different")
