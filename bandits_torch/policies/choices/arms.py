"""Arms, chosen by index: alone, and with a model of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.over_priors import OverPriors
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.arm_context import ArmContext
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel, with_time
from bandits_torch.policies.choices.choices import Choices, ModelChoices
from bandits_torch.policies.policy import Observation
from bandits_torch.state import writes
from bandits_torch.streams import ReplicateStreams

_FLOATS = (torch.float64, torch.float32)


class Arms(Choices):
    """N arms by index, 0, ..., N - 1; a mask (N,) or (S, N) selects those available at a step.

    Args:
        num_arms: N.
        replicates: S.
        dtype: dtype of computations with rewards; None: the rewards' own.

    Raises ValueError unless N and S are integers >= 1.
    """

    def __init__(self, num_arms: int, replicates: int = 1, dtype: torch.dtype | None = None) -> None:
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self.replicates = validation.positive_integer("replicates", replicates)
        self._shape, self._dtypes = (replicates,), (torch.long,)
        self._expected = f"int64 from 0 to {num_arms - 1}"
        self._seen: tuple[Tensor, object] | None = None
        if dtype is not None:
            self._dtype, self._most = dtype, validation.largest_reward(dtype) ** 2

    def check(self, observation: Observation, *needed: str) -> None:
        """See ``Choices``. Usual observations pass a quick check; all others are checked in full."""
        arm, reward, S, time = observation.arm, observation.reward, self._shape, observation.time
        right = type(arm) is type(reward) is Tensor and type(time) is float and type(observation.why) is dict
        right = right and arm.shape == reward.shape == S and arm.dtype == torch.long and reward.is_cpu
        right = right and reward.dtype in _FLOATS and float(reward @ reward) + 0 * time < self._most
        for name in needed:
            value: Any = observation.why.get(name) if right else None
            right = type(value) is Tensor and value.shape == S and not bool(value.isnan().any())
        if not (right and self._inside(arm) and observation.outcomes is observation.noise_variance is None):
            super().check(observation, *needed)

    def check_available(self, available: Tensor | None) -> None:
        """Raise ValueError unless this is None, or a mask that leaves every replicate an arm (values are checked on a
        CPU only)."""
        if available is None:
            return
        self._check_mask(available)
        if available.is_cpu:
            left = bool(available.any(-1).all())
            validation.require(left, "available", available, "at least one arm to choose in every replicate")

    def _check_mask(self, available: Tensor) -> None:
        shapes = ((self.num_arms,), (self.replicates, self.num_arms))
        if isinstance(available, ArmContext):
            expected = "a mask of arms only: this policy takes no context"
            validation.require(False, "available", available, expected)
        validation.tensor("available", available)
        validation.shape_is("available", available, available.shape in shapes, f"{shapes[0]} or {shapes[1]}")
        validation.require(available.dtype == torch.bool, "available", available.dtype, "booleans")

    def draw(self, streams: ReplicateStreams, available: Tensor | None) -> Tensor:
        """Of the available arms the one with rank floor(u count), (S,): ``count`` their number, u uniform on [0, 1).

        A mask is checked unless it is the unchanged tensor of the draw before; on a GPU the check waits for the device.
        Raises ValueError if a replicate has no arm available; the streams then do not advance.
        """
        if available is None:
            return (streams.uniform() * self.num_arms).long()
        seen = self._seen
        if seen is None or seen[0] is not available or seen[1] != writes(available):
            self._check_mask(available)
            empty = ~available.any(-1)
            if bool(empty.any()):
                where = f" in replicates {empty.nonzero().flatten().tolist()[:8]}" if empty.dim() else ""
                raise ValueError(f"available must leave at least one arm to choose, got none{where}")
            self._seen = (available, writes(available))
        count = available.sum(-1)
        rank = (streams.uniform() * count).long()
        passed = available.cumsum(-1) > rank.unsqueeze(-1)  # True from that arm on
        return passed.long().argmax(-1)

    def _inside(self, arm: Tensor) -> bool:
        least, most = arm.aminmax()
        return least.item() >= 0 and most.item() < self.num_arms


class ArmsWithModel(Arms, ModelChoices):
    """Arms and a model of them, whose batch dimensions are S replicates and possibly others, such as candidate priors.

    Args:
        model: an ``OnlineModel``.
        arms: features, ``(..., N, d)``.
    """

    def __init__(self, model: OnlineModel, arms: Tensor) -> None:
        batch = model.batch_shape
        super().__init__(arms.shape[-2], batch[0] if batch else 1, model.noise_variance.dtype)
        self.model, self.arms = model, arms
        self._each = tuple(batch) or (1,)
        # The shape with which a choice broadcasts to the batch.
        self._first = (*batch[:1], *[1] * (len(batch) - 1))

    def shown(self, count: int = 200) -> Tensor:
        """The arms' features."""
        return self.arms

    @abstractmethod
    def inputs(self, time: float) -> Tensor:
        """Inputs of all arms, N x 1 x D, with a 1 for each dimension of the batch after N."""

    def _normal(self, streams: ReplicateStreams) -> Callable[..., Tensor]:
        """A function that draws normal numbers for every arm, ``batch_shape x sizes x N``."""
        batch, N = self.model.batch_shape, self.arms.shape[-2]
        return lambda *sizes: streams.normal(*batch[1:], *sizes, N).reshape(*batch, *sizes, N)

    def largest_mean(self, time: float, available: Tensor | None = None) -> Tensor:
        mean = self.marginals(time)[0]
        mean = mean if available is None else mean.masked_fill(~available, -torch.inf)
        return mean.amax(-1).reshape(*self.model.batch_shape, 1)

    def best(
        self, acquisition: AcquisitionFunction, time: float, available: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """All arms scored in one call; see ``best_available``."""
        scores = self._values(acquisition, time).reshape(self.num_arms, -1)  # N x S
        value, arm = best_available(scores, available)
        return arm.expand(self.replicates), value.expand(self.replicates)

    def _values(self, acquisition: AcquisitionFunction, time: float) -> Tensor:
        """The acquisition's value of all arms, ``N x batch_shape``."""
        return acquisition(self.inputs(time))

    def best_under(self, over: OverPriors, time: float, available: Tensor | None) -> tuple[Tensor, Tensor]:
        """All arms scored under all priors in one call."""
        values, priors = over.reduce(self._values(over.base, time))  # N x S each
        _, arm = best_available(values, available)
        return arm, priors.gather(0, arm.unsqueeze(0)).squeeze(0)


class ModelArms(ArmsWithModel):
    """The arms of a model such as ``ArmGP``, whose inputs are their indices, and time if the model drifts.

    Args:
        model: an ``ArmModel``.
    """

    model: ArmModel

    def __init__(self, model: ArmModel) -> None:
        super().__init__(model, model.arms)

    def inputs(self, time: float) -> Tensor:
        return self.model.candidates(time)

    def _values(self, acquisition: AcquisitionFunction, time: float) -> Tensor:
        """Upper confidence bounds come from the marginals, without inputs and a posterior over them."""
        if type(acquisition) is UpperConfidenceBound and acquisition.is_of_marginals(self.model):
            given = time is not None or not self.model.drifts  # to ``marginals`` None would mean now
            validation.require(given, "time", time, "a number: the kernel has a time part")
            return acquisition.of(*self.model.marginals(time), acquisition.width.unsqueeze(-1)).movedim(-1, 0)
        return super()._values(acquisition, time)

    def _index(self, arm: Tensor) -> Tensor:
        """The model's index of arms (S,) or (S, K)."""
        return arm

    def inputs_of(self, arm: Tensor, time: float) -> Tensor:
        """Index, and time if the model drifts."""
        return self._inputs_at(time, arm).reshape(*self._first, 1, -1)

    def observe(self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False) -> None:
        index = self._index(arm)
        if self._first != self._shape:
            index, reward = index.reshape(self._first), reward.reshape(self._first)
        self.model.take(index, reward, time, late=late)

    def expect(self, arm: Tensor, time: float) -> None:
        if self.conditions:
            self.model.expect_arms(self._index(arm).reshape(self._first), time)

    def observe_noisy(self, arm: Tensor, reward: Tensor, time: float, noise_variance: Tensor) -> None:
        """See ``ModelChoices``; only for an ``ArmGP``."""
        index, reward, noise = (x.reshape(self._first) for x in (self._index(arm), reward, noise_variance))
        cast(ArmGP, self.model).take_noisy(index, reward, time, noise)

    def predict(self, arm: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """From the marginals of all arms."""
        mean, variance = self.model.at(self._index(arm), time)
        return mean.reshape(self._each), variance.reshape(self._each).sqrt()

    def _inputs_at(self, time: float, at: Tensor) -> Tensor:
        index = self._index(at).to(self.arms.dtype).unsqueeze(-1)
        return with_time(index, time) if self.model.drifts else index

    def marginals(self, time: float, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mean, variance = self.model.marginals(time)
        return mean.reshape(self.replicates, -1), variance.reshape(self.replicates, -1)

    def step(self, time: float, width: Tensor | None, streams: ReplicateStreams) -> StepContext:
        """With normal numbers for every arm. Raises ValueError for a time that the model refuses; nothing is drawn."""
        self.model.candidates(time)
        return StepContext(time, width, base_samples=self._normal(streams))


class ListedArms(ArmsWithModel):
    """Arms given by features, for a model over any inputs.

    Args:
        model: an ``OnlineModel`` over d inputs, or d + 1 with time last.
        arms: ``(N, d)``.
    """

    def __init__(self, model: OnlineModel, arms: Tensor) -> None:
        super().__init__(model, arms)
        self.given = arms

    def inputs(self, time: float) -> Tensor:
        """Features of all arms, and time, N x 1 x 1 x D (N x 1 x D if the model has no batch); N x S x 1 x D if
        replicates have different features."""
        rows = self._rows(time)
        if rows.dim() == 3:
            return rows.movedim(0, 1).unsqueeze(-2)
        return rows.reshape(self.num_arms, *[1] * len(self.model.batch_shape), 1, -1)

    def _rows(self, time: float) -> Tensor:
        """N x D."""
        return self._maybe_timed(self.arms, time)

    def inputs_of(self, arm: Tensor, time: float) -> Tensor:
        """Features, and time."""
        return self._rows(time)[arm].reshape(*self._first, 1, -1)

    def observe(self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False) -> None:
        self.model.observe(self.inputs_of(arm, time), reward.reshape(*self._first, 1, 1))

    def _inputs_at(self, time: float, at: Tensor) -> Tensor:
        rows = self._rows(time)
        if rows.dim() == 2:
            return rows[at]
        return rows.gather(1, at.unsqueeze(-1).expand(*at.shape, rows.shape[-1]))

    def marginals(self, time: float, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._moments(self.inputs(time))

    def step(self, time: float, width: Tensor | None, streams: ReplicateStreams) -> StepContext:
        """With normal numbers for every arm, a seed for each replicate, and the model's inputs of all arms."""
        return StepContext(
            time,
            width,
            base_samples=self._normal(streams),
            seeds=lambda: (2**24 * streams.uniform()).long().tolist(),
            choices=lambda: self._rows(time),
        )


def best_available(scores: Tensor, available: Tensor | None) -> tuple[Tensor, Tensor]:
    """The largest score of an available arm, and the arm, (S,) each, from scores (N, S). Ties go to the smaller index.

    A score that is NaN or -inf counts as the smallest number, which is still above the score of an unavailable arm.
    """
    lowest = torch.finfo(scores.dtype).min
    scores = scores.nan_to_num(nan=lowest, posinf=torch.inf, neginf=lowest)
    if available is not None:
        scores = scores.masked_fill(~available.reshape(-1, scores.shape[0]).mT, -torch.inf)
    return scores.max(0)
