"""What an index policy forgets, and when. Each rule is small: the model knows how to forget, the rule knows when."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.state import HasState

Prediction = Callable[[], tuple[Tensor, Tensor]]


class ForgettingRule(Described, HasState):
    """Base class of forgetting rules; keeps all observations.

    At each step the policy calls ``refuted`` before it learns, then ``observed`` and ``after``.
    ``clock`` counts the observations since the last restart, an integer while all replicates restart together and a
    tensor (S,) once they do not.
    """

    def check(self, model: OnlineModel) -> None:
        """Raise ValueError if the rule cannot work with this model."""

    _zeros: Tensor  # of the model's batch shape, dtype and device

    def begin(self, model: OnlineModel) -> Self:
        """The rule as one policy uses it: a copy, after ``check``, that has seen nothing."""
        self.check(model)
        rule = copy.copy(self)
        rule._zeros = model.noise_variance.new_zeros(model.batch_shape)
        rule._begin()
        return rule

    def refuted(
        self, reward: Tensor, predict: Prediction, clock: int | Tensor, model: OnlineModel
    ) -> Tensor | None:
        """Before learning ``reward`` (S,): which replicates must restart first, (S,) booleans or None.

        ``predict()`` gives the posterior mean and standard deviation, (S,) each, at the arms just pulled.
        """
        return None

    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """The model has learned ``reward`` (S,) at ``point()``, its inputs ``batch_shape x 1 x D``."""

    def after(self, model: OnlineModel, clock: int | Tensor) -> Tensor | bool:
        """After learning: forget in place, and say which replicates restart now (booleans, or one for all)."""
        return False

    def refitted(self, model: OnlineModel, where: Tensor) -> None:
        """The model's hyperparameters have changed in the replicates with ``where`` (S,) True."""

    def trace(self) -> dict[str, Tensor | float]:
        """What of a step is worth keeping, (S,) each."""
        return {}


class KeepEverything(ForgettingRule):
    """Never forgets."""


class SlidingWindow(ForgettingRule):
    """Holds the last ``window`` observations exactly (SW-GP-UCB, Zhou & Shroff 2021, Algorithm 2).

    The paper's window, 1 v (t - w) to t, would hold w + 1.

    Raises ValueError unless ``window`` is an integer >= 1, and for a model that cannot forget or already holds
    observations.
    """

    def __init__(self, window: int) -> None:
        self.window = validation.positive_integer("window", window)

    def check(self, model: OnlineModel) -> None:
        """The model must be able to forget, and begin empty: the window fills by one observation a step."""
        if not model.can_forget:
            raise ValueError(
                "SlidingWindow needs a model that can forget; this one cannot "
                "(an ArmGP that drifts can in form='factor' or form='auto')"
            )
        held = int(model.num_observations.max())
        validation.require(held == 0, "model.num_observations", held, "0 where a SlidingWindow begins")

    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        """Drop the oldest observation of the replicates that hold more than the window."""
        if isinstance(clock, Tensor) or clock > self.window:
            model.slide(self.window)
        return False


class PeriodicRestart(ForgettingRule):
    """Forgets all observations after every ``interval`` of them and resets the width's step count (R-GP-UCB, Zhou &
    Shroff 2021, Algorithm 1). Restarts before steps t with (t - 1) mod H = 0; the paper's t mod H = 1 never holds for H
    = 1.

    Raises ValueError unless ``interval`` is an integer >= 1.
    """

    def __init__(self, interval: int) -> None:
        self.interval = validation.positive_integer("interval", interval)

    def after(self, model: OnlineModel, clock: int | Tensor) -> Tensor | bool:
        """Restart when the interval is over."""
        return clock % self.interval == 0


class EventTriggeredRestart(ForgettingRule):
    """Forgets all observations when a reward is too far from its prediction (ET-GP-UCB, Brunzema et al. 2022).

    Restart when |y_t - mu(x_t)| > sqrt(rho_t) sigma(x_t) + w_t with rho_t = 2 ln(2 pi_t / delta),
    w_t^2 = 2 noise_scale^2 ln(2 pi_t / delta) and pi_t = pi^2 t^2 / 6, t counting from the last restart.
    The observation that triggers the restart is the first of the new data. If the function is a draw of the GP and does
    not change, the probability of any false alarm is at most 2 delta.

    Args:
        delta: failure probability.
        noise_scale: standard deviation of the noise; by default the square root of the model's noise variance.

    Whether any replicate restarts is looked at in every step, so a GPU waits once a step. A reward of the past of an
    ``ArmGP`` that drifts cannot be predicted: ValueError.

    Raises ValueError unless 0 < ``delta`` < 1 and ``noise_scale`` > 0.
    """

    def __init__(self, delta: float = 0.1, noise_scale: float | None = None) -> None:
        self.delta = validation.probability("delta", delta)
        self.noise_scale = None if noise_scale is None else validation.positive("noise_scale", noise_scale)

    def refuted(
        self, reward: Tensor, predict: Prediction, clock: int | Tensor, model: OnlineModel
    ) -> Tensor | None:
        """Test the reward against its prediction."""
        mean, deviation = predict()
        t = torch.as_tensor(clock, dtype=mean.dtype, device=mean.device) + 1
        log_term = torch.log(math.pi**2 * t**2 / (3 * self.delta))
        noise = model.noise_variance if self.noise_scale is None else self.noise_scale**2
        threshold = torch.sqrt(2 * log_term) * (deviation + noise**0.5)
        return (reward - mean).abs() > threshold
