"""Widths for functions that change: restarts, windows, batches in random order, and a term for the drift.

A forgetting rule keeps only part of the data, which breaks the martingale behind the widths of ``widths.py``;
each class says which union bound repairs it. Interval and window are read from the policy's forgetting rule.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.widths import (
    GainProvider,
    NormWidth,
    Parameter,
    RealisedGain,
    SelfNormalisedWidth,
    Width,
    WidthAround,
    checked,
    like,
    log,
)


class RestartWidth(SelfNormalisedWidth):
    """R-GP-UCB: width_t = B + (R / sqrt(lambda)) sqrt(2 gamma_{t-t0} + 2 ln(M/delta)), restarted at t0.

    Source: Zhou & Shroff 2021, Algorithm 1 and Lemma 1; equals their beta_t. ``step`` counts from the
    restart, so n = t - t0. Correction: the paper has ln(1/delta), and its Lemma 1 covers one interval;
    ln(M/delta) is the union bound over the M = ceil(T/H) intervals of a run.
    Valid while f does not change inside an interval; wrap in ``DriftAwareWidth`` otherwise.

    Args:
        num_intervals: M, the number of intervals that the guarantee covers, >= 1; 1 gives the paper's width. None:
            ceil(T/H), with H the interval of the policy's ``PeriodicRestart``.
        rkhs_bound, noise_scale, delta, gain, form: as ``IGPWidth``.
        horizon: T, for ``num_intervals=None``.

    Raises ValueError unless ``num_intervals`` or ``horizon`` is an integer >= 1, B >= 0, R > 0 and 0 < delta < 1. With
    ``horizon``, ``bind`` raises it for a rule that has no interval, or one that does not give M intervals.
    """

    def __init__(
        self,
        num_intervals: int | None = None,
        rkhs_bound: Parameter = 1.0,
        noise_scale: Parameter | None = None,
        delta: Parameter = 0.1,
        gain: GainProvider | None = None,
        form: str = "theory",
        *,
        horizon: int | None = None,
    ) -> None:
        super().__init__(rkhs_bound, noise_scale, delta, RealisedGain() if gain is None else gain, form)
        if num_intervals is not None or horizon is None:
            self._events = validation.positive_integer("num_intervals", num_intervals)
        self.num_intervals = num_intervals
        self.horizon = None if horizon is None else validation.positive_integer("horizon", horizon)

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        """A copy with M = ceil(T/H), H the interval of the rule; the width itself if it has no ``horizon``."""
        if self.horizon is None:
            return self
        bound, interval = copy.copy(self), getattr(forgetting, "interval", None)
        count = None if interval is None else math.ceil(self.horizon / interval)
        count = _value_of_rule("num_intervals", self.num_intervals, count, "interval")
        bound._events = bound.num_intervals = count
        return bound

    def check_bound(self) -> None:
        given = "given, or the width bound to a rule with a interval"
        validation.require(self.num_intervals is not None, "num_intervals", None, given)


class SlidingWindowWidth(SelfNormalisedWidth):
    """SW-GP-UCB: width_t = B + (R / sqrt(lambda)) sqrt(2 gamma_{min(t,w)} + 2 ln(T/delta)).

    Source: Zhou & Shroff 2021, Lemma 2; equals the beta_t there. Correction: their Algorithm 2 prints
    B + R sqrt(2 (gamma_{min(t,w)} + 1 + ln(1/delta))). Removing observations breaks the martingale, so the
    guarantee is a union bound over T steps (Lemma 2): both forms use ln(T/delta).
    Valid at steps up to T, for f unchanged inside each window; wrap in ``DriftAwareWidth`` otherwise.

    Args:
        window: w, the largest number of observations held, >= 1; None: the window of the policy's rule.
        horizon: T, the number of steps that the guarantee covers, >= 1.
        rkhs_bound, noise_scale, delta, gain, form: as ``IGPWidth``.

    Raises ValueError unless ``window`` (if given) and ``horizon`` are integers >= 1, B >= 0, R > 0 and 0 < delta < 1.
    ``bind`` raises it for a rule that has another window, or none.
    """

    def __init__(
        self,
        window: int | None = None,
        horizon: int | None = None,
        rkhs_bound: Parameter = 1.0,
        noise_scale: Parameter | None = None,
        delta: Parameter = 0.1,
        gain: GainProvider | None = None,
        form: str = "theory",
    ) -> None:
        super().__init__(rkhs_bound, noise_scale, delta, RealisedGain() if gain is None else gain, form)
        self.window = self._most = None if window is None else validation.positive_integer("window", window)
        self._events = validation.positive_integer("horizon", horizon)

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        bound = copy.copy(self)
        window = _value_of_rule("window", self.window, getattr(forgetting, "window", None), "window")
        bound.window = bound._most = window
        return bound

    def check_bound(self) -> None:
        given = "given, or the width bound to a rule with a window"
        validation.require(self.window is not None, "window", None, given)


class PermutationWidth(NormWidth):
    """width = B + sqrt((R^2 + V^2)/lambda) sqrt(2 ln(2 N M/delta)), for the average function of a batch.

    Theorem. Let n arms be fixed, pulled in a uniformly random order, and f_t have averages f over the batch with
    ||f|| <= B and |f_s(x) - f_t(x)| <= V for all arms and all s, t in the batch. With the posterior of the batch alone,
    |f(x) - mu(x)| <= width sigma(x) for N arms and M batches at once, with probability at least 1 - delta.

    Proof. mu(x) = sum_j a_j y_j. The error due to f is at most B sigma(x). The noise is sub-Gaussian with
    R^2 |a|^2. The rest, sum_j a_j (f_{tau(j)}(x_j) - f(x_j)), tau the random order, has mean 0. Reveal tau(j) in
    descending order of |a_j|: two values of one tau(j) are coupled by a swap with a later one and change the sum by at
    most 2 V |a_j|, so by Azuma and Hoeffding it is sub-Gaussian with V^2 |a|^2. Both are independent, and
    lambda |a|^2 <= sigma^2(x). Without the random order drift costs V sqrt(n/lambda) (``DriftAwareWidth``).

    Source: Iwazaki & Takeno 2024 (arXiv 2410.16052) for the idea and the existence of such a bound; the constants are
    derived here. It contains no information gain, because the arms of a batch do not depend on its rewards.

    Args:
        num_arms, batches: N and M >= 1.
        rkhs_bound, noise_scale, delta: B, R (None: sqrt(lambda)) and delta.
        drift: V >= 0; 2 B max_x sqrt(k(x, x)) is always valid.

    Raises ValueError unless N and M are integers >= 1, B >= 0, R > 0, V >= 0 and 0 < delta < 1.
    """

    def __init__(
        self,
        num_arms: int,
        batches: int,
        rkhs_bound: Parameter = 1.0,
        noise_scale: Parameter | None = None,
        delta: Parameter = 0.1,
        drift: Parameter = 0.0,
    ) -> None:
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self.batches = validation.positive_integer("batches", batches)
        super().__init__(rkhs_bound, noise_scale, delta)
        self.drift = checked(validation.non_negative, "drift", drift)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        noise = model.noise_variance
        B, R, delta = self.constants(model)
        V = like(noise, self.drift)
        events = torch.ones_like(noise) * log(2 * self.num_arms * self.batches / delta)
        return B + torch.sqrt((R**2 + V**2) / noise * 2 * events)


class DriftAwareWidth(WidthAround):
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

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        noise = model.noise_variance
        n = model.num_observations.to(noise)
        return self.base.at(step, model) + like(noise, self.drift) * torch.sqrt(n / noise)


def _value_of_rule(name: str, given: int | None, of_rule: int | None, what: str) -> int:
    """The value of the forgetting rule. Raises ValueError if the rule has none, or if the width has another."""
    if of_rule is None:
        raise ValueError(f"{name} of the width must come from a forgetting rule with a {what}")
    fits = given is None or given == of_rule
    validation.require(fits, f"{name} of the width", given, f"{of_rule}, as in the forgetting rule")
    return of_rule
