"""Policies for an unknown length-scale, over candidates from the longest on: shrink it, or balance between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.over_priors import OptimisticOverPriors, OverPriors
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.policies.over_priors import UnknownPriorPolicy
from bandits_torch.policies.policy import Observation
from bandits_torch.theory.prior_widths import xi_at
from bandits_torch.theory.widths import Width


class ShrinkingLengthScale(UnknownPriorPolicy):
    """A-GP-UCB: UCB under the length-scale theta_0 / g(t), which shrinks as time goes on; the width knows its norm.

    Source: Berkenkamp, Schoellig & Krause 2019, Algorithm 1, with b(t) = 1 and g(t) = max(1, t^shrink) rounded up to
    the next of ``factors``: any g that grows without bound is theirs, so the rounded one is. Valid once
    g(t) >= theta_0 / theta, theta the true length-scale.

    Args:
        model: of batch shape (S, P), member p with length-scale theta_0 / factors[p].
        width: with a norm bound for each member.
        factors: P ascending numbers from 1 on.
        shrink: exponent of g, in (0, 1); after the largest factor the length-scale stays.

    Late rewards: see ``UnknownPriorPolicy``. Raises ValueError for ``factors`` that are not P ascending numbers from 1
    on, and unless 0 < ``shrink`` < 1.
    """

    def __init__(self, model: ArmGP, width: Width, factors: Sequence[float], shrink: float = 0.25) -> None:
        super().__init__(model, width)
        self.factors, self.shrink = list(factors), validation.probability("shrink", shrink)
        ascending = sorted(set(factors)) == self.factors and self.factors[:1] == [1.0]
        right = ascending and len(self.factors) == self.num_priors
        validation.require(right, "factors", self.factors, f"{self.num_priors} ascending numbers from 1 on")
        self._factors = torch.tensor(self.factors, dtype=torch.float64, device=model.noise_variance.device)

    def _growth(self) -> Tensor:
        """g at the coming step, (S,)."""
        clock = torch.as_tensor(self._clock, device=self._factors.device).expand(self.replicates)
        return (clock + 1).to(self._factors) ** self.shrink

    def followed(self) -> Tensor:
        """The member of the coming step, (S,)."""
        return (
            (self._factors < self._growth().unsqueeze(-1) - _ROUNDING).sum(-1).clamp(max=self.num_priors - 1)
        )

    def _over(self, base: UpperConfidenceBound) -> OverPriors:
        over = OptimisticOverPriors(base)
        over.surviving = torch.nn.functional.one_hot(self.followed(), self.num_priors).bool()
        return over


_ROUNDING = 1e-9


class LengthScaleBalancing(ShrinkingLengthScale):
    """LB-GP-UCB: follow the length-scale of the least suspected regret, drop those outdone in reward.

    Members come in once g(t) reaches their factor, and stay until refuted. With n_p the steps at which member p was
    followed, that of the least R_p(n_p + 1) chooses among those in play,

        R_p(n) = sqrt(n gamma) (sqrt(gamma) + B),    gamma = (factor_p / theta_0)^d ln(n + 1)^{d+1};

    once all of them were followed, p is dropped when

        mean reward of p + sqrt(xi_t / n_p) + 2 sum_{i in S_p} width_i sigma^p_{i-1}(x_i) / n_p
            < max_q (mean reward of q - sqrt(xi_t / n_q)),    xi_t = 2 R^2 ln(2 P pi^2 t^2 / (3 delta)).

    A member whose width holds is never dropped: f* <= f(x_i) + 2 width sigma, and no mean reward exceeds f* by more
    than the noise. Valid for functions and arm sets that do not change.

    Source: Ziomek, Adachi & Osborne 2024 (arXiv 2410.10384), length-scale balancing; the growth bound for squared
    exponential kernels, scaled by the length-scale. Written from its abstract and its authors' published code, which
    has one width sigma in the test where the argument above needs two, and ln n, which is 0 for n = 1.

    Args:
        model, width, factors, shrink: as for ``ShrinkingLengthScale``; the width has one norm bound B for all.
        lengthscale: theta_0.
        dim: d.
        rkhs_bound: B of R_p, a number or (S, 1).
        delta: failure probability.
        noise_scale: R, a number or a tensor that broadcasts to (S, P); default: sqrt(lambda).

    Raises ValueError as ``ShrinkingLengthScale``, and unless ``lengthscale`` > 0, ``dim`` >= 1, B >= 0, R > 0 and
    0 < ``delta`` < 1.
    """

    told = ("prior", "width")

    def __init__(
        self,
        model: ArmGP,
        width: Width,
        factors: Sequence[float],
        shrink: float = 0.25,
        *,
        lengthscale: float,
        dim: int,
        rkhs_bound: float | Tensor = 1.0,
        delta: float = 0.1,
        noise_scale: float | Tensor | None = None,
    ) -> None:
        super().__init__(model, width, factors, shrink)
        validation.positive("lengthscale", lengthscale)
        self.dim_of_arms, self.delta = (
            validation.positive_integer("dim", dim),
            validation.probability("delta", delta),
        )
        noise = model.noise_variance
        bound = validation.numbers("rkhs_bound", rkhs_bound, noise)
        validation.require(bool((bound >= 0).all()), "rkhs_bound", bound, "numbers >= 0")
        scale = validation.numbers("noise_scale", noise.sqrt() if noise_scale is None else noise_scale, noise)
        right = bool((scale.isfinite() & (scale > 0)).all())
        validation.require(right, "noise_scale", scale, "finite and > 0")
        self._bound, self._noise_scale = bound, scale.expand(model.batch_shape)
        self._density = (self._factors.to(noise) / lengthscale) ** dim

    def in_play(self) -> Tensor:
        """Which members have come in and are not dropped, (S, P)."""
        return self.surviving & (self._factors <= self._growth().unsqueeze(-1) + _ROUNDING)

    def followed(self) -> Tensor:
        """The member in play of the least suspected regret; ties go to the longest length-scale."""
        n = self._plays + 1
        gamma = self._density * torch.log(n + 1) ** (self.dim_of_arms + 1)
        suspected = torch.sqrt(n * gamma) * (torch.sqrt(gamma) + self._bound)
        return suspected.masked_fill(~self.in_play(), torch.inf).argmin(-1)

    def learn_checked(self, observation: Observation) -> None:
        """Every member observes the reward; then the records of those in play are compared."""
        told, playing = observation.why, self.in_play()
        at, deviation = (
            told["prior"].unsqueeze(-1),
            self._under(told["prior"], observation.arm, observation.time)[1],
        )
        super().learn_checked(observation)
        self._rewards.scatter_add_(-1, at, observation.reward.to(self._rewards).unsqueeze(-1))
        self._bounds.scatter_add_(-1, at, (told["width"] * deviation).unsqueeze(-1))
        self._plays.scatter_add_(-1, at, torch.ones_like(self._plays[:, :1]))
        xi = xi_at(self._step(), self.num_priors, self._noise_scale, self.delta, 2)
        plays = self._plays.clamp_min(1.0)
        mean, noise = self._rewards / plays, torch.sqrt(xi / plays)
        best = (mean - noise).masked_fill(~playing, -torch.inf).amax(-1, keepdim=True)
        all_played = ((self._plays > 0) | ~playing).all(-1, keepdim=True)
        outdone = mean + noise + 2 * self._bounds / plays < best
        self.surviving &= ~(outdone & playing & all_played)

    def trace(self) -> dict[str, Tensor | float]:
        """The member followed, and how many are in play."""
        return super().trace() | {"surviving": self.in_play().sum(-1)}

    surviving: Tensor  # (S, P), as the others
    _rewards: Tensor
    _bounds: Tensor
    _plays: Tensor

    def _fresh(self) -> dict[str, Any]:
        zeros = self.model.noise_variance.new_zeros(self.model.batch_shape)
        records = {name: zeros.clone() for name in ("_rewards", "_bounds", "_plays")}
        return super()._fresh() | {"surviving": zeros == 0} | records
