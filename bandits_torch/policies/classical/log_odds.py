"""Upper confidence bounds on drifting log-odds, for rewards of 0 and 1."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import product

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.arm_policy import State
from bandits_torch.policies.classical.means_policy import MeansPolicy, Range, checked_range, scaled
from bandits_torch.policies.policy import Observation
from bandits_torch.policies.sharing import mixture_moments, shared
from bandits_torch.streams import ReplicateStreams

_RATES = (0.0, 0.001, 0.01, 0.03, 0.1)  # per reward
_VARIANCES = (0.1, 0.3, 1.0)  # of an arm's log-odds about their prior mean
_LEVELS = (-4.0, -2.5, -1.0, 0.0, 1.5)  # log-odds of a chance of 0.02, 0.08, 0.27, 0.5, 0.82
_OWN = 2 / 3  # weight of the arms' own prior means, where they are given; the rest is that of their average
_LEAST = 0.005  # a given chance is no nearer to 0 and 1
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)


class LogOddsUCB(MeansPolicy):
    """Plays the arm with the largest m + width sqrt(v), the mean and variance of its log-odds under a mixture of P
    models.

    A reward y of arm i is 1 with probability 1 / (1 + exp(-f_i)). In model p each f_i is an independent process that
    forgets at every reward learned, whatever its arm:

        f_i <- mu_pi + sqrt(1 - r_p) (f_i - mu_pi) + noise of variance r_p s_p,

    so f_i has mean mu_pi and variance s_p before any reward. The posterior is approximated by a normal one. A reward
    sets its mean and variance to those of N(f; m, v) p(y | f), by Gauss-Hermite quadrature (assumed density filtering),
    and multiplies the weight of the model by the probability that it gave y; a share of all weight is redistributed
    (``FixedShare``).

    Models: every combination of a rate r from 0 to 0.1, a variance s from 0.1 to 1 and a prior mean mu. If
    ``prior_mean`` is given, mu is its log-odds, or their average for all arms; otherwise one of five levels for all
    arms, from a probability of 0.02 to 0.82.

    Args:
        num_arms, replicates, seed, first_replicate, device: as for ``ArmPolicy``.
        reward_range: (low, high) of the rewards, which count as (reward - low) / (high - low); those beyond it as 0
            and 1. A reward in between counts as that fraction of a 1.
        prior_mean: expected rewards of the arms, a number or (N,), in units of reward; 0: not known.
        width: multiplies the mixture's standard deviation.
        share: in [0, 1), of the weight.

    Cost: O(S P N) a step, P = 30 with a prior mean and 75 without.

    Source: Opper 1998 (assumed density filtering); the mixture is ours, and no theorem bounds its regret. Raises
    ValueError for numbers out of range and a ``prior_mean`` of another shape.
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
        self._told = validation.rewards("prior_mean", validation.numbers("prior_mean", self.prior_mean, like))
        self._nodes, self._node_weights = like.new_tensor(_NODES), like.new_tensor(_WEIGHTS).log()
        super().__post_init__()

    @cached_property
    def models(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """mu (P, N), s and r (P, 1) each, and the logarithms of the prior weights (P,)."""
        told, N = self._told, self.num_arms
        validation.shape_is("prior_mean", told, told.shape in ((), (N,)), f"() or ({N},)")
        if isinstance(self.prior_mean, Tensor) or self.prior_mean != 0:
            low, high = self.reward_range
            own = ((told - low) / (high - low)).clamp(_LEAST, 1 - _LEAST).expand(N)
            levels = torch.stack([own, own.mean().expand(N)]).logit()
            weights = told.new_tensor([_OWN, 1 - _OWN])
        else:
            levels = told.new_tensor(_LEVELS).unsqueeze(-1).expand(-1, N)
            weights = told.new_ones(len(_LEVELS)) / len(_LEVELS)
        grid = told.new_tensor([*product(range(len(levels)), _VARIANCES, _RATES)])  # (P, 3)
        level, variance, rate = grid[:, 0].long(), grid[:, 1:2], grid[:, 2:]
        return levels[level], variance, rate, (weights[level] * len(levels) / len(grid)).log()

    def init(self) -> State:
        """See ``MeansPolicy``; mean and variance of the log-odds (S, P, N) and the logarithms of the weights."""
        prior, variance, _, log_weight = self.models
        shape = (self.replicates, *prior.shape)
        return super().init() | {
            "log_odds": prior.expand(shape).clone(),
            "variance": variance.expand(shape).clone(),
            "log_weight": log_weight.expand(shape[:2]).clone(),
        }

    def scores(self, state: State, streams: ReplicateStreams) -> Tensor:
        """The upper bound of the log-odds of every arm, (S, N); arms never pulled are not treated specially."""
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
        log_odds, spread = (
            state[name].scatter(-1, at, value)
            for name, value in (("log_odds", after), ("variance", narrowed))
        )
        state["log_odds"] = prior + (1 - rate).sqrt() * (log_odds - prior)
        state["variance"] = spread + rate * (prior_variance - spread)
        weight = (state["log_weight"] + evidence.squeeze(-1)).log_softmax(-1)
        state["log_weight"] = shared(weight, prior_weight, self.share)
        return state

    def means(self, state: State) -> Tensor:
        """The expected reward of each arm, (S, N), with MacKay's approximation of a probability under normal
        log-odds."""
        chance = (state["log_odds"] / (1 + math.pi / 8 * state["variance"]).sqrt()).sigmoid()
        low, high = self.reward_range
        return low + (high - low) * (state["log_weight"].exp().unsqueeze(-1) * chance).sum(-2)
