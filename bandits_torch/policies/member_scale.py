"""The unit and the origin of rewards, learned on line by members that know their covariance up to a factor."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.state import HasState

_KNOWN = 1e12  # a prior strength at which nothing is learned
_LEAST = 1e-12  # of the largest squared residual: a scale below it is that of rounding


class MemberScale(Described, HasState):
    """Origin and scale of rewards for members whose covariance is known up to a factor, and robust densities.

    Member p predicts e = y - o with mean mu_p and variance s_p v_p, v_p its own variance (with noise) in units of its
    covariance. The origin o is the first reward for members that ``learn_offset`` (so their covariance must have a
    constant part, the variance of the mean about one reward) and 0 for the others. The factor s has the conjugate
    inverse-gamma prior of strength nu_0 about 1; with nu_0 = 0 it is improper and leaves the factor to the data alone:

        s = (nu_0 + sum g^{t-i} z_i^2) / (nu_0 + sum g^{t-i}),   z_i^2 = e_i^2 / v_i at the time of observation i,

    g < 1 forgets, so that noise whose size changes is followed. The density of the next reward is Student's t with
    nu_0 + sum g^{t-i} degrees of freedom, at most ``tail``, so that one outlier costs little. What a member learns of
    the function from a residual is clipped at ``clip`` deviations (more while few rewards are known), as by Huber's
    score function; residuals within are learned exactly.

    So with nu_0 = 0 everywhere the weights do not change and scores only change their unit when rewards are multiplied
    and shifted.

    Args:
        strength: (P,) nu_0 >= 0; infinity: the scale is known.
        learn_offset: (P,) booleans.
        replicates: S.
        memory: g, in (0, 1).
        tail: at most so many degrees of freedom, > 2.
        clip: deviations, > 0.

    Source: conjugate normal-inverse-gamma model (Gelman et al. 2013, ch. 3); Huber 1981 for the clipping; forgetting
    and the bound on the degrees of freedom are ours.

    Raises ValueError for numbers out of range.
    """

    origin: Tensor
    count: Tensor
    squares: Tensor
    largest: Tensor

    def __init__(
        self,
        strength: Tensor,
        learn_offset: Tensor,
        replicates: int = 1,
        *,
        memory: float = 0.99,
        tail: float = 8.0,
        clip: float = 4.0,
    ) -> None:
        validation.tensor("strength", strength)
        ok = strength.dim() == 1 and len(strength) > 0 and bool((strength >= 0).all())
        validation.require(ok, "strength", strength, "(P,) numbers >= 0")
        validation.tensor("learn_offset", learn_offset)
        fits = learn_offset.shape == strength.shape and learn_offset.dtype == torch.bool
        validation.shape_is("learn_offset", learn_offset, fits, f"{tuple(strength.shape)} and dtype bool")
        self.replicates = validation.positive_integer("replicates", replicates)
        self.memory = validation.probability("memory", memory)
        above = validation.positive("tail", tail) > 2
        validation.require(above, "tail", tail, "a number > 2")
        self.tail, self.clip = float(tail), validation.positive("clip", clip)
        self.strength, self.learn_offset = strength.clamp_max(_KNOWN), learn_offset
        self._some_known = bool((strength > 0).any())
        self._begin()

    # -- predicting ------------------------------------------------------------------------------------

    @property
    def offset(self) -> Tensor:
        """o of each member, (S, P); 0 before the first reward."""
        return self.origin.nan_to_num().unsqueeze(-1) * self.learn_offset

    @property
    def scale(self) -> Tensor:
        """s, (S, P); 1 where nothing is known of it yet. Computed once for what is known."""
        if self._scale is None:
            self._scale = self._scale_now()
        return self._scale

    _scale: Tensor | None = None

    def state_changed(self) -> None:
        """Of another state the scale is another."""
        self._scale = None

    def _scale_now(self) -> Tensor:
        weight = self.strength + self.count
        scale = (self.strength + self.squares) / weight.clamp_min(1.0)
        least = _LEAST * self.largest
        return torch.where(weight > 0, torch.maximum(scale, least), 1.0)

    # -- learning --------------------------------------------------------------------------------------

    def meet(self, reward: Tensor) -> None:
        """Take the first reward, (S,), as origin."""
        self.origin = torch.where(self.origin.isnan(), reward, self.origin)

    def update(
        self,
        residual: Tensor,
        variance: Tensor,
        unit: Tensor | None = None,
        borne_out: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """ln density of the residuals y - o - mu, (S, P), given the members' variances v (S, P); and what of them is to
        be learned, clipped. The scale then learns them. ``unit`` (S, P): what each member counts residuals in, if not
        all in the same; densities are then per unit of rewards. Where ``borne_out`` (S,) is True the rewards are known
        to be no outliers: residuals are to be learned as they are, though the scale learns them clipped."""
        scale, weight = self.scale, self.strength + self.count
        unknown = weight == 0
        spread = scale * variance
        density = self._log_density(residual, spread, weight)
        vague = variance if unit is None else variance / unit.square()
        flat = self._vague(residual, vague) if self._some_known else torch.zeros_like(density)
        density = torch.where(unknown, flat, density)
        density = density if unit is None else density - unit.log()
        bound = self.clip * (1 + 5 / weight.clamp_min(1e-6)) * spread.sqrt()
        bound = torch.where(unknown, torch.inf, bound)
        clipped = residual.clamp(-bound, bound)
        self._learn(residual, clipped.square() / variance, unknown)
        return density, clipped if borne_out is None else residual.where(borne_out.unsqueeze(-1), clipped)

    def _log_density(self, residual: Tensor, spread: Tensor, weight: Tensor) -> Tensor:
        dof = weight.clamp(1.0, self.tail)
        constant = torch.lgamma((dof + 1) / 2) - torch.lgamma(dof / 2) - 0.5 * (dof * math.pi * spread).log()
        return constant - (dof + 1) * _log_hypot(residual / (dof * spread).sqrt())

    def _vague(self, residual: Tensor, variance: Tensor) -> Tensor:
        """The density of a member that knows no scale beside members that do: Cauchy's, of ten times their unit."""
        width = 10.0 * variance.sqrt()
        return -(math.pi * width).log() - 2 * _log_hypot(residual / width)

    def _learn(self, residual: Tensor, squared: Tensor, unknown: Tensor) -> None:
        # While all rewards are equal nothing is known of their unit.
        counts = ~(unknown & (residual == 0))
        self.count = torch.where(counts, self.memory * self.count + 1, self.count)
        self.squares = torch.where(counts, self.memory * self.squares + squared, self.squares)
        self.largest = torch.maximum(self.largest, squared)
        self.state_changed()

    def take(self, other: MemberScale, where: Tensor) -> None:
        """What ``other`` learned, for the members with ``where`` (S, P) True."""
        for name in ("count", "squares", "largest"):
            setattr(self, name, torch.where(where, getattr(other, name), getattr(self, name)))
        self.state_changed()

    def anew(self) -> MemberScale:
        """One of the same rules that has learned nothing."""
        made = copy.copy(self)
        made.reset()
        return made

    def _fresh(self) -> dict[str, Tensor]:
        shape, zeros = (self.replicates, len(self.strength)), self.strength.new_zeros
        return {
            "origin": zeros(self.replicates).fill_(torch.nan),
            "count": zeros(shape),
            "squares": zeros(shape),
            "largest": zeros(shape),
        }


def _log_hypot(x: Tensor) -> Tensor:
    """ln sqrt(1 + x^2), whatever the size of x."""
    return torch.hypot(x, x.new_ones(())).log()
