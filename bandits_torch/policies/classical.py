"""The classical bandits: they learn each arm independently, without a kernel or features.

Upper confidence bounds, which all but UCB1 adapt to changes, come first, then randomised policies. They do not use
correlations between arms, on which the other policies rely. If arms are uncorrelated, they are hard to beat and cost
very little.

Their papers assume rewards in [0, 1]; ``reward_range=(low, high)`` sets another range. By default it is the range of
the rewards seen so far, separately in each replicate, so choices do not depend on the unit or the origin of rewards. No
theorem covers that: unbounded noise widens the range slowly, and outliers widen it at once. The other common arguments
are those of ``ArmPolicy``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from itertools import product
from typing import cast

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.arm_policy import ArmPolicy, State
from bandits_torch.policies.policy import Choice, Observation, Pending
from bandits_torch.policies.sharing import mixture_moments, shared
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.widths import checked

__all__ = [
    "EXP3S",
    "GLRKLUCB",
    "UCB1",
    "DiscountedThompsonSampling",
    "DiscountedUCB",
    "EpsilonGreedy",
    "LogOddsUCB",
    "SlidingWindowUCB",
]

Range = tuple[float, float]


class MeansPolicy(ArmPolicy):
    """Plays the available arm with the largest index. Arms never pulled come first; ties go to the lowest arm number.

    Args:
        num_arms, replicates, seed, first_replicate, device: as for ``ArmPolicy``.
        reward_range: (low, high) of the rewards; None: the range of those seen so far.

    Cost: O(S N) per step, unless a subclass says otherwise. Raises ValueError as ``ArmPolicy``, and for a
    ``reward_range`` that is not a pair of finite numbers, the first less than the second.
    """

    reward_range: Range | None = None

    def __post_init__(self) -> None:
        if self.reward_range is not None:
            self.reward_range = checked_range(self.reward_range)
        super().__post_init__()

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """The reason why the policy needs the unit of rewards: a range is given. Empty if none is."""
        return "" if self.reward_range is None else "its reward_range is in units of reward"

    def init(self) -> State:
        low, high = self.reward_range or (torch.inf, -torch.inf)
        return {
            "count": self.zeros(self.num_arms),  # number, or total weight, of the pulls that count
            "sum": self.zeros(self.num_arms),  # weighted sum of the rewards of these pulls
            "clock": self.zeros(),  # number of rewards learned
            "low": self.zeros() + low,
            "high": self.zeros() + high,
        }

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        """The index of every arm, (S, N), once rewards differ; by default ``means``."""
        return self.means(state)

    def scores(self, state: State, streams: ReplicateStreams) -> Tensor:
        """The score of every arm, (S, N): infinite if never pulled. Until rewards differ, it is the largest for the arm
        pulled least."""
        count, level = state["count"], ~(spread(state) > 0).unsqueeze(-1)
        return torch.where(level, -count, self.index(state, streams)).masked_fill(count == 0, torch.inf)

    def choice(
        self, state: State, time: float, available: Tensor | None, streams: ReplicateStreams
    ) -> Choice:
        """The best available arm of each replicate. ``why["index"]`` is its score, (S,)."""
        best, arm = self.best(self.scores(state, streams), available)
        return Choice(arm, {"index": best})

    def learned(self, state: State, observation: Observation) -> State:
        reward, at = observation.reward, observation.arm.unsqueeze(-1)
        if self.reward_range is None:
            state["low"] = torch.minimum(state["low"], reward)
            state["high"] = torch.maximum(state["high"], reward)
        state["clock"] += 1
        state["count"].scatter_add_(-1, at, torch.ones_like(at, dtype=torch.float64))
        state["sum"].scatter_add_(-1, at, reward.unsqueeze(-1))
        return state

    def means(self, state: State) -> Tensor:
        """The mean reward of each arm, (S, N); for an arm never pulled, the mean over all arms' rewards."""
        count, total = state["count"], state["sum"]
        everywhere = total.sum(-1, keepdim=True) / count.sum(-1, keepdim=True).clamp_min(1e-300)
        return torch.where(count > 0, total / count, everywhere)


def upper_bound(state: State, log_steps: Tensor, exploration: float) -> Tensor:
    """mean_i + B sqrt(exploration log_steps / n_i), (S, N), with B = high - low and log_steps (S, 1)."""
    count = state["count"]
    return state["sum"] / count + spread(state).unsqueeze(-1) * torch.sqrt(exploration * log_steps / count)


def spread(state: State) -> Tensor:
    """high - low, (S,). If no range is given, it is 0 or -inf until two rewards differ."""
    return state["high"] - state["low"]


def scaled(state: State, reward: Tensor) -> Tensor:
    """Rewards (S, ...) scaled from the range to [0, 1] and clipped; 1/2 while the range has no width."""
    shape = (-1,) + (1,) * (reward.dim() - 1)
    low, width = state["low"].reshape(shape), spread(state).reshape(shape)
    return torch.where(width > 0, (reward - low) / width, 0.5).clamp(0.0, 1.0)


def checked_range(reward_range: Range) -> Range:
    """The range. Raises ValueError unless it is two finite numbers, the first less than the second."""
    expected = "two finite numbers, the first less than the second"
    pair = isinstance(reward_range, (tuple, list)) and len(reward_range) == 2
    validation.require(pair, "reward_range", reward_range, expected)
    low, high = (validation.finite_number("reward_range", end) for end in reward_range)
    validation.require(low < high, "reward_range", reward_range, expected)
    return low, high


_BISECTIONS = 30
_TINY = 1e-15


class UCB1(MeansPolicy):
    """index = mean_i + B sqrt(2 ln t / n_i), with n_i pulls of arm i among the t so far, B = high - low of the rewards.

    On rewards in [0, 1] that do not change, the regret is at most 8 sum_i ln T / gap_i + (1 + pi^2/3) sum_i gap_i.

    Source: Auer, Cesa-Bianchi & Fischer 2002, Figure 1 and Theorem 1. Raises ValueError as ``MeansPolicy``.
    """

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        return upper_bound(state, state["clock"].clamp_min(1).log().unsqueeze(-1), 2.0)


class DiscountedUCB(MeansPolicy):
    """index = mean_i + 2 B sqrt(xi ln n / N_i), with N_i = sum_s gamma^{t-s} over the pulls of arm i, n = sum_i N_i.

    The mean has the same weights; B = high - low of the rewards.

    Args:
        discount: gamma, in (0, 1]; ``tuned_discount`` computes the paper's.
        exploration: xi > 0; > 1/2 in the theorem, 1/2 in the paper's experiments.

    Source: Garivier & Moulines 2011, section 3 and Theorem 1. Raises ValueError also for numbers out of range.
    """

    discount: float
    exploration: float = 0.5

    def __post_init__(self) -> None:
        self.discount = validation.positive_share("discount", self.discount)
        self.exploration = validation.positive("exploration", self.exploration)
        super().__post_init__()

    def learned(self, state: State, observation: Observation) -> State:
        for name in ("count", "sum"):
            state[name] *= self.discount
        return super().learned(state, observation)

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        log_n = state["count"].sum(-1, keepdim=True).clamp_min(1).log()
        return upper_bound(state, log_n, 4 * self.exploration)


class SlidingWindowUCB(MeansPolicy):
    """index = mean_i + B sqrt(xi ln min(t, tau) / N_i), over the last tau pulls; N_i of them are pulls of arm i.

    Args:
        window: tau >= 1; ``tuned_window`` computes the paper's.
        exploration: xi > 0; > 1/2 in the theorem, 1/2 in the paper's experiments.

    B = high - low of the rewards. Cost: O(S (N + tau)) per step.

    Source: Garivier & Moulines 2011, section 4 and Theorem 2. Raises ValueError also for numbers out of range.
    """

    window: int
    exploration: float = 0.5

    def __post_init__(self) -> None:
        self.window = validation.positive_integer("window", self.window)
        self.exploration = validation.positive("exploration", self.exploration)
        super().__post_init__()

    def init(self) -> State:
        held = {name: self.zeros(self.window) for name in ("held", "rewards")}
        return super().init() | held | {"arms": self.zeros(self.window).long()}

    def learned(self, state: State, observation: Observation) -> State:
        at = (state["clock"].long() % self.window).unsqueeze(-1)  # the oldest pull, overwritten
        state = super().learned(state, observation)
        state["arms"].scatter_(-1, at, observation.arm.unsqueeze(-1))
        state["rewards"].scatter_(-1, at, observation.reward.unsqueeze(-1))
        state["held"].scatter_(-1, at, 1.0)
        for name, values in (("count", state["held"]), ("sum", state["rewards"])):
            state[name] = self.zeros(self.num_arms).scatter_add_(-1, state["arms"], values)
        return state

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        return upper_bound(state, state["clock"].clamp(1, self.window).log().unsqueeze(-1), self.exploration)


def tuned_discount(horizon: int, changes: float) -> float:
    """gamma = 1 - sqrt(Y / T) / 4, for Y changes in T steps (Garivier & Moulines 2011, remark on Theorem 1, B = 1)."""
    validation.positive_integer("horizon", horizon)
    return 1 - math.sqrt(min(1.0, validation.positive("changes", changes) / horizon)) / 4


def tuned_window(horizon: int, changes: float) -> int:
    """tau = 2 sqrt(T ln T / Y), rounded up, at most T, for Y changes in T steps (Garivier & Moulines 2011, remark on
    Theorem 2, B = 1)."""
    validation.positive_integer("horizon", horizon)
    steps = 2 * math.sqrt(horizon * math.log(horizon) / validation.positive("changes", changes))
    return min(horizon, max(1, math.ceil(steps)))


class GLRKLUCB(MeansPolicy):
    """kl-UCB that forgets an arm (or all) when the generalised likelihood ratio finds that its rewards have changed.

    index = max {q : n_i kl(mean_i, q) <= ln t_i}, with t_i the steps since arm i was forgotten, kl the divergence of
    Bernoulli distributions, and rewards scaled to [0, 1]. A pull of arm i tests its n rewards since then:

        max_s s kl(mean_{1:s}, mean_{1:n}) + (n - s) kl(mean_{s+1:n}, mean_{1:n}) > ln(n^{3/2} / delta).

    After k - 1 detected changes, the first N steps in each period of floor(N / a_k) steps play the arms in turn, with
    a_k = min(``exploration`` sqrt(k), 1). An arm that is not available loses its turn.

    Args:
        horizon: T.
        delta: error probability of the test; None for 1 / sqrt(T), at most 1/2.
        exploration: in [0, 1]; None for the paper's sqrt(N ln T / T), at most 0.1: if N ln T is not much smaller than
            T, the paper's value would play the arms in turn for ever.
        restarts: ``"local"``: only the arm is forgotten; ``"global"``: all arms are.

    Cost: O(S (N + t)) per step, because the test keeps all rewards.

    Source: Besson, Kaufmann, Maillard & Seznec 2022, Algorithm 1, with the threshold of the authors' experiments (the
    theorem's is larger) and the tuning that their code recommends. Raises ValueError for numbers out of range, and
    other ``restarts``.
    """

    horizon: int
    delta: float | None = None
    exploration: float | None = None
    restarts: str = "local"

    fixed = False  # the record of rewards grows

    def __post_init__(self) -> None:
        T = validation.positive_integer("horizon", self.horizon)
        N = validation.positive_integer("num_arms", self.num_arms)
        self.delta, self.exploration = tuned_test(T, N, self.delta, self.exploration)
        validation.one_of("restarts", self.restarts, "local", "global")
        super().__post_init__()

    def init(self) -> State:
        pulls = {"arms": self.zeros(0).long(), "rewards": self.zeros(0), "length": 0}
        since = {name: self.zeros(self.num_arms) for name in ("since", "forgotten")}
        return super().init() | since | {"changes": self.zeros()} | pulls

    def choice(
        self, state: State, time: float, available: Tensor | None, streams: ReplicateStreams
    ) -> Choice:
        """The arm whose turn it is, or else the arm with the largest index."""
        chosen = super().choice(state, time, available, streams)
        turn = forced_turn(state["clock"], cast(float, self.exploration), state["changes"], self.num_arms)
        forced = torch.arange(self.num_arms, device=self.device) == turn.unsqueeze(-1)
        if available is not None:
            forced = forced & available
        arm = torch.where(forced.any(-1), forced.long().argmax(-1), chosen.arm)
        return Choice(arm, chosen.why)

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
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

    def learned(self, state: State, observation: Observation) -> State:
        """See ``MeansPolicy``; then test whether the rewards of this arm have changed since it was forgotten."""
        at, length = observation.arm.unsqueeze(-1), state["length"]
        state = super().learned(state, observation)
        state["arms"] = with_one(state["arms"], length, observation.arm)
        state["rewards"] = with_one(state["rewards"], length, observation.reward)
        state["length"] = length = length + 1
        seen = state["arms"][:, :length], scaled(state, state["rewards"][:, :length])
        since, delta = state["since"].gather(-1, at), cast(float, self.delta)
        changed = has_changed(*seen, since, delta, bernoulli_kl) & (spread(state) > 0)
        gone = torch.zeros_like(state["count"], dtype=torch.bool).scatter_(-1, at, changed.unsqueeze(-1))
        if self.restarts == "global":
            gone = changed.unsqueeze(-1).expand_as(gone)
        state["changes"] += changed
        for name in ("count", "sum"):
            state[name] = state[name].masked_fill(gone, 0.0)
        state["since"] = state["since"].masked_fill(gone, length)
        state["forgotten"] = torch.where(gone, state["clock"].unsqueeze(-1), state["forgotten"])
        return state

    def changes_found(self) -> Tensor:
        return self.state["changes"].clone()

    def trace(self) -> dict[str, Tensor | float]:
        return {"restarts": self.changes_found()}

    def _restarted(self, where: Tensor | None) -> None:
        """The rewards of replicates that are reset no longer count; they are removed only if all are reset."""
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
    """The test's delta, by default 1 / sqrt(T), at most 1/2; and the rate of forced exploration, by default
    sqrt(N ln T / T), at most 0.1."""
    delta = min(0.5, 1 / math.sqrt(T)) if delta is None else validation.probability("delta", delta)
    usual = min(0.1, math.sqrt(N * math.log(T) / T))
    return delta, usual if exploration is None else validation.share("exploration", exploration)


def forced_turn(clock: Tensor, exploration: float, changes: Tensor, num_arms: int) -> Tensor:
    """The arm whose turn it is, (S,), or N if it is no arm's turn.

    Each period has floor(N / rate) steps. Its first N are the turns of arms 0 to N - 1. The rate is ``exploration``
    times sqrt(1 + ``changes`` found), at most 1.
    """
    rate = (exploration * (1 + changes).sqrt()).clamp(max=1.0)
    period = torch.where(rate > 0, (num_arms / rate).floor(), torch.inf)
    turn = torch.where(period.isinf(), float(num_arms), clock - period * (clock / period).floor())
    return turn.clamp(max=num_arms).long()


def has_changed(
    arms: Tensor, rewards: Tensor, since: Tensor, delta: float, divergence: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Whether the n rewards of the arm pulled last, from number ``since`` (S, 1) on, show a change: (S,).

    They do if max_s s d(mean_{1:s}, mean_{1:n}) + (n - s) d(mean_{s+1:n}, mean_{1:n}) > ln(n^{3/2} / delta), with d
    the ``divergence`` of two distributions by their means. ``arms``, ``rewards``: (S, t). Cost: O(S t).
    """
    own = (arms == arms[:, -1:]) & (torch.arange(arms.shape[-1], device=arms.device) >= since)
    n1, s1 = own.double().cumsum(-1), (rewards * own).cumsum(-1)
    n, s = n1[:, -1:], s1[:, -1:]
    n2, s2, mean = n - n1, s - s1, s / n
    ratio = n1 * divergence(s1 / n1, mean) + n2 * divergence(s2 / n2, mean)
    ratio = ratio.masked_fill((n1 < 1) | (n2 < 1), 0.0).amax(-1)
    return ratio > 1.5 * n.squeeze(-1).log() - math.log(delta)


def bernoulli_kl(p: Tensor, q: Tensor) -> Tensor:
    """kl(p, q) = p ln(p/q) + (1 - p) ln((1 - p)/(1 - q)), elementwise, finite for q of 0 and 1."""
    q = q.clamp(_TINY, 1 - _TINY)
    return torch.xlogy(p, p / q) + torch.xlogy(1 - p, (1 - p) / (1 - q))


_RATES = (0.0, 0.001, 0.01, 0.03, 0.1)  # per reward
_VARIANCES = (0.1, 0.3, 1.0)  # of an arm's log-odds about their prior mean
_LEVELS = (-4.0, -2.5, -1.0, 0.0, 1.5)  # log-odds of the probabilities 0.02, 0.08, 0.27, 0.5, 0.82
_OWN = 2 / 3  # weight of the models with the given prior mean of each arm; others have the average
_LEAST = 0.005  # given prior means, as probabilities, are clipped to this distance from 0 and 1
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)


class LogOddsUCB(MeansPolicy):
    """Plays the arm with the largest m + width sqrt(v), with m and v the mean and variance of its log-odds in a mixture
    of models.

    A reward y of arm i is 1 with probability 1 / (1 + exp(-f_i)). In model p of P each f_i is an independent process
    that forgets at every reward learned, whatever its arm:

        f_i <- mu_pi + sqrt(1 - r_p) (f_i - mu_pi) + noise of variance r_p s_p,

    so f_i has mean mu_pi and variance s_p before any reward. The posterior is approximated by a normal one. A reward
    sets its mean and variance to those of N(f; m, v) p(y | f), by Gauss-Hermite quadrature (assumed density filtering),
    and multiplies the model's weight by the probability that it gave y. A share of all weight returns to the prior
    weights (``FixedShare``).

    Models: every combination of a rate r from 0 to 0.1, a variance s from 0.1 to 1 and a prior mean mu. If
    ``prior_mean`` is given, mu is its log-odds, or their average for all arms; otherwise one of five levels for all
    arms, from a probability of 0.02 to 0.82.

    Args:
        reward_range: (low, high) of the rewards, which count as y = (reward - low) / (high - low). Rewards outside the
            range count as 0 or 1. A reward inside it counts as the fraction y of a 1.
        prior_mean: expected rewards of the arms, a number or (N,), in units of reward; 0: not known.
        width: multiplies the mixture's standard deviation.
        share: the share of the weight that returns to the prior weights at each reward, in [0, 1).

    Cost: O(S P N) per step, P = 30 with a prior mean and 75 without.

    Source: Opper 1998 (assumed density filtering); the mixture is ours, and no theorem bounds its regret. Raises
    ValueError for numbers out of range and a ``prior_mean`` of the wrong shape.
    """

    reward_range: Range = (0.0, 1.0)
    prior_mean: float | Tensor = 0.0
    width: float = 1.25
    share: float = 0.001

    def __post_init__(self) -> None:
        self.width = validation.non_negative("width", self.width)
        self.share = validation.below_one("share", self.share)
        self.reward_range = checked_range(self.reward_range)
        like = torch.zeros((), dtype=torch.float64, device=self.device)
        self._given_mean = validation.rewards(
            "prior_mean", validation.numbers("prior_mean", self.prior_mean, like)
        )
        self._nodes, self._node_weights = like.new_tensor(_NODES), like.new_tensor(_WEIGHTS).log()
        super().__post_init__()

    @cached_property
    def models(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """mu (P, N), s and r (P, 1) each, and the logarithms of the prior weights (P,)."""
        given, N = self._given_mean, self.num_arms
        validation.of_shape("prior_mean", given, (), (N,))
        if isinstance(self.prior_mean, Tensor) or self.prior_mean != 0:
            low, high = self.reward_range
            own = ((given - low) / (high - low)).clamp(_LEAST, 1 - _LEAST).expand(N)
            levels = torch.stack([own, own.mean().expand(N)]).logit()
            weights = given.new_tensor([_OWN, 1 - _OWN])
        else:
            levels = given.new_tensor(_LEVELS).unsqueeze(-1).expand(-1, N)
            weights = given.new_ones(len(_LEVELS)) / len(_LEVELS)
        grid = given.new_tensor([*product(range(len(levels)), _VARIANCES, _RATES)])  # (P, 3)
        level, variance, rate = grid[:, 0].long(), grid[:, 1:2], grid[:, 2:]
        return levels[level], variance, rate, (weights[level] * len(levels) / len(grid)).log()

    def init(self) -> State:
        """See ``MeansPolicy``; also mean and variance of the log-odds (S, P, N) and the logarithms of the weights."""
        prior, variance, _, log_weight = self.models
        shape = (self.replicates, *prior.shape)
        return super().init() | {
            "log_odds": prior.expand(shape).clone(),
            "variance": variance.expand(shape).clone(),
            "log_weight": log_weight.expand(shape[:2]).clone(),
        }

    def scores(self, state: State, streams: ReplicateStreams) -> Tensor:
        """The upper bound of the log-odds of every arm, (S, N), also of arms never pulled."""
        mean, variance = mixture_moments(state["log_weight"].exp(), state["log_odds"], state["variance"])
        return mean + self.width * variance.sqrt()

    def learned(self, state: State, observation: Observation) -> State:
        """See ``MeansPolicy``: learn the reward in every model, weigh the models, and let a step pass."""
        state = super().learned(state, observation)
        prior, prior_variance, rate, prior_weight = self.models
        y = scaled(state, observation.reward)[:, None, None]
        at = observation.arm[:, None, None].expand(-1, len(rate), 1)
        mean, variance = state["log_odds"].gather(-1, at), state["variance"].gather(-1, at)  # (S, P, 1)
        f = mean + variance.sqrt() * self._nodes  # (S, P, nodes)
        log_density = self._node_weights + y * f - torch.nn.functional.softplus(f)
        evidence = log_density.logsumexp(-1, keepdim=True)
        density = (log_density - evidence).exp()
        after = (density * f).sum(-1, keepdim=True)
        narrowed = (density * (f - after).square()).sum(-1, keepdim=True)
        log_odds = state["log_odds"].scatter(-1, at, after)
        spread = state["variance"].scatter(-1, at, narrowed)
        state["log_odds"] = prior + (1 - rate).sqrt() * (log_odds - prior)
        state["variance"] = spread + rate * (prior_variance - spread)
        weight = (state["log_weight"] + evidence.squeeze(-1)).log_softmax(-1)
        state["log_weight"] = shared(weight, prior_weight, self.share)
        return state

    def means(self, state: State) -> Tensor:
        """Expected rewards, (S, N), by MacKay's approximation of a probability under normal log-odds."""
        chance = (state["log_odds"] / (1 + math.pi / 8 * state["variance"]).sqrt()).sigmoid()
        low, high = self.reward_range
        return low + (high - low) * (state["log_weight"].exp().unsqueeze(-1) * chance).sum(-2)


class EpsilonGreedy(MeansPolicy):
    """Plays an available arm at random with probability epsilon, otherwise the one with the largest mean Q_i.

    A pull of arm i updates the exponentially weighted mean of its rewards: Q_i <- Q_i + a (reward - Q_i). Its first
    reward is the initial value. The policy needs no scale of rewards.

    Args:
        epsilon: in [0, 1].
        step_size: a, in (0, 1].

    Source: Sutton & Barto 2018, sections 2.2 and 2.5. Raises ValueError for numbers out of range.
    """

    reward_range: None = field(default=None, init=False)
    epsilon: float = 0.1
    step_size: float = 0.1

    def __post_init__(self) -> None:
        self.epsilon = validation.share("epsilon", self.epsilon)
        validation.positive_share("step_size", self.step_size)
        super().__post_init__()

    def choice(
        self, state: State, time: float, available: Tensor | None, streams: ReplicateStreams
    ) -> Choice:
        mask = self.mask(available)
        explores, which = streams.uniform(2).unbind(-1)
        _, greedy = self.best(self.scores(state, streams), mask)
        rank = (which * mask.sum(-1)).long()
        drawn = (mask.cumsum(-1) > rank.unsqueeze(-1)).long().argmax(-1)
        return Choice(torch.where(explores < self.epsilon, drawn, greedy))

    def learned(self, state: State, observation: Observation) -> State:
        Q, at = state["sum"], observation.arm.unsqueeze(-1)
        mean, first = Q.gather(-1, at), state["count"].gather(-1, at) == 0
        # torch.where of two numbers would be in float32.
        step = torch.full_like(mean, self.step_size).masked_fill(first, 1.0)
        mean = mean + step * (observation.reward.unsqueeze(-1) - mean)
        state = super().learned(state, observation)
        state["sum"].scatter_(-1, at, mean)
        return state

    def means(self, state: State) -> Tensor:
        """Q; for an arm never pulled, the mean of Q over the arms pulled."""
        Q, pulled = state["sum"], state["count"] > 0
        everywhere = (Q * pulled).sum(-1, keepdim=True) / pulled.sum(-1, keepdim=True).clamp_min(1)
        return torch.where(pulled, Q, everywhere)


class DiscountedThompsonSampling(MeansPolicy):
    """Draws each arm's mean from its posterior, with weight gamma^t for rewards t steps old, and plays the largest.

    With discounted counts N_i and sums S_i of rewards: for rewards of 0 and 1 the draw is from
    Beta(1 + S_i, 1 + N_i - S_i); for others from the normal posterior of a mean with prior N(m, v) and noise of
    variance s^2. That posterior has precision 1/v + N_i/s^2 and mean (m/v + S_i/s^2) / precision. m and v are mean and
    variance of all rewards so far, without discount. Without ``noise_variance``, s^2 = v, which is an upper bound.

    Args:
        discount: gamma, in (0, 1].
        likelihood: ``"bernoulli"``, ``"gaussian"``, or ``"auto"``: Bernoulli in replicates that have seen only rewards
            of 0 and 1, Gaussian in the others.
        noise_variance: s^2, a number or (S,), of the Gaussian likelihood; None for unknown.

    Source: Raj & Kalyani 2017 (Beta), Qi, Wang & Zhu 2023 (Gaussian), with the prior fitted as said. Raises ValueError
    for numbers out of range, and with ``"bernoulli"`` for a reward outside [0, 1].
    """

    reward_range: None = field(default=None, init=False)
    discount: float
    likelihood: str = "auto"
    noise_variance: float | Tensor | None = None

    fixed = False  # quantiles of Beta distributions are computed on the host

    def __post_init__(self) -> None:
        self.discount = validation.positive_share("discount", self.discount)
        validation.one_of("likelihood", self.likelihood, "auto", "bernoulli", "gaussian")
        super().__post_init__()
        if self.noise_variance is not None:
            noise = validation.numbers("noise_variance", self.noise_variance, self.state["clock"])
            checked(validation.positive, "noise_variance", noise)
            validation.of_shape("noise_variance", noise, (), (1,), (self.replicates,))
            self.noise_variance = noise.expand(self.replicates)

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """The reason why the policy needs the unit of rewards: it expects rewards in [0, 1]. Empty if it does not."""
        return "its rewards lie in [0, 1]" if self.likelihood == "bernoulli" else super().needs_unit

    def init(self) -> State:
        binary = self.zeros() + (self.likelihood != "gaussian")
        return super().init() | {"mean": self.zeros(), "squares": self.zeros(), "binary": binary}

    def check(self, observation: Observation) -> None:
        if self.likelihood == "bernoulli":
            least, most = torch.aminmax(observation.reward)
            within = bool(least >= 0) and bool(most <= 1)
            validation.require(within, "reward", observation.reward, "in [0, 1], with likelihood='bernoulli'")

    def learned(self, state: State, observation: Observation) -> State:
        reward = observation.reward
        for name in ("count", "sum"):
            state[name] *= self.discount
        state = super().learned(state, observation)
        if self.likelihood == "auto":
            state["binary"] *= (reward == 0) | (reward == 1)
        off = reward - state["mean"]  # Welford's recursion
        state["mean"] += off / state["clock"]
        state["squares"] += off * (reward - state["mean"])
        return state

    def expect(self, pending: Pending, time: float) -> None:
        """Draws are independent, so a pending pull only means that its arm is not counted as never pulled."""
        count, at = self.state["count"], pending.arm.unsqueeze(-1)
        first = count.gather(-1, at) == 0
        mean = self.means(self.state).gather(-1, at)
        self.state["sum"].scatter_add_(-1, at, torch.where(first, mean, 0.0))
        count.scatter_add_(-1, at, first.double())

    def index(self, state: State, streams: ReplicateStreams) -> Tensor:
        u = streams.uniform(self.num_arms)
        variance = (state["squares"] / state["clock"]).unsqueeze(-1)
        noise = variance if self.noise_variance is None else self.noise_variance.unsqueeze(-1)  # type: ignore[union-attr]
        precision = 1 / variance + state["count"] / noise
        center = (state["mean"].unsqueeze(-1) / variance + state["sum"] / noise) / precision
        normal = center + torch.special.ndtri(u.clamp(1e-16, 1 - 1e-16)) / precision.sqrt()
        binary = state["binary"].bool().unsqueeze(-1)
        if not bool(binary.any()):
            return normal
        wins, losses = 1 + state["sum"], 1 + (state["count"] - state["sum"]).clamp_min(0)
        beta = torch.from_numpy(betaincinv(*(x.cpu().numpy() for x in (wins, losses, u)))).to(normal)
        return torch.where(binary, beta, normal)


class EXP3S(MeansPolicy):
    """Draws from p_i = (1 - g) w_i / sum w + g / K, and learns w_i <- w_i exp(g x_i / (p_i K)) + (e a / K) sum w.

    There are K arms. x_i is the reward in [0, 1] of the arm pulled, and 0 for the others. In a draw, unavailable arms
    do not count in the sum or in K.

    With g = min(1, sqrt(K (Y ln(K T) + e) / ((e - 1) T))) and a = 1/T the regret against every sequence of arms with at
    most Y - 1 changes is at most 2 sqrt(e - 1) sqrt(K T (Y ln(K T) + e)). At K = 100 and T = 500 this g is 1, and the
    policy draws arms uniformly.

    Args:
        horizon: T.
        changes: Y, which sets the default of g.
        exploration: g, in (0, 1]; None for the default.
        sharing: a > 0; None for 1/T.

    Source: Auer, Cesa-Bianchi, Freund & Schapire 2002, section 8 and Corollary 8.2. Raises ValueError for numbers out
    of range.
    """

    horizon: int
    changes: float = 1.0
    exploration: float | None = None
    sharing: float | None = None

    needed = ("probability",)

    def __post_init__(self) -> None:
        T = validation.positive_integer("horizon", self.horizon)
        Y = validation.positive("changes", self.changes)
        K = validation.positive_integer("num_arms", self.num_arms)
        tuned = min(1.0, math.sqrt(K * (Y * math.log(K * T) + math.e) / ((math.e - 1) * T)))
        given = tuned if self.exploration is None else self.exploration
        self.exploration = validation.positive_share("exploration", given)
        self.sharing = validation.positive("sharing", 1 / T if self.sharing is None else self.sharing)
        super().__post_init__()

    def init(self) -> State:
        return super().init() | {"weight": self.zeros(self.num_arms) + 1 / self.num_arms}

    def choice(
        self, state: State, time: float, available: Tensor | None, streams: ReplicateStreams
    ) -> Choice:
        """Draw an arm. ``why["probability"]`` is its probability, (S,)."""
        mask, g = self.mask(available), cast(float, self.exploration)
        weight, spread = state["weight"] * mask, mask.double()  # a number times booleans is in float32
        share = weight / weight.sum(-1, keepdim=True)
        p = (1 - g) * share + g * spread / spread.sum(-1, keepdim=True)
        reached = p.cumsum(-1) > (streams.uniform() * p.sum(-1)).unsqueeze(-1)
        arm = (reached & mask).long().argmax(-1)
        return Choice(arm, {"probability": p.gather(-1, arm.unsqueeze(-1)).squeeze(-1)})

    def check(self, observation: Observation) -> None:
        """See ``ArmPolicy``. A probability of 0 or NaN would make all later weights NaN."""
        p = observation.why["probability"]
        right = not p.is_cpu or bool(((p > 0) & (p <= 1 + 1e-6)).all())  # up to rounding
        validation.require(right, "why['probability']", p, "in (0, 1]")

    def learned(self, state: State, observation: Observation) -> State:
        state, weight = super().learned(state, observation), state["weight"]
        g, a = cast(float, self.exploration), cast(float, self.sharing)
        p = observation.why["probability"].to(weight)
        gain = g * scaled(state, observation.reward) / (p * self.num_arms)
        shared = math.e * a / self.num_arms * weight.sum(-1, keepdim=True)
        at = observation.arm.unsqueeze(-1)
        weight = weight.scatter(-1, at, weight.gather(-1, at) * gain.exp().unsqueeze(-1)) + shared
        state["weight"] = weight / weight.sum(-1, keepdim=True)  # the same draws, and no overflow
        return state

    def grow_from(self, small: EXP3S) -> None:
        """See ``HasState``: new arms begin with the average weight."""
        super().grow_from(small)
        weight, n = self.state["weight"], small.num_arms
        weight[:, :n] *= n / self.num_arms

    def means(self, state: State) -> None:  # type: ignore[override]
        """None: every choice is an independent draw."""
