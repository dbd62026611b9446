"""Weights of members by Bayes' rule; a share of the weight returns to the prior weights, so any member can recover."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.state import HasState


class FixedShare(Described, HasState):
    """Weights of P members in each of S replicates, by predictive density and fixed share.

    With f_p the predictive density of member p at the observation, and pi the prior weights,

        w'_p = w_p f_p / sum_q w_q f_q,      w_p <- (1 - a) w'_p + a pi_p.

    This is exact Bayes if the right member changes with probability a at each step to one drawn from pi. So for every
    sequence of members p_1, ..., p_T with k changes, and for any data,

        sum_t -ln f_mix(y_t) <= sum_t -ln f_{p_t}(y_t) - ln pi_{p_1} - sum_{changes} ln(a pi_{p_t})
                                - sum_{stays} ln(1 - a + a pi_{p_t}),

    which for equal pi adds ln P + k ln(P / a) - (T - 1 - k) ln(1 - a + a / P). It bounds this loss, not the regret.

    Members that fall behind are to be reset. With scores c_p <- memory c_p + ln f_p, a member is due for a reset if its
    score is more than ``behind`` nats below the best score, which it then takes over. In one step a score can fall at
    most ``at_once`` nats relative to that of the member that predicted best.

    Args:
        prior: (P,) weights pi > 0; normalised here.
        replicates: S.
        share: a, in [0, 1).
        behind: nats; infinity: no member is ever reset.
        memory: discount of the score, in [0, 1).
        at_once: nats; if it is less than ``behind``, one observation alone resets no member.

    Attributes:
        log_weight: (S, P).
        score: (S, P), c.
        log_loss: (S,), the sum of -ln f_mix so far.
        resets: (S,), the number of resets so far.

    Source: Herbster & Warmuth 1998 (fixed share), log loss and learning rate 1. The resets are ours, without a theorem;
    a member with its resets is one predictor, so the bound above holds.

    Raises ValueError for weights that are not positive and numbers out of range.
    """

    log_weight: Tensor
    score: Tensor
    resets: Tensor
    log_loss: Tensor

    def __init__(
        self,
        prior: Tensor,
        replicates: int = 1,
        *,
        share: float = 0.001,
        behind: float = 12.0,
        memory: float = 0.9,
        at_once: float = math.inf,
    ) -> None:
        validation.tensor("prior", prior)
        ok = prior.dim() == 1 and len(prior) > 0 and bool((prior.isfinite() & (prior > 0)).all())
        validation.require(ok, "prior", prior, "(P,) finite weights > 0")
        self.replicates = validation.positive_integer("replicates", replicates)
        self.share = validation.below_one("share", share)
        self.behind = validation.positive_or_infinite("behind", behind)
        self.memory = validation.below_one("memory", memory)
        self.at_once = validation.positive_or_infinite("at_once", at_once)
        self.log_prior = (prior / prior.sum()).log()
        self._begin()

    @property
    def weights(self) -> Tensor:
        """(S, P); each row has the sum 1. The result is cached."""
        if self._weighed is None or self._weighed[0] is not self.log_weight:
            self._weighed = self.log_weight, self.log_weight.exp()
        return self._weighed[1]

    _weighed: tuple[Tensor, Tensor] | None = None

    def state_changed(self) -> None:
        self._weighed = None

    @property
    def effective_members(self) -> Tensor:
        """exp of the weights' entropy, (S,): 1 if one member has all weight, P if all have the same."""
        return effective_number(self.weights)

    def update(
        self, log_density: Tensor, exempt: Tensor | None = None, log_unit: Tensor | None = None
    ) -> Tensor:
        """Learn ln f_p of an observation, (S, P). Returns which members are due for a reset, (S, P) booleans.

        Members that are ``exempt`` (S, P) are not due. ``log_unit`` (S,): ln of the unit of rewards, for the log loss.
        """
        joint = self.log_weight + log_density
        posterior = joint.log_softmax(-1)
        # The largest entries: others may be -inf in both.
        self.log_loss = self.log_loss - (joint.amax(-1) - posterior.amax(-1))
        if log_unit is not None:
            self.log_loss = self.log_loss + log_unit
        self.log_weight = shared(posterior, self.log_prior, self.share)
        if self.at_once < math.inf:
            log_density = torch.maximum(log_density, log_density.amax(-1, keepdim=True) - self.at_once)
        self.score = torch.add(log_density, self.score, alpha=self.memory)
        best = self.score.amax(-1, keepdim=True)
        due = best - self.score > self.behind
        if exempt is not None:
            due = due & ~exempt
        self.score = torch.where(due, best, self.score)
        self.resets = self.resets + due.sum(-1)
        return due

    def _fresh(self) -> dict[str, Tensor]:
        shape = (self.replicates, len(self.log_prior))
        return {
            "log_weight": self.log_prior.expand(shape).clone(),
            "score": self.log_prior.new_zeros(shape),
            "resets": torch.zeros(self.replicates, dtype=torch.long, device=self.log_prior.device),
            "log_loss": self.log_prior.new_zeros(self.replicates),
        }


def effective_number(weights: Tensor) -> Tensor:
    """exp of the entropy of weights (..., P)."""
    return torch.special.entr(weights).sum(-1).exp()


def shared(log_weight: Tensor, log_prior: Tensor, share: float) -> Tensor:
    """ln((1 - share) w + share pi), from ln w (S, P) and ln pi (P,)."""
    if not share:
        return log_weight
    return torch.logaddexp(log_weight + math.log1p(-share), log_prior + math.log(share))


def mixture_moments(weights: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of a mixture, (S, N) each, from weights (S, P) and the members' moments (S, P, N).

    m = sum w_p mu_p,  v = sum w_p (sigma_p^2 + (mu_p - m)^2).
    """
    w = weights.unsqueeze(-2)
    centre = torch.bmm(w, mean)
    off = mean - centre
    spread = torch.addcmul(variance, off, off)
    return centre.squeeze(-2), torch.bmm(w, spread).squeeze(-2)


def heaviest(weights: Tensor, light: float) -> tuple[Tensor, Tensor]:
    """The fewest members with all but ``light`` of the weight (S, P): their indices and weights, (S, K) each.

    K is the largest number that any replicate needs; the others also get K members, some with weight 0.
    """
    in_order, member = weights.sort(-1, descending=True)
    before = in_order.cumsum(-1) - in_order
    share = torch.where(before < 1 - light, in_order, 0.0)
    most = int((share > 0).sum(-1).max())
    share = share[:, :most]
    return member[:, :most], share / share.sum(-1, keepdim=True)
