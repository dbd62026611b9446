"""Upper confidence bounds: UCB1, and policies that forget: discounted UCB, sliding-window UCB and GLR-klUCB."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.arm_policy import State
from bandits_torch.policies.classical.means_policy import MeansPolicy, scaled, spread
from bandits_torch.policies.policy import Choice, Observation
from bandits_torch.streams import ReplicateStreams

_BISECTIONS = 30
_TINY = 1e-15


class UCB1(MeansPolicy):
    """index = mean_i + B sqrt(2 ln t / n_i), n_i pulls of arm i among the t so far.

    Args:
        num_arms, replicates, reward_range, seed, first_replicate, device: as for ``MeansPolicy``; B = high - low.

    On rewards in [0, 1] that do not change, the regret is at most 8 sum_i ln T / gap_i + (1 + pi^2/3) sum_i gap_i.

    Source: Auer, Cesa-Bianchi & Fischer 2002, Figure 1 and Theorem 1. Raises ValueError as ``MeansPolicy``.
    """

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        """See ``MeansPolicy``."""
        count, log_t = state["count"], state["clock"].clamp_min(1).log().unsqueeze(-1)
        return state["sum"] / count + spread(state).unsqueeze(-1) * torch.sqrt(2 * log_t / count)


class DiscountedUCB(MeansPolicy):
    """index = mean_i + 2 B sqrt(xi ln n / N_i), with N_i = sum_s gamma^{t-s} over the pulls of arm i, n = sum_i N_i.

    The mean has the same weights. ``exploration`` is xi, > 1/2 in the theorem and 1/2 in the paper's experiments.

    Args:
        num_arms, replicates, reward_range, seed, first_replicate, device: as for ``MeansPolicy``; B = high - low.
        discount: gamma, in (0, 1]; ``tuned_discount`` computes the paper's.
        exploration: xi > 0.

    Source: Garivier & Moulines 2011, section 3 and Theorem 1. Raises ValueError as ``MeansPolicy``, and for numbers out
    of range.
    """

    discount: float
    exploration: float = 0.5

    def __post_init__(self) -> None:
        self.discount = checked_discount(self.discount)
        self.exploration = validation.positive("exploration", self.exploration)
        super().__post_init__()

    def learned(self, state: State, observation: Observation) -> State:
        """See ``MeansPolicy``."""
        for name in ("count", "sum"):
            state[name] *= self.discount
        return super().learned(state, observation)

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        """See ``MeansPolicy``."""
        count = state["count"]
        log_n = count.sum(-1, keepdim=True).clamp_min(1).log()
        bonus = torch.sqrt(self.exploration * log_n / count)
        return state["sum"] / count + 2 * spread(state).unsqueeze(-1) * bonus


class SlidingWindowUCB(MeansPolicy):
    """index = mean_i + B sqrt(xi ln min(t, tau) / N_i), of the last tau pulls, N_i of them of arm i.

    ``exploration`` is xi, > 1/2 in the theorem and 1/2 in the paper's experiments.

    Args:
        num_arms, replicates, reward_range, seed, first_replicate, device: as for ``MeansPolicy``; B = high - low.
        window: tau >= 1; ``tuned_window`` computes the paper's.
        exploration: xi > 0.

    Cost: O(S (N + tau)) a step.

    Source: Garivier & Moulines 2011, section 4 and Theorem 2. Raises ValueError as ``MeansPolicy``, and for numbers out
    of range.
    """

    window: int
    exploration: float = 0.5

    def __post_init__(self) -> None:
        self.window = validation.positive_integer("window", self.window)
        self.exploration = validation.positive("exploration", self.exploration)
        super().__post_init__()

    def init(self) -> State:
        """See ``ArmPolicy``."""
        held = {name: self.zeros(self.window) for name in ("held", "rewards")}
        return super().init() | held | {"arms": self.zeros(self.window).long()}

    def learned(self, state: State, observation: Observation) -> State:
        """See ``MeansPolicy``; the sums over the window are computed anew."""
        at = (state["clock"].long() % self.window).unsqueeze(-1)  # of the oldest, which leaves
        state = super().learned(state, observation)
        state["arms"].scatter_(-1, at, observation.arm.unsqueeze(-1))
        state["rewards"].scatter_(-1, at, observation.reward.unsqueeze(-1))
        state["held"].scatter_(-1, at, 1.0)
        for name, values in (("count", state["held"]), ("sum", state["rewards"])):
            state[name] = self.zeros(self.num_arms).scatter_add_(-1, state["arms"], values)
        return state

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        """See ``MeansPolicy``."""
        count, log_t = state["count"], state["clock"].clamp(1, self.window).log().unsqueeze(-1)
        bonus = torch.sqrt(self.exploration * log_t / count)
        return state["sum"] / count + spread(state).unsqueeze(-1) * bonus


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


class GLRKLUCB(MeansPolicy):
    """kl-UCB that forgets an arm (or all) when the generalised likelihood ratio finds that its rewards have changed.

    index = max {q : n_i kl(mean_i, q) <= ln t_i} with t_i steps since arm i was forgotten, the kl divergence of
    Bernoulli distributions, and rewards in [0, 1]. A pull of arm i tests its n rewards since then:

        max_s s kl(mean_{1:s}, mean_{1:n}) + (n - s) kl(mean_{s+1:n}, mean_{1:n}) > ln(n^{3/2} / delta).

    Of every floor(N / a_k) steps the first N play the arms in turn, with a_k = ``exploration`` sqrt(k), at most 1,
    after k - 1 detected changes. An arm that is not available loses its turn.

    Args:
        num_arms, replicates, reward_range, seed, first_replicate, device: as for ``MeansPolicy``.
        horizon: T.
        delta: of the test; None for 1 / sqrt(T).
        exploration: a; None for the paper's sqrt(N ln T / T), but at most 0.1: if N ln T is near T or above, the
            paper's value would play the arms in turn for ever.
        restarts: ``"local"``: only the arm is forgotten; ``"global"``: all arms are.

    Cost: O(S (N + t)) a step, since all rewards are kept for the test.

    Source: Besson, Kaufmann, Maillard & Seznec 2022, Algorithm 1, with the threshold and the tuning of the authors'
    experiments (the theorem's threshold is larger). Raises ValueError for numbers out of range, and other ``restarts``.
    """

    horizon: int
    delta: float | None = None
    exploration: float | None = None
    restarts: str = "local"

    fixed = False  # rewards are kept

    def __post_init__(self) -> None:
        T = validation.positive_integer("horizon", self.horizon)
        N = validation.positive_integer("num_arms", self.num_arms)
        self.delta, self.exploration = tuned_test(T, N, self.delta, self.exploration)
        validation.one_of("restarts", self.restarts, "local", "global")
        super().__post_init__()

    def init(self) -> State:
        """See ``ArmPolicy``."""
        pulls = {"arms": self.zeros(0).long(), "rewards": self.zeros(0), "length": 0}  # and room for more
        since = {name: self.zeros(self.num_arms) for name in ("since", "forgotten")}
        return super().init() | since | {"changes": self.zeros()} | pulls

    # -- choosing --------------------------------------------------------------------------------------

    def choice(
        self, state: State, time: float, available: Tensor | None, streams: ReplicateStreams
    ) -> Choice:
        """The arm whose turn it is, or that of the largest index."""
        chosen = super().choice(state, time, available, streams)
        forced = torch.arange(self.num_arms, device=self.device) == self._turn(state).unsqueeze(-1)
        if available is not None:
            forced = forced & available
        arm = torch.where(forced.any(-1), forced.long().argmax(-1), chosen.arm)
        return Choice(arm, chosen.why)

    def _turn(self, state: State) -> Tensor:
        """The arm whose turn it is, (S,); N or above: none."""
        return forced_turn(state["clock"], cast(float, self.exploration), state["changes"], self.num_arms)

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        """See ``MeansPolicy``."""
        mean = (state["sum"] / state["count"] - state["low"].unsqueeze(-1)) / spread(state).unsqueeze(-1)
        mean = mean.clamp(0.0, 1.0)
        elapsed = (state["clock"].unsqueeze(-1) - state["forgotten"]).clamp_min(1)
        level = elapsed.log() / state["count"]
        low, high = mean, torch.ones_like(mean)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            inside = bernoulli_kl(mean, middle) <= level
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        return low

    # -- learning --------------------------------------------------------------------------------------

    def learned(self, state: State, observation: Observation) -> State:
        """See ``MeansPolicy``; then the test."""
        state, length = super().learned(state, observation), state["length"]
        state["arms"] = with_one(state["arms"], length, observation.arm)
        state["rewards"] = with_one(state["rewards"], length, observation.reward)
        state["length"] = length + 1
        changed = self._has_changed(state, observation.arm)
        gone = torch.zeros_like(state["count"], dtype=torch.bool)
        gone.scatter_(-1, observation.arm.unsqueeze(-1), changed.unsqueeze(-1))
        if self.restarts == "global":
            gone = changed.unsqueeze(-1).expand_as(gone)
        state["changes"] += changed
        for name in ("count", "sum"):
            state[name] = state[name].masked_fill(gone, 0.0)
        state["since"] = state["since"].masked_fill(gone, length + 1)
        state["forgotten"] = torch.where(gone, state["clock"].unsqueeze(-1), state["forgotten"])
        return state

    def _has_changed(self, state: State, arm: Tensor) -> Tensor:
        """Whether the rewards of the arm just pulled have changed since it was forgotten, (S,)."""
        at, length = arm.unsqueeze(-1), state["length"]
        position = torch.arange(length, device=self.device)
        own = (state["arms"][:, :length] == at) & (position >= state["since"].gather(-1, at))
        ratio, n = likelihood_ratio(own, scaled(state, state["rewards"][:, :length]), bernoulli_kl)
        threshold = 1.5 * n.log() - math.log(self.delta)  # type: ignore[arg-type]
        return (ratio > threshold) & (spread(state) > 0)

    def changes_found(self) -> Tensor:
        """How many changes have been found, (S,)."""
        return self.state["changes"]

    def trace(self) -> dict[str, Tensor | float]:
        """How many changes have been found, (S,)."""
        return {"restarts": self.state["changes"].clone()}

    def _restarted(self, where: Tensor | None) -> None:
        """Rewards are kept until all replicates are reset; those of a replicate that was reset no longer count."""
        if where is not None:
            length = float(self.state["length"])
            self.state["since"] = torch.where(where.unsqueeze(-1), length, self.state["since"])


def with_one(values: Tensor, at: int, value: Tensor) -> Tensor:
    """``values`` (S, room) with ``value`` (S,) in column ``at``, changed in place unless more room is needed."""
    room = values.shape[-1]
    if at == room:
        values = torch.nn.functional.pad(values, (0, max(16, room)))
    values[:, at] = value
    return values


def tuned_test(T: int, N: int, delta: float | None, exploration: float | None) -> tuple[float, float]:
    """delta of a test for changes, 1 / sqrt(T) but at most 1/2 if it is None, and the rate of forced exploration,
    sqrt(N ln T / T) but at most 0.1 if it is None."""
    delta = min(0.5, 1 / math.sqrt(T)) if delta is None else validation.probability("delta", delta)
    usual = min(0.1, math.sqrt(N * math.log(T) / T))
    return delta, usual if exploration is None else validation.share("exploration", exploration)


def forced_turn(clock: Tensor, exploration: float, changes: Tensor, num_arms: int) -> Tensor:
    """The arm whose turn it is, (S,): arm by arm in the first N of every floor(N / rate) steps, then N for none. The
    rate is ``exploration`` times sqrt(1 + ``changes`` found), at most 1."""
    rate = (exploration * (1 + changes).sqrt()).clamp(max=1.0)
    period = torch.where(rate > 0, (num_arms / rate).floor(), torch.inf)
    turn = torch.where(period.isinf(), float(num_arms), clock - period * (clock / period).floor())
    return turn.clamp(max=num_arms).long()


def likelihood_ratio(
    own: Tensor, rewards: Tensor, divergence: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The likelihood ratio of one change among the rewards with ``own`` True, and their number n, (S,) each.

    It is max_s s d(mean_{1:s}, mean_{1:n}) + (n - s) d(mean_{s+1:n}, mean_{1:n}), d the ``divergence`` of two
    distributions by their means; 0 for n < 2. ``own``, ``rewards``: (S, t), at least one True in each row. Cost: O(S
    t).
    """
    n1, s1 = own.double().cumsum(-1), (rewards * own).cumsum(-1)
    n, s = n1[:, -1:], s1[:, -1:]
    n2, s2, mean = n - n1, s - s1, s / n
    ratio = n1 * divergence(s1 / n1, mean) + n2 * divergence(s2 / n2, mean)
    return ratio.masked_fill((n1 < 1) | (n2 < 1), 0.0).amax(-1), n.squeeze(-1)


def bernoulli_kl(p: Tensor, q: Tensor) -> Tensor:
    """kl(p, q) = p ln(p/q) + (1 - p) ln((1 - p)/(1 - q)), elementwise, finite for q of 0 and 1."""
    q = q.clamp(_TINY, 1 - _TINY)
    return torch.xlogy(p, p / q) + torch.xlogy(1 - p, (1 - p) / (1 - q))
