"""What is believed of the arms before any observation: covariance over arms and, maybe, over time."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel, MarkovTimeKernel, SpatioTemporalKernel
from bandits_torch.models.online_model import held_elsewhere


class ArmPrior(torch.nn.Module):
    """k((i, s), (j, t)) = K_ij * time_kernel(s, t) over N arms; static when there is no time kernel.

    The batch of K is flattened to one dimension of size q, row-major; the time kernel's
    hyperparameters keep their batch shape, followed by one dimension for the arms.

    Args:
        arms: ``(*arms_batch, N, d)`` features.
        kernel: a kernel over features (or over indices, for ``ArmCovarianceKernel``), or a
            ``SpatioTemporalKernel`` whose time kernel is Markov (``prior_over`` knows what others take).
    """

    def __init__(self, arms: Tensor, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.space_kernel: Kernel
        self.time_kernel: MarkovTimeKernel | None
        space, over_time = self._split(kernel)
        held_elsewhere(self, space_kernel=space, time_kernel=over_time)
        covariances = [part for part in kernel.modules() if isinstance(part, ArmCovarianceKernel)]
        by_index = len(covariances) > 0
        for part in covariances:  # a larger matrix would be cut to its first arms without a word
            expected = f"{arms.shape[-2]} x {arms.shape[-2]}, one row per arm"
            validation.shape_is("kernel", part.covariance, part.num_arms == arms.shape[-2], expected)
        indices = torch.arange(arms.shape[-2], dtype=arms.dtype, device=arms.device).unsqueeze(-1)
        self.register_buffer("inputs", indices if by_index else arms)
        self.inputs: Tensor
        self.num_arms = arms.shape[-2]
        self.batch_shape = torch.broadcast_shapes(self._kernel_batch(), self.inputs.shape[:-2])
        self.model_batch_shape = self.batch_shape
        self._last_drift: tuple[tuple[float, float], tuple[Tensor, Tensor]] | None = None
        self._present: tuple[float, Tensor | float] | None = None

    def _split(self, kernel: Kernel) -> tuple[Kernel, Kernel | None]:
        """The kernel over arms, and that over time."""
        one = isinstance(kernel, SpatioTemporalKernel)
        return (kernel.space_kernel, kernel.time_kernel) if one else (kernel, None)

    def _kernel_batch(self) -> torch.Size:
        """Of the kernel over arms."""
        return self.space_kernel.batch_shape

    @property
    def flat_batch(self) -> int:
        """q, the size of K's batch."""
        return self.batch_shape.numel()

    def fill(self, model_batch_shape: torch.Size) -> None:
        """Make K's batch the trailing part of the model's, so that member m of the model has K number m % q."""
        leading = len(model_batch_shape) - len(self.batch_shape)
        own = torch.Size([1] * leading) + self.batch_shape
        first = next((k for k, size in enumerate(own) if size > 1), len(own))
        self.batch_shape = model_batch_shape[first:]
        self.forget_hyperparameters()
        self.model_batch_shape = model_batch_shape

    def in_double(self) -> ArmPrior:
        """This prior if it computes in float64, else a copy that does."""
        return self if self.inputs.dtype == torch.float64 else copy.deepcopy(self).double()

    def rows(self, arm: Tensor) -> Tensor:
        """K between the arms (n,) and all arms: (q, n, N)."""
        return self._flat(self._evaluate(self.inputs[..., arm, :], self.inputs))

    def matrix(self, arm: Tensor | None = None) -> Tensor:
        """K among the arms (n,), by default all: (q, n, n)."""
        x = self.inputs if arm is None else self.inputs[..., arm, :]
        return self._flat(self._evaluate(x, x))

    def among(self, arm: Tensor) -> Tensor:
        """K among the points of each member: arm (T, b, n) -> (T, b, n, n)."""
        x = self._inputs_of(arm)
        return self._evaluate(x, x).reshape(*arm.shape, arm.shape[-1])

    def in_time(self, arm: Tensor, times: Tensor) -> Tensor:
        """The prior covariance among points (T, b, n) of arms and times: (T, b, n, n)."""
        covariance = self.among(arm)
        s, t = (at.expand(covariance.shape).flatten(-2) for at in (times.unsqueeze(-1), times.unsqueeze(-2)))
        return covariance * torch.as_tensor(self.over_time(s, t)).unflatten(-1, covariance.shape[-2:])

    def _inputs_of(self, arm: Tensor) -> Tensor:
        """The kernel's inputs of the points (T, b, n) of each member: (T, *model_batch_shape, n, d)."""
        inputs = self.inputs.expand(*self.model_batch_shape, *self.inputs.shape[-2:])
        index = arm.reshape(arm.shape[0], *self.model_batch_shape, arm.shape[-1], 1)
        return inputs.expand(arm.shape[0], *inputs.shape).gather(
            -2, index.expand(*index.shape[:-1], inputs.shape[-1])
        )

    def diagonal(self) -> Tensor:
        """k(x, x) of every arm: (q, N)."""
        # One batch dimension more than the result has: GPyTorch takes what is (n, n) for a matrix whose diagonal it is
        # to take, and there may be as many priors as arms.
        inputs = (
            self.inputs.expand(1, *self.space_kernel.batch_shape, *self.inputs.shape[-2:])
            if self.inputs.dim() == 2
            else self.inputs
        )
        with torch.no_grad():
            diagonal = self.space_kernel(inputs, diag=True)
        return self._flat(diagonal.unsqueeze(-1)).squeeze(-1).clone()

    def over_time(self, s: Tensor | float, t: Tensor | float) -> Tensor | float:
        """Time kernel between times s and t; 1 when static.

        Numbers give (b, 1), or (1, 1) when all members share the hyperparameters; tensors (..., b, n) give (..., b, n).
        """
        if self.time_kernel is None:
            return 1.0
        with torch.no_grad():
            value = self.time_kernel.covariance(self._as_time(s), self._as_time(t))
        return self._by_member(value, isinstance(s, Tensor) or isinstance(t, Tensor))

    def transition(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """(a, c) for s <= t: f(., t) = a f(., s) + an independent GP of covariance c K; shapes as of ``over_time``."""
        assert self.time_kernel is not None
        with torch.no_grad():
            kept, gained = self.time_kernel.transition(self._as_time(s), self._as_time(t))
        per_point = isinstance(s, Tensor) or isinstance(t, Tensor)
        return self._by_member(kept, per_point), self._by_member(gained, per_point)

    def drift(self, now: float, then: float) -> tuple[Tensor, Tensor]:
        """(a, c), (b, 1) or (1, 1) each: f(., then) = a f(., now) + an independent GP of covariance c K.

        The last answer is kept: choosing and learning at one time, and steps of one length under a stationary
        kernel, ask the same.
        """
        stationary = self.time_kernel is None or self.time_kernel.is_stationary
        asked = (0.0, then - now) if stationary else (now, then)
        if self._last_drift is None or self._last_drift[0] != asked:
            self._last_drift = (asked, self.transition(*asked))
        return self._last_drift[1]

    def present(self, now: float) -> Tensor | float:
        """``over_time(now, now)``, (b, 1) or (1, 1), or 1 when static. The last answer is kept."""
        asked = 0.0 if self.time_kernel is None or self.time_kernel.is_stationary else now
        if self._present is None or self._present[0] != asked:
            self._present = asked, self.over_time(asked, asked)
        return self._present[1]

    def forget_hyperparameters(self) -> None:
        """Read the time kernel's hyperparameters again when next asked."""
        self._last_drift = self._present = None

    def _apply(self, *args: Any, **kwargs: Any) -> ArmPrior:
        self.forget_hyperparameters()
        return super()._apply(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any) -> None:
        self.forget_hyperparameters()
        super()._load_from_state_dict(*args)

    def _by_member(self, value: Tensor, per_point: bool) -> Tensor:
        """What the time kernel says, (b, 1) or (1, 1), or (..., b, n) of times per point."""
        assert self.time_kernel is not None
        member_dims = len(self.model_batch_shape)
        if not per_point:
            shared = self.time_kernel.batch_shape.numel() == 1
            return value.reshape(1, 1) if shared else value.expand(*self.model_batch_shape, 1).reshape(-1, 1)
        if member_dims > 1:
            return value.flatten(value.dim() - 1 - member_dims, -2)
        return value if member_dims else value.unsqueeze(-2)

    def _as_time(self, t: Tensor | float) -> Tensor | float:
        """Numbers stay numbers, whose differences the kernel takes in float64."""
        return t.reshape(*t.shape[:-2], *self.model_batch_shape, t.shape[-1]) if isinstance(t, Tensor) else t

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        with torch.no_grad():
            return self.space_kernel(x1, x2).to_dense()

    def _flat(self, covariance: Tensor) -> Tensor:
        """(*batch, n, m) as (q, n, m); ``fill`` has cut leading dimensions of size 1 from the batch."""
        own, shape = covariance.shape[:-2], covariance.shape[-2:]
        covariance = covariance.reshape(*own[max(0, len(own) - len(self.batch_shape)) :], *shape)
        return covariance.expand(*self.batch_shape, *shape).reshape(self.flat_batch, *shape)
