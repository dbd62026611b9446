"""UCB1, and its relatives that forget: discounted UCB and sliding-window UCB."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.classical.arm_policy import ArmPolicy, Range


class UCB1(ArmPolicy):
    """index = mean_i + B sqrt(2 ln t / n_i), n_i pulls of arm i among the t so far.

    Args:
        num_arms, replicates, reward_range, device: as for ``ArmPolicy``; B = high - low.

    On rewards in [0, 1] that do not change, the regret is at most 8 sum_i ln T / gap_i + (1 + pi^2/3) sum_i gap_i.

    Source: Auer, Cesa-Bianchi & Fischer 2002, Figure 1 and Theorem 1. Raises ValueError as ``ArmPolicy``.
    """

    def _index(self) -> Tensor:
        log_t = self._numbers["clock"].clamp_min(1).log().unsqueeze(-1)
        return self._means() + self._spread.unsqueeze(-1) * torch.sqrt(2 * log_t / self._numbers["count"])


class DiscountedUCB(ArmPolicy):
    """index = mean_i + 2 B sqrt(xi ln n / N_i), with N_i = sum_s gamma^{t-s} over the pulls of arm i, n = sum_i N_i.

    The mean has the same weights. ``exploration`` is xi, > 1/2 in the theorem and 1/2 in the paper's experiments.

    Args:
        num_arms, replicates, reward_range, device: as for ``ArmPolicy``; B = high - low.
        discount: gamma, in (0, 1]; ``tuned_discount`` has the paper's.
        exploration: xi > 0.

    Source: Garivier & Moulines 2011, section 3 and Theorem 1. Raises ValueError as ``ArmPolicy``, and for numbers out
    of range.
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        discount: float,
        exploration: float = 0.5,
        reward_range: Range | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.discount = checked_discount(discount)
        self.exploration = validation.positive("exploration", exploration)
        super().__init__(num_arms, replicates, reward_range=reward_range, device=device)

    def _update(self, rows: Tensor, arm: Tensor, reward: Tensor) -> None:
        for name in ("count", "sum"):
            self._numbers[name] *= self.discount
        super()._update(rows, arm, reward)

    def _index(self) -> Tensor:
        count = self._numbers["count"]
        log_n = count.sum(-1, keepdim=True).clamp_min(1).log()
        return self._means() + 2 * self._spread.unsqueeze(-1) * torch.sqrt(self.exploration * log_n / count)


class SlidingWindowUCB(ArmPolicy):
    """index = mean_i + B sqrt(xi ln min(t, tau) / N_i), of the last tau pulls, N_i of them of arm i.

    ``exploration`` is xi, > 1/2 in the theorem and 1/2 in the paper's experiments.

    Args:
        num_arms, replicates, reward_range, device: as for ``ArmPolicy``; B = high - low.
        window: tau >= 1; ``tuned_window`` has the paper's.
        exploration: xi > 0.

    Cost: O(S (N + tau)) a step.

    Source: Garivier & Moulines 2011, section 4 and Theorem 2. Raises ValueError as ``ArmPolicy``, and for numbers out
    of range.
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        window: int,
        exploration: float = 0.5,
        reward_range: Range | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.window = validation.positive_integer("window", window)
        self.exploration = validation.positive("exploration", exploration)
        super().__init__(num_arms, replicates, reward_range=reward_range, device=device)

    def _initial(self) -> dict[str, Tensor]:
        held = {"held": self._zeros(self.window), "rewards": self._zeros(self.window)}
        return super()._initial() | held | {"arms": self._zeros(self.window).long()}

    def _update(self, rows: Tensor, arm: Tensor, reward: Tensor) -> None:
        numbers = self._numbers
        at = (numbers["clock"].long() - 1) % self.window  # of the oldest, which leaves
        for name, value in (("arms", arm), ("rewards", reward), ("held", torch.ones_like(reward))):
            numbers[name][rows, at] = value
        numbers["count"] = self._zeros(self.num_arms).scatter_add(-1, numbers["arms"], numbers["held"])
        numbers["sum"] = self._zeros(self.num_arms).scatter_add(-1, numbers["arms"], numbers["rewards"])

    def _index(self) -> Tensor:
        log_t = self._numbers["clock"].clamp(1, self.window).log().unsqueeze(-1)
        bonus = torch.sqrt(self.exploration * log_t / self._numbers["count"])
        return self._means() + self._spread.unsqueeze(-1) * bonus


def tuned_discount(horizon: int, changes: float) -> float:
    """gamma = 1 - sqrt(Y / T) / 4, for Y changes in T steps (Garivier & Moulines 2011, remark on Theorem 1, B = 1)."""
    validation.positive_integer("horizon", horizon)
    return 1 - math.sqrt(min(1.0, validation.positive("changes", changes) / horizon)) / 4


def tuned_window(horizon: int, changes: float) -> int:
    """tau = 2 sqrt(T ln T / Y), for Y changes in T steps (Garivier & Moulines 2011, remark on Theorem 2, B = 1)."""
    validation.positive_integer("horizon", horizon)
    steps = 2 * math.sqrt(horizon * math.log(horizon) / validation.positive("changes", changes))
    return min(horizon, max(1, math.ceil(steps)))


def checked_discount(discount: float) -> float:
    """A number in (0, 1]."""
    validation.positive("discount", discount)
    validation.require(discount <= 1, "discount", discount, "a number in (0, 1]")
    return float(discount)
