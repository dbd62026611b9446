"""Confidence widths for a reward function of bounded RKHS norm, and a wrapper for drift.

A width multiplies the posterior standard deviation sigma: with probability at least 1 - delta,

    |f(x) - mu_{t-1}(x)| <= width_t sigma_{t-1}(x)    for every arm x and every step t.

Papers write it beta_t (Chowdhury & Gopalan, Zhou & Shroff), sqrt(beta_t) (Srinivas et al.) or v_t (GP-TS);
BoTorch's ``beta`` is its square. Widths for windows and restarts are in ``forgetting_widths.py``, for functions drawn
from the prior in ``prior_widths.py``.

| symbol | argument | meaning |
|---|---|---|
| B | ``rkhs_bound`` | bound on the RKHS norm of f minus the prior mean, >= 0 |
| R | ``noise_scale`` | sub-Gaussian scale of the noise (its standard deviation, if Gaussian), > 0; None: sqrt(lambda) |
| delta | ``delta`` | failure probability, in (0, 1) |
| lambda | ``model.noise_variance`` | regulariser of the model |
| gamma_n | ``gain`` | a provider from ``information_gain.py`` |

Each may be a number or a tensor that broadcasts to the model's batch shape, for example one B per candidate prior. A
value out of range raises ValueError at construction, an integer step below 1 in the call. A call costs O(1) and does
not synchronise with the device, if the tensors are on the model's device.

By default, ``Width.bind`` reads R from the model and a window or an interval from the forgetting rule. A value that
contradicts the rule is a ValueError when the policy is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.information_gain import GainProvider, RealisedGain
from bandits_torch.theory.parameters import (
    Parameter,
    check_step,
    checked,
    checked_scale,
    clock,
    like,
    log,
    scale_of,
)

_FORMS = ("theory", "printed")


class Width(Described, ABC):
    """A rule for the number that multiplies sigma; a rule of one's own says ``at``."""

    def __call__(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """``at`` a step that is looked at: ValueError for an integer below 1, and for a width that is not ``bind``-ed
        but must be."""
        check_step(step)
        self.check_bound()
        return self.at(step, model)

    @abstractmethod
    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """The width before the choice at ``step``.

        Args:
            step: 1, 2, ... since the last restart, an integer or an integer tensor that broadcasts to
                ``model.batch_shape``; n = step - 1 observations have been made since.
            model: the model whose sigma the width multiplies.

        Returns:
            A tensor that broadcasts to ``model.batch_shape``, of the dtype and device of its noise variance.
        """

    def root_of_gain(self, step: Tensor, model: OnlineModel) -> tuple[Any, Any, Any] | None:
        """(A, P, Q) with ``at`` = A + sqrt(P g + Q) at these steps, (k, 1), g the model's realised information gain;
        None for a width that reads more of the model, or something else. For blocks of steps that are compiled."""
        return None

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        """The width for a policy with this forgetting rule: itself, or a copy with values read from the rule.

        Raises ValueError if a value of the width contradicts the rule, or if neither has one.
        """
        return self

    def check_bound(self) -> None:
        """Raise ValueError for a width that must read something from a policy's rule and is in no policy."""


class ConstantWidth(Width):
    """width = c, a number >= 0: for tuning. No theorem holds it.

    Raises ValueError unless c >= 0.
    """

    def __init__(self, value: Parameter) -> None:
        self.value = checked(validation.non_negative, "value", value)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """c, whatever the step."""
        return model.noise_variance.new_ones(()) * like(model.noise_variance, self.value)

    def root_of_gain(self, step: Tensor, model: OnlineModel) -> tuple[Any, Any, Any]:
        """c alone."""
        return self.at(step, model), 0.0, 0.0


class SrinivasRKHSWidth(Width):
    """GP-UCB for a function of bounded norm: width_t = sqrt(2 B^2 + 300 gamma_{t-1} ln^3(t/delta)).

    Source: Srinivas et al. 2010, Theorem 3, as quoted by Chowdhury & Gopalan 2017, section 3.1; equals their
    beta~_t, and sqrt(beta_t) of Srinivas. Valid for noise bounded by R almost surely in a model with
    lambda = R^2, growing data, and the maximum gain gamma_n. Very loose:
    included for comparison.

    Args:
        rkhs_bound, delta, gain: B, delta and the provider of gamma_n.

    Raises ValueError unless B >= 0 and 0 < delta < 1.
    """

    def __init__(self, rkhs_bound: Parameter, delta: Parameter, gain: GainProvider) -> None:
        self.rkhs_bound = checked(validation.non_negative, "rkhs_bound", rkhs_bound)
        self.delta = checked(validation.probability, "delta", delta)
        validation.function("gain", gain, "a provider of information gain, such as RealisedGain()")
        self.gain = gain

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """sqrt(2 B^2 + 300 gamma_{t-1} ln^3(t/delta))."""
        t = clock(step, model)
        B, delta = (like(model.noise_variance, p) for p in (self.rkhs_bound, self.delta))
        return torch.sqrt(2 * B**2 + 300 * self.gain(step - 1, model) * torch.log(t / delta) ** 3)


class SelfNormalisedWidth(Width):
    """Base of the widths that follow from Chowdhury & Gopalan's Theorem 1.

    ``form="theory"``: B + (R / sqrt(lambda)) sqrt(2 gamma + 2 ln(m/delta)), for every lambda > 0 (Zhou &
    Shroff 2021, equation 8; at lambda = 1 + 2/T it implies Chowdhury & Gopalan's Theorem 2).
    ``form="printed"``: B + R sqrt(2 (gamma + 1 + ln(m/delta))), proved for lambda = 1 + 2/T; for
    lambda >= 1 it is the wider one and thus valid too. For lambda < 1 it lacks the factor 1/sqrt(lambda) and does not
    cover, although the experiments of Chowdhury & Gopalan use it with lambda = R^2.
    m (``_events``) is the number of events in the union bound, of probability delta/m each.
    """

    _events = 1
    _most: int | None = None  # observations there can be

    def __init__(
        self,
        rkhs_bound: Parameter,
        noise_scale: Parameter | None,
        delta: Parameter,
        gain: GainProvider,
        form: str = "theory",
    ) -> None:
        self.rkhs_bound = checked(validation.non_negative, "rkhs_bound", rkhs_bound)
        self.noise_scale = checked_scale(noise_scale)
        self.delta = checked(validation.probability, "delta", delta)
        validation.require(form in _FORMS, "form", form, f"one of {_FORMS}")
        validation.function("gain", gain, "a provider of information gain, such as RealisedGain()")
        self.gain, self.form = gain, form

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """B + (R / sqrt(lambda)) sqrt(2 gamma + 2 ln(m/delta)), or the printed form."""
        noise, w = model.noise_variance, self._most
        B, delta = like(noise, self.rkhs_bound), like(noise, self.delta)
        points: int | Tensor = 0  # of a provider that asks the model, and so launches nothing for them
        if getattr(self.gain, "counts_points", True):
            points = (
                step - 1 if w is None else step.clamp(max=w) if isinstance(step, Tensor) else min(step, w)
            )
        gamma, log_term = self.gain(points, model), log(self._events / delta)
        if self.form == "printed":
            return B + scale_of(noise, self.noise_scale) * torch.sqrt(2 * (gamma + 1 + log_term))
        deviation = torch.sqrt(2 * gamma + 2 * log_term)
        if self.noise_scale is None and deviation.shape == noise.shape:  # R = sqrt(lambda)
            return B + deviation
        return B + scale_of(noise, self.noise_scale) / torch.sqrt(noise) * deviation

    def root_of_gain(self, step: Tensor, model: OnlineModel) -> tuple[Any, Any, Any] | None:
        """Both forms, where the gain is the realised one."""
        if type(self.gain) is not RealisedGain:
            return None
        noise = model.noise_variance
        B, log_term = like(noise, self.rkhs_bound), log(self._events / like(noise, self.delta))
        printed = self.form == "printed"
        R = scale_of(noise, self.noise_scale)
        P = 2 * R**2 / (1.0 if printed else noise)
        return B, P, P * (log_term + printed)


class IGPWidth(SelfNormalisedWidth):
    """IGP-UCB: width_t = B + (R / sqrt(lambda)) sqrt(2 gamma_{t-1} + 2 ln(1/delta)).

    Source: Chowdhury & Gopalan 2017, Theorem 2 and Algorithm 1; equals their beta_t. Algorithm 1 prints
    B + R sqrt(2 (gamma_{t-1} + 1 + ln(1/delta))), which is ``form="printed"`` and needs lambda >= 1.
    Valid for conditionally R-sub-Gaussian noise and growing data, at all steps at once; gamma_n may be the
    realised gain.

    Args:
        rkhs_bound, noise_scale, delta, gain: B, R, delta and the provider of gamma_n.
        form: ``"theory"`` (default) or ``"printed"``.
    """


class GPTSWidth(SelfNormalisedWidth):
    """GP-TS: v_t = B + (R / sqrt(lambda)) sqrt(2 gamma_{t-1} + 2 ln(2/delta)), scale of the sampled function.

    Source: Chowdhury & Gopalan 2017, Algorithm 2 (f_t ~ GP(mu_{t-1}, v_t^2 k_{t-1})) and Lemma 6; equals
    their v_t. Printed: B + R sqrt(2 (gamma_{t-1} + 1 + ln(2/delta))), ``form="printed"``, for lambda >= 1.
    As a confidence band it fails with probability at most delta/2; the other half covers the sampling. Validity and
    arguments: as ``IGPWidth``.
    """

    _events = 2


class RealisedInformationWidth(Width):
    """width_t = sqrt(B^2 + (R^2 / lambda) (log det(I + K_{t-1}/lambda) + 2 ln(m/delta))).

    For your own index policies; no recipe uses it. No paper has a symbol for it. Source: the likelihood-ratio
    supermartingale, mixed over GP(0, (R^2/lambda) k), and Ville's inequality (Flynn & Reeb 2024 prove bounds of this
    kind): with V = Phi^T Phi + lambda I, ||f - mu||_V^2 <= lambda B^2 + R^2 (log det(I + K/lambda) + 2 ln(1/delta)),
    and |f(x) - mu(x)| <= sigma(x) ||f - mu||_V / sqrt(lambda). Never above ``IGPWidth`` in its theory form with the
    realised gain, as sqrt(a^2 + b^2) <= a + b.

    Valid for R-sub-Gaussian noise and every lambda > 0, simultaneously at all steps while data only grow (m = 1). With
    windows, or a function that changes independently of the noise, use a union bound over steps: m = T, the
    ``horizon``. Over M restart intervals, pass delta/M.

    Args:
        rkhs_bound, noise_scale, delta: B, R, delta.
        horizon: T >= 1, for windows and changing functions; None for growing data and a fixed function.

    Raises ValueError unless B >= 0, R > 0, 0 < delta < 1 and ``horizon`` (if given) is an integer >= 1.
    """

    def __init__(
        self,
        rkhs_bound: Parameter,
        noise_scale: Parameter | None,
        delta: Parameter,
        horizon: int | None = None,
    ) -> None:
        self.rkhs_bound = checked(validation.non_negative, "rkhs_bound", rkhs_bound)
        self.noise_scale = checked_scale(noise_scale)
        self.delta = checked(validation.probability, "delta", delta)
        self._events = 1 if horizon is None else validation.positive_integer("horizon", horizon)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """sqrt(B^2 + (R^2/lambda) (2 x realised gain + 2 ln(m/delta)))."""
        noise = model.noise_variance
        B, delta = like(noise, self.rkhs_bound), like(noise, self.delta)
        R = scale_of(noise, self.noise_scale)
        log_det = 2 * model.information_gain
        return torch.sqrt(B**2 + R**2 / noise * (log_det + 2 * log(self._events / delta)))


class DriftAwareWidth(Width):
    """base + V sqrt(n / lambda): n observations are held, and f moved by at most V since the oldest.

    Source: the bias of the posterior mean is sum_s a_s (f_s(x_s) - f_t(x_s)) with a_s = C(x, x_s)/lambda;
    lambda sum_s a_s^2 <= sigma^2(x) and Cauchy-Schwarz give |bias(x)| <= V sqrt(n/lambda) sigma(x).
    Valid if V bounds max_x |f_s(x) - f_t(x)| between the current step t and every step s of an observation held, and if
    ``base`` is valid for every f_t: its B bounds the norm of every f_t, and a ``RealisedInformationWidth`` has a
    ``horizon``.

    Args:
        base: the width for a function without drift.
        drift: V >= 0, in units of reward.

    Raises ValueError for a negative drift.
    """

    def __init__(self, base: Width, drift: Parameter) -> None:
        validation.instance("base", base, Width, "a Width")
        self.base = base
        self.drift = checked(validation.non_negative, "drift", drift)

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        """Around the base as the policy uses it."""
        base = self.base.bind(model, forgetting)
        return self if base is self.base else DriftAwareWidth(base, self.drift)

    def check_bound(self) -> None:
        """The base's."""
        self.base.check_bound()

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """base + V sqrt(n / lambda), n = ``model.num_observations``."""
        noise = model.noise_variance
        n = model.num_observations.to(noise)
        return self.base.at(step, model) + like(noise, self.drift) * torch.sqrt(n / noise)
