"""The base class of models over a finite set of arms, whose inputs are indices of arms."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.prior import prior_over
from bandits_torch.models.cholesky import batched_cholesky
from bandits_torch.models.online_model import OnlineModel, broadcast, require_within, with_time
from bandits_torch.state import writes


class ArmModel(OnlineModel):
    """An ``OnlineModel`` whose inputs are indices of arms, ``X[..., 0] = 0, ..., N - 1`` (and time, if it drifts).

    Attributes:
        arms: ``(*arms_batch, N, d)`` features.
        num_arms: N.
        batch_shape: all batch dimensions: replicates and candidate priors.
        drifts: whether inputs have a time column.
        can_condition_mean: whether it has ``condition_mean``, as ``MembersOverArms`` has.
        has_cycles, has_level, control: as in ``MembersOverArms``.
    """

    arms: Tensor
    num_arms: int
    batch_shape: torch.Size = torch.Size()  # an attribute in place of BoTorch's property
    drifts: bool = False
    can_condition_mean = False
    has_cycles = False
    has_level = False
    control: int | None = None
    _candidates: Tensor | None = None
    _candidates_writes: object = None  # how often they were written to when ``candidates`` returned them

    @property
    def tells_past(self) -> bool:  # type: ignore[override]
        """False under drift: the model predicts only at and after the time of the latest observation."""
        return not self.drifts

    def _take_settings(
        self,
        arms: Tensor,
        kernel: Kernel | Tensor,
        noise_variance: float | Tensor,
        prior_mean: float | Tensor,
        batch_shape: tuple[int, ...] | torch.Size,
    ) -> tuple[Tensor, Tensor]:
        """Check the arguments that all models over arms share, and store arms, prior and batch shape.

        Returns noise variance and prior mean in the dtype of the arms, in the shapes given.
        """
        self.register_buffer("arms", arms)
        self.num_arms = arms.shape[-2]
        self.prior = prior_over(arms, inputs.kernel_over(arms, kernel))
        with inputs.takes_columns(self.prior.kernel, arms.shape[-1]):
            self.prior.matrix(torch.arange(min(2, arms.shape[-2]), device=arms.device))
        noise = inputs.noise_over(arms, noise_variance)
        mean = inputs.prior_mean_over(arms, prior_mean)
        over_time = self.prior.time_kernel
        sizes = all(isinstance(size, int) and size >= 1 for size in batch_shape)
        validation.require(sizes, "batch_shape (replicates)", tuple(batch_shape), "integers >= 1")
        shapes = {
            "batch_shape": batch_shape,
            "kernel_and_arms": self.prior.batch_shape,
            "time_kernel": () if over_time is None else over_time.batch_shape,
            "noise_variance": noise.shape,
            "prior_mean": mean.shape[:-1],
        }
        self.batch_shape = broadcast(", ".join(shapes), *shapes.values())
        self._check_ratio(noise)
        return noise, mean

    def _check_ratio(self, noise_variance: Tensor) -> None:
        prior_variance = self.prior.diagonal().reshape(*self.prior.batch_shape, -1)
        inputs.check_ratio(noise_variance, prior_variance)

    @property
    def input_dtype(self) -> torch.dtype:
        """float64 under drift, else the dtype of the arms."""
        return torch.float64 if self.drifts else self.arms.dtype

    def grow_from(self, small: ArmModel) -> None:
        """Take what ``small`` has learned, a model built like this one over the first of these arms. Raises ValueError
        if its state does not determine that."""
        raise ValueError(f"model must be one that can take up more arms, got {type(self).__name__}")

    def expand(self, batch_shape: torch.Size) -> Self:
        """A copy of shape ``batch_shape`` whose members have learned what their originals have. Raises ValueError for a
        shape to which the model's does not broadcast."""
        model = copy.deepcopy(self)
        model.widen(torch.Size(batch_shape))
        return model

    def widen(self, batch_shape: torch.Size) -> None:
        """Change this model as ``expand`` changes its copy."""
        require_within(batch_shape, self.batch_shape, "the model's batch shape")
        self.batch_shape, self._candidates = batch_shape, None

    def candidates(self, time: float | None = None) -> Tensor:
        """Inputs of all arms (at ``time``, under drift): ``N x 1 x d``, with a 1 for each batch dimension after N.
        ``ArmGP.posterior`` of this same object reads the stored marginals."""
        kept = self._kept()
        return self._keep(self._indices()) if kept is None else kept

    def _keep(self, candidates: Tensor) -> Tensor:
        self._candidates, self._candidates_writes = candidates, writes(candidates)
        return candidates

    def _kept(self) -> Tensor | None:
        """What ``candidates`` returned last; None if it was written to since, which tensors of inference mode do not
        tell."""
        X = self._candidates
        if X is None or X.is_inference() or writes(X) == self._candidates_writes:
            return X
        return None

    def _indices(self) -> Tensor:
        """Indices of all arms, ``N x 1 x 1``, with a 1 for each batch dimension after N."""
        index = torch.arange(self.num_arms, dtype=self.input_dtype, device=self.arms.device)
        return index.reshape(-1, *[1] * len(self.batch_shape), 1, 1)

    @abstractmethod
    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm at ``time`` (default: now), ``batch_shape x N`` each."""

    def at(self, arm: Tensor, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of one arm per replicate, ``arm`` (S,), in every member: ``batch_shape`` each."""
        index = arm.reshape(-1, *[1] * len(self.batch_shape)).expand(*self.batch_shape, 1)
        mean, variance = self.marginals(time)
        return mean.gather(-1, index).squeeze(-1), variance.gather(-1, index).squeeze(-1)

    def covariance_with(self, arm: Tensor, time: float) -> Tensor:
        """Posterior covariance of every arm with one per replicate, ``arm`` (S,), or () for a model without a batch:
        ``batch_shape x N``. O(N) in the covariance form, O(N n^2) in the factor form."""
        ones = [1] * len(self.batch_shape)
        members = [-1, *ones[1:]] if ones else []
        own = arm.to(self.arms.dtype).reshape(1, *members, 1, 1).expand(self.num_arms, *members, 1, 1)
        every = torch.arange(self.num_arms).to(own).reshape(-1, *ones, 1, 1).expand_as(own)
        X = torch.cat([own, every], -2)
        if self.drifts:
            X = with_time(X, time)
        return self.posterior(X).distribution.covariance_matrix[..., 0, 1].movedim(0, -1)

    @abstractmethod
    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean ``batch_shape x N`` and covariance ``batch_shape x N x N`` of all arms at ``time``."""

    def joint_root(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean ``batch_shape x N`` and a root of the covariance, root root^T, ``batch_shape x N x N``.

        It is a Cholesky factor, O(N^3), unless a subclass has a cheaper root.
        """
        mean, covariance = self.joint(time)
        return mean, batched_cholesky(covariance)

    @abstractmethod
    def observe_arms(
        self, arm: Tensor, reward: Tensor, time: float | None = None, where: Tensor | None = None
    ) -> None:
        """Observe one reward of one arm per member: integers (int64) and numbers that broadcast to ``batch_shape``.
        Values are checked on a CPU only, because a check would wait for a GPU."""

    @abstractmethod
    def take(self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False) -> None:
        """``observe_arms`` in every member, for checked values; ``late``: accept a past time, if the model can."""

    def expect(self, X: Tensor) -> None:
        """See ``OnlineModel``. Under drift, an earlier time counts as the time of the latest observation."""
        index, times = inputs.split(X, self.num_arms, self.drifts)
        validation.shape_is("X", X, X.shape[-2] == 1, "batch_shape x 1 x d")
        self.expect_arms(index.squeeze(-1), 0.0 if times is None else float(times.max()))

    @abstractmethod
    def expect_arms(self, arm: Tensor, time: float) -> None:
        """``expect`` of one pull per member, ``arm`` as for ``observe_arms``."""

    def _flat_arm(self, arm: Tensor) -> Tensor:
        """Arms as for ``observe_arms``, checked, one for each member of the flat batch: (b,)."""
        expected = f"int64 from 0 to {self.num_arms - 1}"
        ok = validation.tensor("arm", arm).dtype == torch.long
        ok = ok and not (arm.is_cpu and bool(((arm < 0) | (arm >= self.num_arms)).any()))
        validation.require(ok, "arm", arm, expected)
        return inputs.flat("arm", arm, self.batch_shape)

    def _flat_reward(self, reward: Tensor) -> Tensor:
        """The same for rewards."""
        if validation.tensor("reward", reward).is_cpu:
            validation.rewards("reward", reward, self.arms.dtype)
        return inputs.flat("reward", reward.detach().to(self.arms.dtype), self.batch_shape)

    def _mask(self, where: Tensor | None) -> Tensor | None:
        return None if where is None else inputs.flat_mask(where, self.batch_shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Drops the cached candidates, which have the old dtype and device."""
        self._candidates = None
        return super()._apply(fn, recurse)


class StaticArmModel(ArmModel):
    """An ``ArmModel`` without time that cannot forget single observations. A subclass defines how it learns one."""

    @property
    def can_forget(self) -> bool:
        """False: only ``reset`` forgets."""
        return False

    def forget(self, count: int = 1, where: Tensor | None = None) -> None:
        """Raises ValueError; ``reset`` forgets all."""
        expected = f"not called: a {type(self).__name__} cannot forget single observations (an ArmGP can)"
        validation.require(False, "forget", count, expected)

    @abstractmethod
    def _learn(self, arm: Tensor, reward: Tensor, where: Tensor | None) -> None:
        """Learn one observation of each member with ``where`` True, (b,) each."""

    def observe(self, X: Tensor, Y: Tensor, where: Tensor | None = None) -> None:
        """Learn observations in order. X: ``batch_shape x n x 1`` indices; Y: ``batch_shape x n x 1``."""
        index, rewards, _ = inputs.arms_and_rewards(
            X, Y, self.num_arms, False, self.batch_shape, self.arms.dtype
        )
        mask = self._mask(where)
        for k in range(index.shape[-1]):
            self._learn(index[:, k], rewards[:, k], mask)

    def observe_arms(
        self, arm: Tensor, reward: Tensor, time: float | None = None, where: Tensor | None = None
    ) -> None:
        """``observe`` for one pull per member; ``time`` is ignored."""
        self._learn(self._flat_arm(arm), self._flat_reward(reward), self._mask(where))

    def take(self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False) -> None:
        b = self.batch_shape
        self._learn(arm.expand(b).reshape(-1), reward.to(self.arms.dtype).expand(b).reshape(-1), None)
