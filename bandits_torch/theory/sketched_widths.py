"""Confidence width for a posterior seen through a dictionary."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.sketch.sketched_gp import SketchedGP
from bandits_torch.theory.parameters import Parameter, checked, checked_scale, clock, like, log, scale_of
from bandits_torch.theory.widths import Width

_FORMS = ("theory", "printed")


class BKBWidth(Width):
    """BKB: width_t = 2 (R/sqrt(lambda)) sqrt(alpha l_t d_t + ln(1/delta)) + (1 + 1/sqrt(1 - eps)) B.

    d_t = sum_s sigma~_t^2(x_s) over the observations, sigma~ with its 1/lambda (the model's
    ``effective_dimension``); l_t = 1 + ln(1 + kappa^2 t / lambda), kappa^2 = max k(x, x).

    Source: Calandriello et al. 2019, Theorem 2; equals their beta~_t / sqrt(lambda), since theirs multiplies
    sigma~ = sigma / sqrt(lambda). Correction: the print has l_t = ln(kappa^2 t), ``form="printed"``, which is 0 at
    t = kappa = 1 and ignores lambda, while its source, equation 6, has 1 + ln(|K| / lambda + 1) with
    |K| <= kappa^2 t.
    Valid for R-sub-Gaussian noise and every lambda > 0, at all steps at once with probability 1 - delta, where the
    model's variances are within a factor alpha of the exact ones (``LeverageSampling.theory``). Loose:
    ``RealisedInformationWidth`` is several times narrower, but proved for the exact posterior only.

    Args:
        rkhs_bound, noise_scale, delta: B (their F), R (their xi; None: the square root of the model's lambda), delta.
        form: ``"theory"`` (default) or ``"printed"``.
        stretch: C >= 1, for batch BKB, where means are frozen while variances fall by a factor of up to C: the
            width is multiplied by sqrt(C), since sigma_frozen^2 <= (1 + sum sigma~^2(x_s) / lambda) sigma_now^2.
        bound_is_guess: B is a first guess F_0 of an unknown norm, and the width that of the least F_0 2^k that the
            data do not refute: for which some w with ||w|| <= F_0 2^k lies in the theorem's confidence set,
            ||w - w~_t||_A~ <= beta~_t(F_0 2^k). The paper says of an unknown norm that "standard guess-and-double
            techniques can be applied" and no more; this is the reading here. The noise enters the set in the same way
            for every guess, so no delta is shared: with probability 1 - delta no guess at or above the norm is ever
            refuted, and the width stays below that for twice the norm (or for F_0). Until a guess below the norm is
            refuted its width is too small, and an arm whose value only a longer f explains may go unplayed: the
            theorem's regret holds from the first guess at or above the norm on. ``a_gp_ucb`` raises its bound
            with time whatever the data say.

    Cost: O(m^3). Raises ValueError unless B >= 0 (> 0 for a guess), R > 0 and 0 < delta < 1, and when called with a
    model that is not a ``SketchedGP``.
    """

    def __init__(
        self,
        rkhs_bound: Parameter,
        noise_scale: Parameter | None,
        delta: Parameter,
        form: str = "theory",
        stretch: float = 1.0,
        bound_is_guess: bool = False,
    ) -> None:
        validation.instance("bound_is_guess", bound_is_guess, bool, "True or False")
        self.bound_is_guess = bound_is_guess
        check = validation.positive if bound_is_guess else validation.non_negative
        self.rkhs_bound = checked(check, "rkhs_bound", rkhs_bound)
        self.noise_scale = checked_scale(noise_scale)
        self.delta = checked(validation.probability, "delta", delta)
        validation.require(form in _FORMS, "form", form, f"one of {_FORMS}")
        self.form, self.stretch = form, validation.at_least_one("stretch", stretch)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """2 (R/sqrt(lambda)) sqrt(alpha l_t d_t + ln(1/delta)) + (1 + 1/sqrt(1 - eps)) B, times sqrt(C); for a guess,
        B is the least F_0 2^k that is not refuted."""
        if not isinstance(model, SketchedGP):
            raise ValueError(f"model must be a SketchedGP for BKB's width, got {type(model).__name__}")
        noise = model.noise_variance
        B, delta = like(noise, self.rkhs_bound), like(noise, self.delta)
        R = scale_of(model.noise_variance, self.noise_scale)
        t, kappa2 = clock(step, model), model.largest_prior_variance
        growth = (
            torch.log(kappa2 * t).clamp_min(0)
            if self.form == "printed"
            else 1 + torch.log1p(kappa2 * t / noise)
        )
        noise_part = torch.sqrt(model.sampling.alpha * growth * model.effective_dimension - log(delta))
        bias = 1 + 1 / math.sqrt(1 - model.sampling.epsilon)
        for_noise = math.sqrt(self.stretch) * 2 * R / torch.sqrt(noise) * noise_part
        per_norm = math.sqrt(self.stretch) * bias
        if self.bound_is_guess:
            B = _least_not_refuted(B, model, lambda norm: for_noise + per_norm * norm)
        return for_noise + per_norm * B


def _least_not_refuted(first: Tensor | float, model: SketchedGP, width: Callable[[Tensor], Tensor]) -> Tensor:
    """The least ``first`` 2^k of which a ball of that radius meets the confidence set, ``batch_shape``."""
    guess = model.noise_variance.new_ones(model.batch_shape) * first
    while bool((refuted := model.distance_to_ball(guess) > width(guess)).any()):
        guess = torch.where(refuted, 2 * guess, guess)
    return guess
