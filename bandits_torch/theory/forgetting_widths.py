"""Confidence widths for models that forget: periodic restart and sliding window.

Symbols and validity are those of ``widths.py``. Interval and window are read from the forgetting rule of the policy.
"""

from __future__ import annotations

import copy
import math
from typing import Any

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.information_gain import GainProvider, RealisedGain
from bandits_torch.theory.parameters import Parameter
from bandits_torch.theory.widths import SelfNormalisedWidth, Width


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

    Raises ValueError unless ``num_intervals`` is an integer >= 1 or ``horizon`` is, B >= 0, R > 0 and 0 < delta < 1;
    and with ``horizon`` in a policy that has no interval, or another than M intervals.
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
        """With M = ceil(T/H), H the interval of the rule."""
        if self.horizon is None:
            return self
        interval = getattr(forgetting, "interval", None)
        count = None if interval is None else math.ceil(self.horizon / interval)
        bound = copy.copy(self)
        bound._events = bound.num_intervals = _agreed("num_intervals", self.num_intervals, count, "interval")
        return bound

    def check_bound(self) -> None:
        """Raise ValueError unless M is known."""
        _check_told("num_intervals", self.num_intervals, "interval")


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

    Raises ValueError unless ``window`` (if given) and ``horizon`` are integers >= 1, B >= 0, R > 0 and 0 < delta < 1;
    and in a policy whose rule has another window, or none.
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
        """With the window of the rule."""
        bound = copy.copy(self)
        window = _agreed("window", self.window, getattr(forgetting, "window", None), "window")
        bound.window = bound._most = window
        return bound

    def check_bound(self) -> None:
        """Raise ValueError unless w is known."""
        _check_told("window", self.window, "window")


def _agreed(name: str, told: int | None, read: int | None, what: str) -> int:
    """What the rule says, unless the width was told otherwise."""
    if read is None:
        raise ValueError(
            f"{name} of the width must come from a forgetting rule with a {what}, got a rule without"
        )
    validation.require(
        told is None or told == read, f"{name} of the width", told, f"{read}, as the rule has it"
    )
    return read


def _check_told(name: str, value: int | None, what: str) -> None:
    if value is None:
        raise ValueError(
            f"{name} must be given, or the width bound to a policy whose rule has a {what}, got None"
        )
