"""Forgetting rules: they decide when an index policy forgets which observations. The model removes them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.state import HasState


class WindowDensities(HasState):
    """log N(y; mean_w, variance_w + lambda) of each new observation, given the last w before it, for several w.

    Let L L^T = K + lambda I with the newest observation first. The leading w x w block of L is then the factor of the
    last w observations. So with v = L^{-1} k(x) and z = L^{-1} (y - m)

        mean_w(x) = m(x) + sum_{i <= w} v_i z_i,    variance_w(x) = k(x, x) - sum_{i <= w} v_i^2

    (Rasmussen & Williams 2006, algorithm 2.1, stopped after w rows): two cumulative sums give all windows.

    Args:
        model: an ``ArmGP`` or an ``OnlineGP``, whose prior and noise variance are read at every call.
        windows: lengths w >= 1; the largest is M.
        memory: number of densities kept; M + ``memory`` observations are kept.

    Attributes:
        inputs, rewards: observations, oldest first, ``batch x n x D`` and ``batch x n``.
        held: whether a member still uses an observation, ``batch x n``; False for those before its latest reset.
        densities: the latest, oldest first, ``batch x memory x W``; 0 if there is none, or if the noise is so small
            that K + lambda I has no factor in float64.

    Cost of an observation: O(M^3) per member, in float64, with one factor for all windows. Updating L for a new first
    row would cost O(M^2) and save a third of the time at M = 256, but loses most digits if the noise is small.
    """

    def __init__(self, model: OnlineModel, windows: Sequence[int], memory: int) -> None:
        self.windows, self.memory = tuple(windows), memory
        self._depth = max(self.windows)
        width = model.input_dim if isinstance(model, OnlineGP) else 1 + bool(getattr(model, "drifts", False))
        self._no_inputs = model.noise_variance.new_zeros(
            *model.batch_shape, 0, width, dtype=model.input_dtype
        )
        self._no_rewards = model.noise_variance.new_zeros(*model.batch_shape, 0)
        self._begin()

    inputs: Tensor
    rewards: Tensor
    held: Tensor
    densities: Tensor
    _lasting = ("inputs", "rewards", "held", "densities")  # ``_restarted`` clears ``held`` and ``densities``

    def _fresh(self) -> dict[str, Any]:
        none = self._no_rewards
        densities = none.new_zeros(*none.shape[:-1], self.memory, len(self.windows), dtype=torch.float64)
        return {"inputs": self._no_inputs, "rewards": none, "held": none.bool(), "densities": densities}

    def _restarted(self, where: Tensor | None) -> None:
        batch = self.held.shape[:-1]
        goes = self.held.new_ones(batch) if where is None else where.reshape(batch)
        self.held = self.held & ~goes.unsqueeze(-1)
        self.densities = self.densities.masked_fill(goes[..., None, None], 0.0)

    def observe(self, model: OnlineModel, X: Tensor, reward: Tensor) -> None:
        """Add the observation of a reward, ``batch``, at X, ``batch x 1 x D``, and its density under every window."""
        most = self._depth + self.memory
        self.inputs = torch.cat([self.inputs, X], -2)[..., -most:, :]
        self.rewards = torch.cat([self.rewards, reward.to(self.rewards).unsqueeze(-1)], -1)[..., -most:]
        self.held = pad(self.held, (0, 1), value=True)[..., -most:]
        density = self._density(model, self.rewards.shape[-1] - 1)
        self.densities = torch.cat([self.densities[..., 1:, :], density.unsqueeze(-2)], -2)

    def rescore(self, model: OnlineModel, where: Tensor) -> None:
        """Compute the densities again, in members with ``where`` True, after the model's hyperparameters have changed.

        Cost: that of ``memory`` observations.
        """
        n = self.rewards.shape[-1]
        again = [self._density(model, row) for row in range(max(0, n - self.memory), n)]
        if again:
            new = pad(torch.stack(again, -2), (0, 0, self.memory - len(again), 0))
            self.densities = torch.where(where[..., None, None], new, self.densities)

    def _density(self, model: OnlineModel, row: int) -> Tensor:
        """log density of the reward in this row given those before, ``batch x W``; 0 in members that do not hold it."""
        rows = slice(max(0, row - self._depth), row + 1)
        held = self.held[..., rows].flip(-1)
        prior, covariance = prior_moments(model, self.inputs[..., rows, :].flip(-2))
        residual = self.rewards[..., rows].flip(-1).double() - prior
        noise = model.noise_variance.double().expand(model.batch_shape).unsqueeze(-1)
        K = covariance[..., 1:, 1:].clone()
        K.diagonal(dim1=-2, dim2=-1).add_(noise)
        lower, failed = torch.linalg.cholesky_ex(K)
        right = torch.stack([covariance[..., 1:, 0], residual[..., 1:]], -1)
        v, z = torch.linalg.solve_triangular(lower, right, upper=False).unbind(-1)
        v = v * held[..., 1:]  # observations not held are older, so they are in the last rows
        at = [min(w, v.shape[-1]) for w in self.windows]
        error = residual[..., :1] - pad((v * z).cumsum(-1), (1, 0))[..., at]
        known = pad(v.square().cumsum(-1), (1, 0))[..., at]
        spread = (covariance[..., :1, 0] - known).clamp_min(0.0) + noise
        density = -0.5 * (error.square() / spread + (2 * math.pi * spread).log())
        return torch.where((held[..., 0] & (failed == 0)).unsqueeze(-1), density, 0.0)


def prior_moments(model: OnlineModel, X: Tensor) -> tuple[Tensor, Tensor]:
    """Prior mean ``batch x n`` and covariance ``batch x n x n`` at inputs ``batch x n x D``, float64."""
    shape, n = X.shape[:-1], X.shape[-2]
    if isinstance(model, OnlineGP):
        prior = model.prior
        return prior.mean(X).double().expand(shape), prior.covariance(X, X).double().expand(*shape, n)
    assert isinstance(model, ArmGP)
    columns = X.reshape(-1, *X.shape[-2:])
    arm = columns[..., 0].long()
    mean = model.prior_mean.reshape(-1, model.num_arms).gather(-1, arm)
    if model.drifts:
        covariance = model.prior.in_time(arm.unsqueeze(0), columns[..., 1].unsqueeze(0))[0]
    else:
        covariance = model.prior.among(arm.unsqueeze(0))[0]
    return mean.double().reshape(shape), covariance.double().reshape(*shape, n)


Prediction = Callable[[], tuple[Tensor, Tensor]]

CANDIDATES = (8, 16, 32, 64, 128, 256)  # windows of ``LikelihoodWindow``


class ForgettingRule(Described, HasState):
    """Base class of forgetting rules; keeps all observations.

    At each step the policy calls ``refuted`` before it learns, then ``observed`` and ``after``.
    ``clock`` counts the observations since the last restart, with the new one only in ``after``. It is an integer while
    all replicates restart together, and a tensor (S,) once they do not.
    """

    tests_changes: ClassVar[bool] = False  # whether ``refuted`` may find that rewards have changed

    def check(self, model: OnlineModel) -> None:
        """Raise ValueError if the rule cannot work with this model."""

    def _check_empty(self, model: OnlineModel) -> None:
        """Raise ValueError for a model that holds observations: the rule needs the inputs and times of all."""
        held = int(model.num_observations.max())
        expected = f"0 where {type(self).__name__} begins"
        validation.require(held == 0, "model.num_observations", held, expected)

    _zeros: Tensor  # of the model's batch shape, dtype and device

    def begin(self, model: OnlineModel) -> Self:
        """Check the model, and return a copy of the rule for one policy, in its initial state."""
        self.check(model)
        rule = copy.copy(self)
        rule.start(model)
        return rule

    def start(self, model: OnlineModel) -> None:
        """Take the initial state for this model, whose batch is that of the policy."""
        self._zeros = model.noise_variance.new_zeros(model.batch_shape)
        self._begin()

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
        """After ``observed``: forget in place. Returns which replicates restart now, (S,) booleans or one for all."""
        return False

    def refitted(self, model: OnlineModel, where: Tensor) -> None:
        """Called after the hyperparameters changed in the replicates with ``where`` (S,) True."""

    def trace(self) -> dict[str, Tensor | float]:
        """What to record at each step, (S,) each."""
        return {}


class KeepEverything(ForgettingRule):
    """Never forgets."""


class SlidingWindow(ForgettingRule):
    """Keeps the last ``window`` observations (SW-GP-UCB, Zhou & Shroff 2021, Algorithm 2).

    The paper's window, from max(1, t - w) to t, would hold w + 1.

    Raises ValueError unless ``window`` is an integer >= 1, and for a model that cannot forget or already holds
    observations.
    """

    def __init__(self, window: int) -> None:
        self.window = validation.positive_integer("window", window)

    def check(self, model: OnlineModel) -> None:
        """The model must be able to forget, and hold no observations: the window drops one a step."""
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

    With H = ``interval``, it restarts before steps t > 1 with (t - 1) mod H = 0. The paper's condition, t mod H = 1,
    never holds for H = 1.

    Raises ValueError unless ``interval`` is an integer >= 1.
    """

    def __init__(self, interval: int) -> None:
        self.interval = validation.positive_integer("interval", interval)

    def after(self, model: OnlineModel, clock: int | Tensor) -> Tensor | bool:
        """Restart when the interval is over."""
        return clock % self.interval == 0


class EventTriggeredRestart(ForgettingRule):
    """Forgets all observations when a reward is too far from its prediction (ET-GP-UCB, Brunzema et al. 2022).

    A replicate restarts when |y_t - mu(x_t)| > sqrt(rho_t) sigma(x_t) + w_t with rho_t = 2 ln(2 pi_t / delta),
    w_t^2 = 2 noise_scale^2 ln(2 pi_t / delta) and pi_t = pi^2 t^2 / 6; t counts from the last restart. The observation
    that triggers the restart is the first of the new data. If the function is a draw of the GP and does not change, and
    the noise is normal, the probability of any false alarm is at most delta.

    Args:
        delta: failure probability.
        noise_scale: standard deviation of the noise; by default the square root of the model's noise variance.

    Every step checks on the host whether a replicate restarts, so a GPU synchronises once a step. An ``ArmGP`` that
    drifts cannot predict at a time before its latest observation, so a late reward is a ValueError.

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
    """Keeps the last w observations, and chooses the w that predicts the latest rewards best.

    After every ``every`` observations each replicate scores the candidates w by the one-step-ahead (prequential)
    log-likelihood of its last h = ``memory`` rewards,

        score_t(w) = sum_{s = t-h+1}^{t} log N(y_s; mu_{s-1}^{(w)}(x_s), sigma_{s-1}^{(w)}(x_s)^2 + lambda),

    where the posterior of s - 1 uses the w observations before s. It takes the longest w whose score is within
    ``margin`` nats of the best: such differences are noise, and the longest window holds the most information. Source:
    Dawid 1984, whose prequential score chooses among models; here it chooses among windows of one model.

    The window can shrink or grow in a single step: the rule keeps the last M + h observations, with M the largest
    candidate, and the model learns the window again when it grows. To keep all observations of a run of T steps,
    include the candidate T. Cost and memory do not grow with the horizon.

    Args:
        candidates: lengths w, distinct integers >= 1.
        every: observations between choices.
        memory: h.
        margin: nats, >= 0.

    Cost: O(M^3) per observation and replicate for the scores of all candidates (``WindowDensities``), in addition to
    the model's steps; growing to w costs w steps of the model. Memory: O((M + h) d) per replicate. Synchronises with
    the device once per step.

    After a refit of hyperparameters (``LearnedHyperparameters``) the h rewards are scored again, in O(h M^3). A reset
    also clears the rule's observations. One rule may serve several policies, each of which uses a copy.

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
        """As for ``SlidingWindow``; the model must also be an ``ArmGP`` or an ``OnlineGP``."""
        validation.instance("model", model, (ArmGP, OnlineGP), "an ArmGP or an OnlineGP")
        super().check(model)

    _parts = ("_densities",)
    _densities: WindowDensities
    _choice: Tensor  # of candidates, batch
    _since: Tensor  # observations since a choice was made, batch

    def start(self, model: OnlineModel) -> None:
        super().start(model)
        self._densities = WindowDensities(model, self.candidates, self.memory)

    def _fresh(self) -> dict[str, Any]:
        first = torch.zeros_like(self._zeros, dtype=torch.long)
        return {"_choice": first, "_since": first.clone()}

    def observed(self, point: Callable[[], Tensor], reward: Tensor, model: OnlineModel) -> None:
        """Score the reward under every candidate, and choose again every ``every`` observations. The model then learns
        the whole window again, in replicates whose window is longer than what it holds."""
        self._densities.observe(model, point(), reward.reshape(model.batch_shape))
        self._since += 1
        due = self._since >= self.every
        if not bool(due.any()):
            return
        self._since.masked_fill_(due, 0)
        scores = self.scores
        good = scores >= scores.amax(-1, keepdim=True) - self.margin
        self._choice = torch.where(due, good.to(torch.uint8).argmax(-1), self._choice)
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

    @torch.no_grad()
    def refitted(self, model: OnlineModel, where: Tensor) -> None:
        """Compute the scores again in these replicates."""
        self._densities.rescore(model, where.reshape(model.batch_shape))

    def trace(self) -> dict[str, Tensor | float]:
        """``window``, the length of each replicate's window."""
        return {"window": self.length.reshape(-1)}
