"""Classical policies that draw: epsilon-greedy, discounted Thompson sampling, EXP3.S."""

from __future__ import annotations

import math
from dataclasses import field
from typing import cast

import torch
from scipy.special import betaincinv
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.arm_policy import State
from bandits_torch.policies.classical.confidence_bounds import MeansPolicy, checked_discount, scaled
from bandits_torch.policies.policy import Choice, Observation, Pending
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.widths import checked


class EpsilonGreedy(MeansPolicy):
    """Plays an available arm at random with probability epsilon, otherwise the one with the largest mean Q_i.

    Q_i <- Q_i + a (reward - Q_i) at a pull of arm i is the exponentially weighted mean of its rewards, which begins
    with the first of them. It needs no scale of rewards.

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
        validation.positive("step_size", self.step_size)
        validation.require(self.step_size <= 1, "step_size", self.step_size, "a number in (0, 1]")
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
        """See ``MeansPolicy``; Q takes the place of a sum."""
        Q, at = state["sum"], observation.arm.unsqueeze(-1)
        mean, first = Q.gather(-1, at), state["count"].gather(-1, at) == 0
        # torch.where of two numbers would be in float32.
        step = torch.full_like(mean, self.step_size).masked_fill(first, 1.0)
        mean = mean + step * (observation.reward.unsqueeze(-1) - mean)
        state = super().learned(state, observation)
        state["sum"].scatter_(-1, at, mean)
        return state

    def means(self, state: State) -> Tensor:
        """Q; of an arm never pulled, the mean of all."""
        Q, pulled = state["sum"], state["count"] > 0
        everywhere = (Q * pulled).sum(-1, keepdim=True) / pulled.sum(-1, keepdim=True).clamp_min(1)
        return torch.where(pulled, Q, everywhere)


class DiscountedThompsonSampling(MeansPolicy):
    """Plays the arm with the largest mean drawn from its posterior, where rewards t steps old have weight gamma^t.

    With discounted counts N_i and sums S_i of rewards: for rewards of 0 and 1 the draw is from
    Beta(1 + S_i, 1 + N_i - S_i); for others from the normal posterior of a mean with prior N(m, v) and noise of
    variance s^2, precision 1/v + N_i/s^2 and mean (m/v + S_i/s^2) / precision. m and v are mean and variance of all
    rewards so far. Without ``noise_variance``, s^2 is v, an upper bound on it.

    Args:
        discount: gamma, in (0, 1].
        likelihood: ``"bernoulli"``, ``"gaussian"``, or ``"auto"``: the former in replicates that have seen nothing but
            0 and 1, the latter in the others.
        noise_variance: s^2, a number or (S,), of the Gaussian likelihood; None for unknown.

    Source: Raj & Kalyani 2017 (Beta), Qi, Wang & Zhu 2023 (Gaussian), with the prior fitted as said. Raises ValueError
    for numbers out of range, and with ``"bernoulli"`` for a reward outside [0, 1].
    """

    reward_range: None = field(default=None, init=False)
    discount: float
    likelihood: str = "auto"
    noise_variance: float | Tensor | None = None

    fixed = False  # quantiles of Beta laws are computed on the host

    def __post_init__(self) -> None:
        self.discount = checked_discount(self.discount)
        validation.one_of("likelihood", self.likelihood, "auto", "bernoulli", "gaussian")
        super().__post_init__()
        if self.noise_variance is not None:
            noise = validation.numbers("noise_variance", self.noise_variance, self.state["clock"])
            checked(validation.positive, "noise_variance", noise)
            fits = noise.shape in ((), (1,), (self.replicates,))
            validation.shape_is("noise_variance", noise, fits, f"() or ({self.replicates},)")
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
        """See ``MeansPolicy``, with mean and variance of all rewards by Welford's recursion."""
        reward = observation.reward
        for name in ("count", "sum"):
            state[name] *= self.discount
        state = super().learned(state, observation)
        if self.likelihood == "auto":
            state["binary"] *= (reward == 0) | (reward == 1)
        off = reward - state["mean"]
        state["mean"] += off / state["clock"]
        state["squares"] += off * (reward - state["mean"])
        return state

    def expect(self, pending: Pending, time: float) -> None:
        """Draws are independent, so a pending pull only means that its arm no longer counts as never pulled."""
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

    There are K arms. x_i is the reward in [0, 1] of the arm pulled, and 0 for the others. Unavailable arms do not count
    in the sums and in K. With g = min(1, sqrt(K (Y ln(K T) + e) / ((e - 1) T))) and a = 1/T the regret against every
    sequence of arms with at most Y - 1 changes is at most 2 sqrt(e - 1) sqrt(K T (Y ln(K T) + e)). At K = 100 and T =
    500 that g is 1, and the policy plays at random.

    Args:
        horizon: T.
        changes: Y, of the default of g.
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
        given = self.exploration
        self.exploration = validation.positive("exploration", tuned if given is None else given)
        validation.require(self.exploration <= 1, "exploration", given, "a number in (0, 1]")
        self.sharing = validation.positive("sharing", 1 / T if self.sharing is None else self.sharing)
        super().__post_init__()

    def init(self) -> State:
        return super().init() | {"weight": self.zeros(self.num_arms) + 1 / self.num_arms}

    def choice(
        self, state: State, time: float, available: Tensor | None, streams: ReplicateStreams
    ) -> Choice:
        """An arm drawn; its probability is ``why["probability"]``, (S,)."""
        mask, g = self.mask(available), cast(float, self.exploration)
        weight, spread = state["weight"] * mask, mask.double()  # a number times booleans would be in float32
        share = weight / weight.sum(-1, keepdim=True)
        p = (1 - g) * share + g * spread / spread.sum(-1, keepdim=True)
        reached = p.cumsum(-1) > (streams.uniform() * p.sum(-1)).unsqueeze(-1)
        arm = (reached & mask).long().argmax(-1)
        return Choice(arm, {"probability": p.gather(-1, arm.unsqueeze(-1)).squeeze(-1)})

    def check(self, observation: Observation) -> None:
        """See ``ArmPolicy``: of a probability of 0, or NaN, no weight would ever be finite again."""
        p = observation.why["probability"]
        right = not p.is_cpu or bool(((p > 0) & (p <= 1 + 1e-6)).all())  # it may have been rounded
        validation.require(right, "why['probability']", p, "in (0, 1]")

    def learned(self, state: State, observation: Observation) -> State:
        state, weight = super().learned(state, observation), state["weight"]
        g, a = cast(float, self.exploration), cast(float, self.sharing)
        p = observation.why["probability"].to(weight)
        gain = g * scaled(state, observation.reward) / (p * self.num_arms)
        shared = math.e * a / self.num_arms * weight.sum(-1, keepdim=True)
        at = observation.arm.unsqueeze(-1)
        weight = weight.scatter(-1, at, weight.gather(-1, at) * gain.exp().unsqueeze(-1)) + shared
        state["weight"] = weight / weight.sum(-1, keepdim=True)  # as good, and finite for ever
        return state

    def grow_from(self, small: EXP3S) -> None:
        """See ``HasState``: new arms begin with the average weight."""
        super().grow_from(small)
        weight, n = self.state["weight"], small.num_arms
        weight[:, :n] *= n / self.num_arms

    def means(self, state: State) -> None:  # type: ignore[override]
        """None: every choice is an independent draw."""
