"""What a table of rewards holds, in figures and in sentences: values, gaps, noise, cycles, and what could be gained."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.problems.periods import Period, find_periods
from bandits_torch.problems.tables import RewardTable

_FEWEST, _BLOCKS = 40, 20  # rows for noise and sharing; blocks of the interval
_T_90 = 1.729  # of Student's t with 19 degrees of freedom, two-sided


@dataclass(frozen=True)
class Diagnosis:
    """What ``diagnose`` found; ``str`` of it is sentences.

    Attributes:
        rows, arms: T and N.
        values: ``"0/1"``, ``"counts"``, ``"numbers"`` or ``"none"``.
        missing: share of the rewards, in [0, 1].
        noise: standard deviation of what neighbouring rows do not share, over all arms; None: cannot tell.
        noise_interval: its approximate 90 % interval.
        correlation: mean correlation of two arms' rewards; None: cannot tell.
        periods: of cycles that arms share, in units of the times (rows without times).
        random: mean reward of an arm drawn at random, of those with a reward, in the table's unit.
        best_arm: the name of the arm with the largest mean of its rewards, and that mean.
    """

    rows: int
    arms: int
    values: str
    missing: float
    noise: float | None
    noise_interval: tuple[float, float] | None
    correlation: float | None
    periods: tuple[Period, ...]
    random: float | None
    best_arm: tuple[str, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"A full table: {self.rows} rows, {self.arms} arms, rewards are {self.values}."]
        if self.missing:
            lines += [f"Missing: {self.missing:.1%}. An arm without a reward cannot be pulled in that row."]
        if self.noise is None or self.noise_interval is None:
            lines += [
                f"Noise, and what arms share: cannot tell; {_FEWEST} whole rows are the least that can."
            ]
        else:
            low, high = self.noise_interval
            lines += [
                f"Noise: standard deviation {self.noise:.3g} (90 % interval: {low:.3g} to {high:.3g}). "
                "What changes from row to row and back counts as noise."
            ]
        if self.correlation is not None:
            lines += [f"Rewards of two arms have a correlation of {self.correlation:.2f} on average."]
        cycles = "; ".join(f"{one.length:.4g} (p = {one.p_value:.1g})" for one in self.periods)
        none = (
            "none that is clear beside drift" if self.rows >= _FEWEST else "cannot tell, the record is short"
        )
        lines += [f"Cycles, in units of the times: {cycles or none}."]
        if self.random is not None and self.best_arm is not None:
            name, best = self.best_arm
            lines += [
                f"Drawing arms at random earns {self.random:.4g} a row, the best single arm in hindsight, {name}, "
                f"{best:.4g}."
            ]
        return "\n".join(lines)


def diagnose(table: RewardTable | Tensor) -> Diagnosis:
    """Say what a table of rewards holds.

    The noise is the root of the mean square of y_{t-1} - 2 y_t + y_{t+1}, over 6, of each arm's neighbouring rows: it
    does not see straight lines. Its interval is Student's t over the logarithms of 20 blocks of rows. Cycles:
    ``find_periods``.

    Args:
        table: a ``RewardTable``, or (T, N) rewards, NaN where missing.

    Cost: O(T N), and at most some 10^7 operations for cycles. Raises ValueError for what is no table.
    """
    if not isinstance(table, RewardTable):
        table = RewardTable(validation.tensor("table", table).double())
    rewards = table.rewards
    held = rewards[~torch.isnan(rewards)]
    whole = bool((held == held.round()).all())
    if not len(held):
        values = "none"
    elif whole and bool(((held == 0) | (held == 1)).all()):
        values = "0/1"
    else:
        values = "counts" if whole and bool((held >= 0).all()) else "numbers"
    bends = (rewards[:-2] - 2 * rewards[1:-1] + rewards[2:]).square() / 6
    noise, interval = None, None
    correlation = None
    if int((~torch.isnan(bends)).any(1).sum()) >= _FEWEST:
        noise = float(bends.nanmean().sqrt())
        blocks = np.array([float(block.nanmean()) for block in bends.tensor_split(_BLOCKS)])
        blocks = np.log(blocks[np.isfinite(blocks) & (blocks > 0)])
        if len(blocks) == _BLOCKS:
            half = _T_90 * float(blocks.std(ddof=1)) / _BLOCKS**0.5 / 2
            interval = (noise * float(np.exp(-half)), noise * float(np.exp(half)))
        elif noise == 0:
            interval = (0.0, 0.0)
        else:
            noise = None
        complete = rewards[~torch.isnan(rewards).any(1)]
        complete = complete[:, complete.std(0) > 0] if len(complete) > 2 else complete[:, :0]
        if complete.shape[1] >= 2:
            of_arms = torch.corrcoef(complete.T)
            count = len(of_arms)
            correlation = float((of_arms.sum() - of_arms.trace()) / (count * (count - 1)))
    means, random, best_arm = rewards.nanmean(0), None, None
    if len(held):
        of_rows = rewards.nanmean(1)
        random = float(of_rows.nanmean())
        best = int(means.nan_to_num(nan=-torch.inf).argmax())
        best_arm = (table.arm_names[best], float(means[best]))
    return Diagnosis(
        len(rewards),
        rewards.shape[1],
        values,
        float(torch.isnan(rewards).double().mean()),
        noise,
        interval,
        correlation,
        tuple(find_periods(rewards.numpy(), None if table.times is None else table.times.numpy())),
        random,
        best_arm,
    )
