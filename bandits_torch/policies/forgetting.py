"""Forgetting rules: they decide when an index policy forgets, and what. The model knows how."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.models.window_densities import WindowDensities
from bandits_torch.state import HasState

Prediction = Callable[[], tuple[Tensor, Tensor]]

CANDIDATES = (8, 16, 32, 64, 128, 256)  # windows of ``LikelihoodWindow``


class ForgettingRule(Described, HasState):
    """Base class of forgetting rules; keeps all observations.

    At each step the policy calls ``refuted`` before it learns, then ``observed`` and ``after``.
    ``clock`` counts the observations since the last restart; for ``refuted`` without the new one, for ``after`` with
    it. It is an integer while all replicates restart together, and a tensor (S,) once they do not.
    """

    tests_changes: ClassVar[bool] = False  # whether ``refuted`` may find that rewards have changed

    def check(self, model: OnlineModel) -> None:
        """Raise ValueError if the rule cannot work with this model."""

    def _check_empty(self, model: OnlineModel) -> None:
        """Raise ValueError for a model that holds observations: the rule must see all of them arrive."""
        held = int(model.num_observations.max())
        expected = f"0 where {type(self).__name__} begins"
        validation.require(held == 0, "model.num_observations", held, expected)

    _zeros: Tensor  # of the model's batch shape, dtype and device

    def begin(self, model: OnlineModel) -> Self:
        """Check the model, and return a copy of the rule for one policy, in its initial state."""
        self.check(model)
        rule = copy.copy(self)
        rule._zeros = model.noise_variance.new_zeros(model.batch_shape)
        rule._begin()
        return rule

    def refuted(
        self, reward: Tensor, predict: Prediction, clock: int | Tensor, model: OnlineModel
    ) -> Tensor | None:
        """Before ``reward`` (S,) is learned: which replicates must restart first, (S,) booleans, or None.

        ``predict()`` gives the posterior mean and standard deviation, (S,) each, at the arms just pulled.
        """
        return None

    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """Called after the model has learned ``reward`` (S,) at the inputs ``point()``, ``batch_shape x 1 x D``."""

    def after(self, model: OnlineModel, clock: int | Tensor) -> Tensor | bool:
        """After ``observed``: forget in place; return which replicates restart now, (S,) booleans or one for all."""
        return False

    def refitted(self, model: OnlineModel, where: Tensor) -> None:
        """Called after the hyperparameters changed in the replicates with ``where`` (S,) True."""

    def trace(self) -> dict[str, Tensor | float]:
        """What to record at each step, (S,) each."""
        return {}


class KeepEverything(ForgettingRule):
    """Never forgets."""


class SlidingWindow(ForgettingRule):
    """Holds the last ``window`` observations exactly (SW-GP-UCB, Zhou & Shroff 2021, Algorithm 2).

    The paper's window, from max(1, t - w) to t, would hold w + 1.

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
        self._check_empty(model)

    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        """Drop the oldest observation of the replicates that hold more than the window."""
        if isinstance(clock, Tensor) or clock > self.window:
            model.slide(self.window)
        return False


class PeriodicRestart(ForgettingRule):
    """Forgets all observations after every ``interval`` of them, and resets the width's step count (R-GP-UCB, Zhou &
    Shroff 2021, Algorithm 1).

    With H = ``interval``, it restarts before steps t with (t - 1) mod H = 0. The paper's condition, t mod H = 1, never
    holds for H = 1.

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

    Every step checks on the host whether a replicate restarts, so a GPU synchronises once a step. A drifting ``ArmGP``
    cannot predict at a time before its latest observation, so a late reward is a ValueError.

    Raises ValueError unless 0 < ``delta`` < 1 and ``noise_scale`` > 0.
    """

    tests_changes = True

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


class LikelihoodWindow(SlidingWindow):
    """Holds the last w observations, and chooses the w that predicts the latest rewards best.

    After every ``every`` observations each replicate scores the candidates w by the one-step-ahead (prequential)
    log-likelihood of its last h = ``memory`` rewards,

        score_t(w) = sum_{s = t-h+1}^{t} log N(y_s; mu_{s-1}^{(w)}(x_s), sigma_{s-1}^{(w)}(x_s)^2 + lambda),

    where the posterior of s - 1 uses the w observations before s. It takes the longest w whose score is within
    ``margin`` nats of the best: only noise separates such windows, and the longest holds the most information. Source:
    Dawid 1984, whose prequential score chooses among models; here it chooses among windows of one model.

    The window can shrink or grow in a single step: the rule keeps the last M observations, M the largest candidate, and
    the model learns them again when the window grows. To keep all observations of a run of T steps, include the
    candidate T. Observations before the last M are lost, so neither cost nor memory grows with the horizon.

    Args:
        candidates: lengths w, distinct integers >= 1.
        every: observations between choices.
        memory: h.
        margin: nats, >= 0.

    Cost: O(M^3) per observation and replicate for the scores of all candidates (``WindowDensities``), in addition to
    the model's steps; growing to w costs w steps of the model (under drift of an ``ArmGP``, of all observations).
    Memory: O(M d) per replicate. Synchronises with the device once per step.

    A refit of hyperparameters (``LearnedHyperparameters``) rescores the h rewards in one pass of O(h M^3). A reset also
    clears the record. A policy uses a copy of the rule, so one rule may serve several policies.

    Raises ValueError for other candidates, for ``every`` or ``memory`` that is not an integer >= 1, for a negative
    ``margin``, and for a model that is not an ``ArmGP`` or ``OnlineGP``, cannot forget, or holds observations.
    """

    def __init__(
        self,
        candidates: Sequence[int] = CANDIDATES,
        *,
        every: int = 10,
        memory: int = 30,
        margin: float = 2.0,
    ) -> None:
        several = isinstance(candidates, Sequence) and not isinstance(candidates, str) and len(candidates) > 0
        expected = "distinct integers >= 1, at least one"
        validation.require(several, "candidates", candidates, expected)
        for candidate in candidates:
            validation.positive_integer("candidates", candidate)
        validation.require(len(set(candidates)) == len(candidates), "candidates", candidates, expected)
        self.candidates = tuple(sorted(candidates, reverse=True))  # so that ties go to the longest
        super().__init__(self.candidates[0])
        self.every = validation.positive_integer("every", every)
        self.memory = validation.positive_integer("memory", memory)
        self.margin = validation.non_negative("margin", margin)

    def check(self, model: OnlineModel) -> None:
        """As for ``SlidingWindow``; the model must also be one that ``WindowDensities`` can score."""
        validation.instance("model", model, (ArmGP, OnlineGP), "an ArmGP or an OnlineGP")
        super().check(model)

    _parts = ("_densities",)
    _densities: WindowDensities
    _choice: Tensor  # of candidates, batch
    _since: Tensor  # observations since a choice was made, batch

    def begin(self, model: OnlineModel) -> Self:
        """See ``ForgettingRule``."""
        rule = super().begin(model)
        rule._densities = WindowDensities(model, self.candidates, self.memory)
        return rule

    def _fresh(self) -> dict[str, Any]:
        first = torch.zeros_like(self._zeros, dtype=torch.long)
        return {"_choice": first, "_since": first.clone()}

    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """Score the reward under every candidate, and choose anew every ``every`` observations."""
        self._densities.observe(model, point(), reward.reshape(model.batch_shape))
        self._since += 1
        due = self._since >= self.every
        if not bool(due.any()):
            return
        self._since.masked_fill_(due, 0)
        scores = self.scores
        good = scores >= scores.amax(-1, keepdim=True) - self.margin
        self._choice = torch.where(due, good.to(torch.uint8).argmax(-1), self._choice)
        self._grow(model, due)

    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        """Drop the oldest observations of the replicates that hold more than their window."""
        while bool((over := model.num_observations > self.length).any()):
            model.forget(1, where=over)
        return False

    @property
    def length(self) -> Tensor:
        """The window of each replicate now, ``batch_shape``."""
        return torch.tensor(self.candidates, device=self._choice.device)[self._choice]

    @property
    def scores(self) -> Tensor:
        """score_t(w) of each candidate now, ``batch_shape x W``, in the order of ``candidates``."""
        return self._densities.densities.sum(-2)

    def _grow(self, model: OnlineModel, due: Tensor) -> None:
        """Let the model learn the whole window again in the replicates whose window exceeds what the model holds."""
        record = self._densities
        age = record.held.flip(-1).cumsum(-1).flip(-1)  # 1 for the newest observation held
        wanted = record.held & (age <= self.length.unsqueeze(-1))
        grows = due & (wanted.sum(-1) > model.num_observations)
        if not bool(grows.any()):
            return
        wanted = wanted & grows.unsqueeze(-1)
        first = int(wanted.reshape(-1, wanted.shape[-1]).any(0).to(torch.uint8).argmax())
        inputs, rewards = record.inputs[..., first:, :], record.rewards[..., first:].unsqueeze(-1)
        cast(ArmGP | OnlineGP, model).hold(inputs, rewards, wanted[..., first:])

    @torch.no_grad()
    def refitted(self, model: OnlineModel, where: Tensor) -> None:
        """Score the record again in these replicates."""
        self._densities.rescore(model, where.reshape(model.batch_shape))

    def trace(self) -> dict[str, Tensor | float]:
        """The window of each replicate."""
        return {"window": self.length.reshape(-1)}
