"""Confidence widths for what must stay within limits, rather than for what is to be large."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.parameters import clock
from bandits_torch.theory.widths import Width


class PosteriorSafetyWidth(Width):
    """Deviations within all limits that an arm needs: width_t = z(1 - delta_t / k), z the normal quantile, k limits.

    ``guarantee="step"``, delta_t = delta: at each step, the arm chosen breaks a limit with probability at most delta.
    ``guarantee="run"``, delta_t = 6 delta / (pi^2 t^2): with probability 1 - delta, no arm chosen ever does.

    Valid for functions drawn from their models' priors, drift included, and Gaussian noise of the known variance: given
    the data, g(x, t) is normal with the posterior's moments, and a chosen arm is a function of the data, so it breaks a
    limit from which it is width_t deviations away with probability at most delta_t / k; then sum over limits and steps.
    It needs no sum over the arms, unlike widths that hold for all arms at once (``SrinivasBayesianWidth``). Not valid
    for functions of bounded RKHS norm (take ``IGPWidth``), nor for models that forget what choices depended on.

    Source: no paper's; the union bound of Srinivas et al. 2010, Lemma 5.1, over chosen arms alone.

    Args:
        limits: k >= 1, finite bounds over all outcomes; two for an outcome with both.
        delta: failure probability.
        guarantee: ``"run"`` or ``"step"``.

    Raises ValueError for arguments out of range.
    """

    def __init__(self, limits: int, delta: float, guarantee: str = "run") -> None:
        self.limits = validation.positive_integer("limits", limits)
        self.delta = validation.probability("delta", delta)
        validation.require(guarantee in ("run", "step"), "guarantee", guarantee, "'run' or 'step'")
        self.guarantee = guarantee

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """z(1 - delta_t / k), at least 0."""
        t = clock(step, model)
        delta = torch.full_like(t, self.delta)
        if self.guarantee == "run":
            delta = 6 * delta / (math.pi * t) ** 2
        return -torch.special.ndtri(delta / self.limits).clamp_max(0.0)
