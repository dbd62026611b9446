"""Outliers: the range of the rewards believed so far, and rewards too far outside it to be learned."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.policies.policy import Observation
from bandits_torch.state import HasState

FIRST = 5  # number of first rewards, which are judged together
EARLY, LATE = 10.0, 3.0  # widths outside the range from which a reward is in doubt: first, later


class RewardRange(Described, HasState):
    """Decides which rewards are believed. A reward in doubt is not learned: it does not change the policy's state.

    With [l, h] the range of the n >= 5 rewards believed so far, a reward is in doubt if it lies outside by more than

        max(10 (5 / n)^2, 3) max(h - l, u).

    * The first five rewards are learned as they come, and judged together at the fifth. The range begins as that of the
      middle three. Of the smallest and the largest, the one nearer to it is judged first, then the other. A reward is
      in doubt if it lies outside by more than 10 times the range so far; if the nearer one is, both are. The policy
      then starts again and learns the others.
    * The arm or point of a reward in doubt above the range is played again at once: it may be by far the best.
    * If a second reward on the same side is that far outside, the range is extended to the nearer of the two, and the
      second is judged again. It is believed unless it is still that far outside. So rare, far rewards are not lost.
    * If the second comes right after the first, it is confirmed (``borne_out``) and learned without clipping. So a
      level or an arm that really is that far takes one more reward to be learned.

    So one outlier, or one on each side, does not change what is learned from the others, however large it is. If the
    range and u are 0 (for example because four of the first five rewards are equal and no unit is given), no reward is
    in doubt. Multiplying or shifting all rewards changes no decision if u = 0.

    Of independent, uniformly distributed rewards one of the first five is in doubt with probability 0.004
    (2 / 11^3 + 1 / 21^2), and the sixth with 2e-5 (1 / 3 11^-4). The factor is 10 at first, and not 3, because a policy
    soon plays its best arms again, so its first rewards lie close together.

    Args:
        like: dtype and device.
        arm: (S,) arms or (S, d) points; only shape and dtype matter.
        expected: u, the range of rewards expected in advance.

    Attributes:
        low, high: (S,), the range of the rewards believed.
        below, above: (S,), the latest reward in doubt on each side; infinite if there is none.
        known: (S,), n, the number of rewards believed.
        latest: (S,), 1 if the latest reward, or one of the first five, is in doubt above the range; -1: below; else 0.
        borne_out: (S,), whether the reward before confirms the latest one.
        arm: (S,) or (S, d), the arm or point that gave the latest reward in doubt above the range.
        doubted: (S,), the number of rewards that were in doubt.

    Source: ours; ratios of ranges detect outliers as in Dixon 1950.
    """

    low: Tensor
    high: Tensor
    below: Tensor
    above: Tensor
    known: Tensor
    latest: Tensor
    borne_out: Tensor
    arm: Tensor
    doubted: Tensor

    def __init__(self, like: Tensor, arm: Tensor, expected: float = 0.0) -> None:
        self.expected = validation.non_negative("expected", expected)
        self._like, self._arm = like.new_empty(0), torch.zeros_like(arm)
        self._begin()

    def teach(
        self,
        observation: Observation,
        learn: Callable[[Observation, Tensor | None], None],
        start_anew: Callable[[], None],
    ) -> None:
        """Call ``learn`` for all that ``take`` returns, after ``start_anew`` if these are the first five rewards. The
        range stays as it is, even if ``start_anew`` resets it."""
        taken = self.take(observation)
        if len(taken) > 1:
            with self.put_aside():
                start_anew()
        for one, believed in taken:
            learn(one, believed)

    def take(self, observation: Observation) -> list[tuple[Observation, Tensor | None]]:
        """The observations to learn now, each with the replicates (S,) that learn it (None: all): this one, or all of
        the first five if the fifth puts one of them in doubt."""
        reward = observation.reward.to(self.low)
        if len(self._first) == FIRST:
            if self._is_near(reward):
                self.extend(reward, reward)
                return [(observation, None)]
            believed = self.believe(reward, observation.arm)
            return [(observation, None if bool(believed.all()) else believed)]
        self._first.append((observation.time, observation.arm.clone(), observation.reward.clone()))
        if len(self._first) < FIRST:
            return [(observation, None)]
        _, arms, rewards = zip(*self._first, strict=True)
        believed = self._judge(torch.stack(arms, 1), torch.stack(rewards, -1).to(self.low))
        if bool(believed.all()):
            return [(observation, None)]
        return list(zip(starmap(Observation, self._first), believed.unbind(-1), strict=True))

    def _is_near(self, reward: Tensor) -> bool:
        """Whether no reward is far outside, as is usual."""
        outside = torch.maximum(reward - self.high, self.low - reward)
        return not bool(self._far(outside, self.high - self.low, self._widths()).any())

    def extend(self, least: Tensor, most: Tensor, count: int = 1) -> None:
        """Believe ``count`` rewards from ``least`` to ``most`` (S,), none of which is far outside."""
        self.high, self.low = torch.maximum(self.high, most), torch.minimum(self.low, least)
        self.known = self.known + count
        self.latest, self.borne_out = torch.zeros_like(self.latest), torch.zeros_like(self.borne_out)

    def believes_all(self, least: Tensor, most: Tensor) -> Tensor:
        """Whether all rewards from ``least`` to ``most`` (S,), in any order, would be believed, and none confirmed."""
        outside = torch.maximum(most - self.high, self.low - least)
        width = (self.high - self.low).clamp_min(self.expected)
        return (outside <= LATE * width) & (self.latest == 0) & ~self.borne_out

    def _widths(self) -> Tensor:
        """How many widths outside the range a reward must lie to be in doubt, (S,)."""
        return (EARLY * (FIRST / self.known).square()).clamp_min(LATE)

    def believe(self, reward: Tensor, arm: Tensor) -> Tensor:
        """Whether each reward (S,) after the first five is believed; extends the range. Does not wait for a GPU."""
        widths = self._widths()
        self.high, self.above, too_high, upper = self._end(reward, self.low, self.high, self.above, widths)
        low, below, too_low, lower = self._end(-reward, -self.high, -self.low, -self.below, widths)
        self.low, self.below = -low, -below
        doubted = too_high | too_low
        self.known = self.known + ~doubted
        right_after = upper & (self.latest == 1) | lower & (self.latest == -1)
        self.borne_out = right_after & ~doubted
        self._doubt(too_high, too_low, arm)
        return ~doubted

    def _end(
        self, reward: Tensor, low: Tensor, high: Tensor, above: Tensor, widths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The new upper end of the range, the reward in doubt above it, whether this reward is in doubt, and whether it
        is the second on this side (``believe`` calls this with all signs changed for the lower end)."""
        second = self._far(reward - high, high - low, widths) & above.isfinite()
        high = torch.where(second, torch.minimum(above, reward), high)
        doubted = self._far(reward - high, high - low, widths)
        above = torch.where(second & (above <= reward), torch.inf, above)
        high = torch.maximum(high, reward.where(~doubted, high))
        return high, torch.where(doubted, reward, above), doubted, second

    def _doubt(self, high: Tensor, low: Tensor, arm: Tensor) -> None:
        """Record which rewards are in doubt above (``high``) or below (``low``) the range, and arms of high ones."""
        self.latest = torch.where(high, 1, torch.where(low, -1, 0))
        self.arm = torch.where(high.reshape(-1, *[1] * (arm.dim() - 1)), arm.to(self.arm), self.arm)
        self.doubted = self.doubted + high + low

    def _judge(self, arms: Tensor, rewards: Tensor) -> Tensor:
        """Which of the first rewards (S, 5), of arms (S, 5) or (S, 5, d), are believed, (S, 5); sets the range."""
        least, low, _, high, most = rewards.sort(-1).values.unbind(-1)
        width, gaps = high - low, torch.stack([low - least, most - high])
        nearer, farther = gaps.sort(0).values.unbind(0)
        both = self._far(nearer, width, EARLY)
        one = self._far(farther, torch.where(both, width, width + nearer), EARLY)
        too_low, too_high = (both | one & (gaps == farther)) & self._together
        self.low, self.below = torch.where(too_low, low, least), least.where(too_low, -torch.inf)
        self.high, self.above = torch.where(too_high, high, most), most.where(too_high, torch.inf)
        self._doubt(too_high, too_low, arms[torch.arange(len(arms), device=arms.device), rewards.argmax(-1)])
        doubted = too_low.unsqueeze(-1) & (rewards == least.unsqueeze(-1))
        doubted = doubted | too_high.unsqueeze(-1) & (rewards == most.unsqueeze(-1))
        self.known = (~doubted).sum(-1)
        return ~doubted

    def _far(self, outside: Tensor, width: Tensor, widths: Tensor | float) -> Tensor:
        """Whether rewards lie ``outside`` by more than ``widths`` times max(``width``, u); False if that is 0."""
        width = width.clamp_min(self.expected)
        return (outside > widths * width) & (width > 0)

    def grow_from(self, small: RewardRange) -> None:
        """Adopt what ``small`` has learned; its points may have fewer columns, which then come first here."""
        super().grow_from(small)
        if self._arm.dim() > 1:
            more = self._arm.shape[-1] - small._arm.shape[-1]
            self._first = [(time, pad(point, (0, more)), reward) for time, point, reward in self._first]

    def reset(self, where: Tensor | None = None) -> None:
        """Forget everything. With ``where`` (S,), replicates that start again keep their range; if this happens within
        the first five rewards, these are no longer judged."""
        if where is None:
            super().reset()
        else:
            self._together, self.latest = False, self.latest.masked_fill(where, 0)

    _first: list[tuple[float, Tensor, Tensor]]  # times, arms and rewards
    _together: bool

    def _fresh(self) -> dict[str, Any]:
        infinity = self._like.new_full(self._arm.shape[:1], torch.inf)
        ends = {"low": infinity, "high": -infinity, "below": -infinity, "above": infinity.clone()}
        none = torch.zeros_like(infinity, dtype=torch.long)
        said = {"latest": none.clone(), "borne_out": none.bool(), "arm": self._arm.clone(), "_first": []}
        return ends | said | {"_together": True, "known": none, "doubted": none.clone()}
