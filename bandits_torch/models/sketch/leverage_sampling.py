"""How many points a sketch keeps: ridge-leverage-score sampling, its constants and their guarantees."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bandits_torch import validation

_SLACK = {"redrawn": 1.0, "kept": 4.0}


@validation.names_arguments
@dataclass(frozen=True)
class LeverageSampling:
    """Each observation x_s enters the dictionary with probability min(1, qbar_t sigma~^2(x_s) / lambda).

    qbar_t = ``oversampling`` + ``rise`` ln(max(1, t / ``horizon``)) at a draw for t observations.

    Build one with ``theory`` or ``practical``.

    Attributes:
        oversampling: qbar >= 1 of Calandriello et al. (2019), Figure 1.
        growth: C >= 1: the dictionary is drawn again once 1 + sum sigma~^2(x_s) / lambda, summed over the
            observations since the last draw with the variances at that draw, exceeds C; 1 draws at every observation.
        epsilon: accuracy in (0, 1); alpha = (1 + eps) / (1 - eps) enters ``BKBWidth``.
        dictionary: ``"redrawn"``: a draw replaces the dictionary, as in Figure 1; ``"kept"``: it is joined to the
            dictionary held while the union is at most four times as large as the draw (``Sketch``). Kept dictionaries
            are at least as accurate and cheaper to update, but often hold every arm pulled.
        rise, horizon: how fast qbar grows, and after how many observations; ``rise`` 0: it is constant.

    Raises ValueError unless ``oversampling`` > 0, ``growth`` >= 1, 0 < ``epsilon`` < 1, ``dictionary`` is one of
    the two, ``rise`` >= 0 and ``horizon`` is a positive integer.
    """

    oversampling: float
    growth: float = 1.0
    epsilon: float = 0.5
    dictionary: str = "kept"
    rise: float = 0.0
    horizon: int = 1

    def __post_init__(self) -> None:
        validation.positive("oversampling", self.oversampling)
        validation.at_least_one("growth", self.growth)
        validation.probability("epsilon", self.epsilon)
        validation.one_of("dictionary", self.dictionary, *_SLACK)
        validation.non_negative("rise", self.rise)
        validation.positive_integer("horizon", self.horizon)

    @property
    def slack(self) -> float:
        """How many times larger than the last draw the dictionary may be before it is built anew."""
        return _SLACK[self.dictionary]

    @property
    def alpha(self) -> float:
        """(1 + epsilon) / (1 - epsilon), the factor between sketched and exact variances in Theorem 1."""
        return (1 + self.epsilon) / (1 - self.epsilon)

    @classmethod
    def theory(
        cls, horizon: int, delta: float = 0.1, epsilon: float = 0.5, dictionary: str = "redrawn"
    ) -> LeverageSampling:
        """qbar_t = 6 alpha ln(4 max(T, t) / delta) / eps^2, drawn at every observation (Calandriello et al. 2019,
        Theorem 1).

        With probability 1 - delta, sigma^2 / alpha <= sigma~^2 <= alpha sigma^2 at all arms and steps, and a redrawn
        dictionary has at most 3 (1 + kappa^2 / lambda) alpha qbar d_eff members. qbar is in
        the hundreds (763 at T = 1 000, delta = 0.1, eps = 0.5): until an arm was pulled about qbar times the
        dictionary holds every arm pulled, so it saves little before t is in the thousands.

        The theorem ends at T. Beyond it the paper (section 3.2) raises qbar for another horizon and draws again from
        the arms pulled. Here that horizon is the step itself, at every step after T. Accuracy then holds at all steps
        without end, with the same delta, even for T = 1: by their appendix C.3 the draw of step t fails, given an
        accurate previous draw, with probability at most 4 t (delta / (4 t))^(9/4), and these sum to .82 delta^(9/4). (3
        ln(4 t / delta) / (1 + eps / 3) is the exponent of their matrix Bernstein bound, and eps < 1.) The bound on the
        size is theirs up to T. Later each step adds at most (delta / (4 t))^(12 kappa^2 / lambda) by their appendix
        C.4, which is summable if kappa^2 >= lambda / 6 and all prior variances are equal.
        """
        validation.positive_integer("horizon", horizon)
        validation.probability("delta", delta)
        validation.probability("epsilon", epsilon)
        alpha = (1 + epsilon) / (1 - epsilon)
        rise = 6 * alpha / epsilon**2
        return cls(rise * math.log(4 * horizon / delta), 1.0, epsilon, dictionary, rise, horizon)

    @classmethod
    def practical(
        cls, oversampling: float = 5.0, growth: float = 2.0, dictionary: str = "kept"
    ) -> LeverageSampling:
        """A small qbar, with a new draw when enough information has accumulated.

        Theorem 1 does not hold for so small a qbar, and the width's ``epsilon`` = 0.5 is a convention. Between draws
        the posterior is exact for its dictionary, and its variance at any point falls by at most a factor of
        ``growth``.
        """
        return cls(oversampling, growth, 0.5, dictionary)

    def at(self, observations: Tensor) -> Tensor:
        """qbar_t at a draw for t = ``observations``."""
        return self.oversampling + self.rise * torch.log((observations / self.horizon).clamp_min(1.0))

    def probabilities(self, leverage: Tensor, count: Tensor) -> Tensor:
        """1 - (1 - min(1, qbar_t sigma~^2 / lambda))^n: the probability that any of an arm's n observations enters.

        Args:
            leverage: sigma~^2 / lambda of each arm, (u,).
            count: n, (u,), of all arms pulled: t is their sum.
        """
        once = (self.at(count.sum()) * leverage).clamp(0.0, 1.0)
        return -torch.expm1(count * torch.log1p(-once))
