"""Upper confidence bounds: UCB1, and those that forget: discounted, sliding-window and GLR-klUCB."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.choices.arms import best_available
from bandits_torch.policies.classical.arm_policy import ArmPolicy, Range
from bandits_torch.policies.policy import Choice

_BISECTIONS = 30
_TINY = 1e-15


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


class GLRKLUCB(ArmPolicy):
    """kl-UCB that forgets an arm (or all) when the generalised likelihood ratio finds that its rewards have changed.

    index = max {q : n_i kl(mean_i, q) <= ln t_i}, t_i steps since arm i was forgotten, kl that of Bernoulli laws,
    rewards in [0, 1]. A pull of arm i tests its n rewards since:

        max_s s kl(mean_{1:s}, mean_{1:n}) + (n - s) kl(mean_{s+1:n}, mean_{1:n}) > ln(n^{3/2} / delta).

    Of every floor(N / a_k) steps the first N play the arms in turn, a_k = ``exploration`` sqrt(k) at most 1, k - 1 the
    changes found so far; an arm that is not available loses its turn.

    Args:
        num_arms, replicates, reward_range, device: as for ``ArmPolicy``.
        horizon: T.
        delta: of the test; None for 1 / sqrt(T).
        exploration: a; None for sqrt(N ln T / T), the paper's, but at most 0.1: where N ln T is near T or above, the
            paper's would play in turn for ever.
        restarts: ``"local"``: the arm alone is forgotten; ``"global"``: all are.

    Cost: O(S (N + t)) a step, since all rewards are kept for the test.

    Source: Besson, Kaufmann, Maillard & Seznec 2022, Algorithm 1, with the threshold and the tuning of the authors'
    experiments (the theorem's threshold is larger). Raises ValueError for numbers out of range, and other ``restarts``.
    """

    def __init__(
        self,
        num_arms: int,
        replicates: int = 1,
        *,
        horizon: int,
        delta: float | None = None,
        exploration: float | None = None,
        restarts: str = "local",
        reward_range: Range | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        T = validation.positive_integer("horizon", horizon)
        N = validation.positive_integer("num_arms", num_arms)
        usual = min(0.1, math.sqrt(N * math.log(T) / T))
        self.delta = min(0.5, 1 / math.sqrt(T)) if delta is None else validation.probability("delta", delta)
        self.exploration = usual if exploration is None else validation.share("exploration", exploration)
        expected = "'local' or 'global'"
        validation.require(restarts in ("local", "global"), "restarts", restarts, expected)
        self.restarts = restarts
        super().__init__(num_arms, replicates, reward_range=reward_range, device=device)

    _arms: Tensor  # all pulled, in order, (S, length and room for more)
    _rewards: Tensor
    _length: int

    def _fresh(self) -> dict[str, Any]:
        return super()._fresh() | {"_arms": self._zeros(16).long(), "_rewards": self._zeros(16), "_length": 0}

    def _initial(self) -> dict[str, Tensor]:
        changes = {"changes": self._zeros(), "since": self._zeros(self.num_arms)}
        return super()._initial() | changes | {"forgotten": self._zeros(self.num_arms)}

    # -- choosing --------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | None = None) -> Choice:
        """The arm whose turn it is, or that of the largest index."""
        if available is not None:
            self.choices.check_available(available)
        scores = self._scores()
        turn = self._turn().unsqueeze(-1)
        arms = torch.arange(self.num_arms, device=self.device)
        forced = arms == turn
        if available is not None:
            forced = forced & available
        best, arm = best_available(scores.mT, available)
        return Choice(torch.where(forced.any(-1), forced.long().argmax(-1), arm), {"index": best})

    def _turn(self) -> Tensor:
        """Whose turn it is, (S,); N or above: nobody's."""
        rate = (self.exploration * (1 + self._numbers["changes"]).sqrt()).clamp(max=1.0)
        period = torch.where(rate > 0, (self.num_arms / rate).floor(), torch.inf)
        clock = self._numbers["clock"]
        turn = torch.where(period.isinf(), float(self.num_arms), clock - period * (clock / period).floor())
        return turn.clamp(max=self.num_arms).long()

    def _index(self) -> Tensor:
        numbers = self._numbers
        mean = (numbers["sum"] / numbers["count"] - numbers["low"].unsqueeze(-1)) / self._spread.unsqueeze(-1)
        mean = mean.clamp(0.0, 1.0)
        elapsed = (numbers["clock"].unsqueeze(-1) - numbers["forgotten"]).clamp_min(1)
        level = elapsed.log() / numbers["count"]
        low, high = mean, torch.ones_like(mean)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            inside = bernoulli_kl(mean, middle) <= level
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        return low

    # -- learning --------------------------------------------------------------------------------------

    def _update(self, rows: Tensor, arm: Tensor, reward: Tensor) -> None:
        super()._update(rows, arm, reward)
        if self._length == self._arms.shape[1]:
            self._arms = torch.cat([self._arms, torch.zeros_like(self._arms)], -1)
            self._rewards = torch.cat([self._rewards, torch.zeros_like(self._rewards)], -1)
        self._arms[:, self._length], self._rewards[:, self._length] = arm, reward
        self._length += 1
        self._forget(self._has_changed(rows, arm), rows, arm)

    def _has_changed(self, rows: Tensor, arm: Tensor) -> Tensor:
        """Whether the rewards of the arm just pulled have changed since it was forgotten, (S,)."""
        first = self._numbers["since"][rows, arm]
        position = torch.arange(self._length, device=self.device)
        own = (self._arms[:, : self._length] == arm.unsqueeze(-1)) & (position >= first.unsqueeze(-1))
        scaled = self._scaled(self._rewards[:, : self._length]) * own
        n1, s1 = own.double().cumsum(-1), scaled.cumsum(-1)
        n, s = n1[:, -1:], s1[:, -1:]
        n2, s2, mean = n - n1, s - s1, s / n
        ratio = n1 * bernoulli_kl(s1 / n1, mean) + n2 * bernoulli_kl(s2 / n2, mean)
        ratio = ratio.masked_fill((n1 < 1) | (n2 < 1), 0.0)
        threshold = 1.5 * n.squeeze(-1).log() - math.log(self.delta)
        return (ratio.amax(-1) > threshold) & (self._spread > 0)

    def _forget(self, changed: Tensor, rows: Tensor, arm: Tensor) -> None:
        numbers = self._numbers
        gone = torch.zeros_like(numbers["count"], dtype=torch.bool)
        gone[rows, arm] = changed
        if self.restarts == "global":
            gone = changed.unsqueeze(-1).expand_as(gone)
        numbers["changes"] += changed
        for name in ("count", "sum"):
            numbers[name] = numbers[name].masked_fill(gone, 0.0)
        numbers["since"] = numbers["since"].masked_fill(gone, self._length)
        clock = numbers["clock"].unsqueeze(-1).expand_as(gone)
        numbers["forgotten"] = torch.where(gone, clock, numbers["forgotten"])

    def trace(self) -> dict[str, Tensor | float]:
        """How many changes have been found, (S,)."""
        return {"restarts": self._numbers["changes"].clone()}

    def _restarted(self, where: Tensor | None) -> None:
        """All rewards are kept until all replicates are reset; those of one that was count no more."""
        if where is not None:
            since = self._numbers["since"]
            self._numbers["since"] = torch.where(where.unsqueeze(-1), float(self._length), since)


def bernoulli_kl(p: Tensor, q: Tensor) -> Tensor:
    """kl(p, q) = p ln(p/q) + (1 - p) ln((1 - p)/(1 - q)), elementwise, finite for q of 0 and 1."""
    q = q.clamp(_TINY, 1 - _TINY)
    return torch.xlogy(p, p / q) + torch.xlogy(1 - p, (1 - p) / (1 - q))
