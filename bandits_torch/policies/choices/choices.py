"""What a policy chooses from at a step, arms or points. No other code needs to know which."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.over_priors import OverPriors
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.domain import Domain
from bandits_torch.models.online_model import OnlineModel, with_time
from bandits_torch.policies.policy import Observation
from bandits_torch.state import HasState
from bandits_torch.streams import ReplicateStreams


class Choices(ABC):
    """What S replicates choose from, with its checks and draws: ``Arms`` or ``Points``.

    Attributes:
        replicates: S.
        num_arms: N; 0 for points.
        dim: d, coordinates of a point; 0 for arms, which are chosen by index.
    """

    replicates: int
    num_arms: int = 0
    dim: int = 0

    @abstractmethod
    def check_available(self, available: Any) -> None:
        """Raise ValueError unless this is None, a mask that leaves an arm, or a ``Domain`` of the same dimension."""

    @abstractmethod
    def draw(self, streams: ReplicateStreams, available: Any) -> Tensor:
        """A choice for each replicate, uniform over what is available: (S,) or (S, d)."""

    def check_choice(self, arm: Tensor, name: str = "arm") -> None:
        """Raise ValueError unless this is a choice for every replicate, by shape, dtype and (on a CPU) value."""
        validation.tensor(name, arm)
        validation.shape_is(name, arm, arm.shape == self._shape, f"{self._shape}, {self._expected}")
        validation.require(arm.dtype in self._dtypes, name, arm, self._expected)
        if arm.is_cpu:
            validation.require(self._inside(arm), name, arm, self._expected)

    def check(self, observation: Observation, *needed: str) -> None:
        """Raise ValueError unless this is a choice and a finite reward for every replicate.

        ``needed``: names of tensors (S,) without NaN that ``why`` has to hold. Values are checked on a CPU only.
        """
        reward = validation.tensor("reward", observation.reward)
        validation.require(not reward.is_complex(), "reward", reward.dtype, "real numbers")
        if reward.is_cpu:
            validation.rewards("reward", reward, self._dtype or reward.dtype)
        validation.finite_number("time", observation.time)
        validation.instance("why", observation.why, Mapping, "a mapping, the why of the choice")
        self.check_choice(observation.arm)
        outcomes, expected = observation.outcomes, "None for a policy that learns only the reward"
        validation.require(outcomes is None, "outcomes", outcomes, expected)
        S, noise = self.replicates, observation.noise_variance
        if noise is not None:
            expected = "None: this policy, or its model, has one noise variance for all rewards"
            validation.require(self.takes_noise, "noise_variance", noise, expected)
            validation.of_shape("noise_variance", validation.own_noise(noise), (S,))
        validation.of_shape("reward", reward, (S,))
        for name in needed:
            value: Any = observation.why.get(name)
            fits = isinstance(value, Tensor) and value.shape == (S,)
            fits = fits and not (value.is_cpu and bool(value.isnan().any()))
            expected = f"a tensor ({S},) without NaN, the {name} that the choice was made with"
            validation.require(fits, f"why[{name!r}]", value, expected)

    @abstractmethod
    def _inside(self, arm: Tensor) -> bool:
        """Whether the values of a choice of the right shape and dtype are allowed."""

    takes_noise: bool = False  # whether the policy learns rewards with ``Observation.noise_variance``
    _shape: tuple[int, ...]  # of a choice
    _dtypes: tuple[torch.dtype, ...]  # allowed for a choice
    _expected: str  # for errors: what a choice must be
    _dtype: torch.dtype | None = None  # of computations with rewards; None: the dtype of the rewards
    _most = validation.LARGEST_REWARD[torch.float64] ** 2  # largest sum of squared rewards in the quick check


class ModelChoices(Choices, HasState):
    """Choices with a model of their rewards: predicts, observes, and finds the choice with the best value.

    ``arm`` is a choice of every replicate, (S,) or (S, d), here and in subclasses. The caller checks it.

    Attributes:
        model: has batch shape (), (S,), or (S, ...) with candidate priors after the replicates.
        conditions: whether the model conditions on pending choices. False: these only advance counters.
        given: the argument ``choices`` with which ``choices_over`` makes such choices for another model.
    """

    _parts = ("model",)
    model: OnlineModel
    conditions: bool = True
    given: Tensor | Domain | None = None

    @abstractmethod
    def shown(self, count: int = 200) -> Tensor:
        """Inputs for a plot: the features (N, d) of the arms, or ``count`` points evenly spread over a domain of one
        dimension."""

    @abstractmethod
    def inputs_of(self, arm: Tensor, time: float) -> Tensor:
        """The model's inputs of a choice, S x 1 x D, with a 1 for each further dimension of the model's batch."""

    @abstractmethod
    def observe(self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False) -> None:
        """Every member of the model's batch learns the rewards (S,) of a choice.

        ``late``: also at a time before the latest, if the model can.
        """

    def expect(self, arm: Tensor, time: float) -> None:
        """Count a choice as pending: see ``OnlineModel.expect``. Call it only within ``put_aside``."""
        if self.conditions:
            self.model.expect(self.inputs_of(arm, time))

    @property
    def _expects(self) -> tuple[str, ...] | None:  # type: ignore[override]
        return None if self.conditions else self.state_names

    def observe_noisy(self, arm: Tensor, reward: Tensor, time: float, noise_variance: Tensor) -> None:
        """``observe``, also late, for rewards with noise variances (S,), if ``takes_noise``."""
        raise ValueError("noise_variance must be None: this model has one for all rewards")

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of a choice, ``batch_shape`` each; (1,) if that is ()."""
        posterior = cast(GPyTorchPosterior, self.model.posterior(self.inputs_of(arm, time)))
        shape = self.model.batch_shape or (1,)
        return posterior.mean.reshape(shape), posterior.variance.reshape(shape).sqrt()

    @abstractmethod
    def marginals(self, time: float, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance at ``time`` of every arm, or of points (N, d), (S, N) each."""

    @abstractmethod
    def largest_mean(self, time: float, available: Tensor | None = None) -> Tensor:
        """Largest posterior mean at ``time`` of the available arms, or of all observed points, ``batch_shape x 1`` as
        in BoTorch; the prior mean without observations."""

    def _moments(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance at inputs ``N x batch_shape x 1 x D``, (S, N) each."""
        posterior = cast(GPyTorchPosterior, self.model.posterior(inputs))
        mean, variance = (m.reshape(len(inputs), -1).mT for m in (posterior.mean, posterior.variance))
        return mean.expand(self.replicates, -1), variance.expand(self.replicates, -1)

    def joint(self, time: float, at: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (S, K) and covariance (S, K, K) at ``time`` of arms (S, K), or of points (S, K, d)."""
        inputs = self._inputs_at(time, at)
        inputs = inputs if self.model.batch_shape else inputs[:1]
        posterior = cast(GPyTorchPosterior, self.model.posterior(inputs))
        covariance = posterior.distribution.covariance_matrix
        return posterior.mean.squeeze(-1).expand(at.shape[:2]), covariance.expand(len(at), -1, -1)

    def _inputs_at(self, time: float, at: Tensor) -> Tensor:
        """The model's inputs of arms (S, K) or points (S, K, d), (S, K, D)."""
        raise NotImplementedError

    @abstractmethod
    def best(self, acquisition: AcquisitionFunction, time: float, available: Any) -> tuple[Tensor, Tensor]:
        """The available choice with the largest value of the acquisition, and the value (S,)."""

    @abstractmethod
    def best_under(self, over: OverPriors, time: float, available: Any) -> tuple[Tensor, Tensor]:
        """The available choice with the largest value over priors, and the prior that gives the value, (S,)."""

    @abstractmethod
    def step(self, time: float, width: Tensor | None, streams: ReplicateStreams) -> StepContext:
        """The ``StepContext`` of a step; ``streams`` are the policy's random numbers."""

    def _checked_time(self, time: float) -> float:
        """``time``. Raises ValueError unless it is a finite number, at most 2^24 in size if the model's inputs are in
        float32."""
        validation.finite_number("time", time)
        exact = self.model.input_dtype == torch.float64 or abs(time) <= 2**24
        expected = (
            "at most 2^24 for a model of float32 without a SpatioTemporalKernel, whose times are in float64"
        )
        validation.require(exact, "time", time, expected)
        return time

    def _maybe_timed(self, rows: Tensor, time: float) -> Tensor:
        """Inputs ``... x d``, followed by the time if the model has one more input."""
        has_time = cast(int, self.model.input_dim) > rows.shape[-1]
        return with_time(rows, self._checked_time(time)) if has_time else rows
