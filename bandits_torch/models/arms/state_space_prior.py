"""What is believed of the arms beforehand where time has a state: covariances over arms times kernels over time."""

from __future__ import annotations

from dataclasses import replace

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ArmCovarianceKernel, MarkovTimeKernel, SpatioTemporalKernel
from bandits_torch.kernels.smooth_time import KNOWN, has_state_space, state_space_of
from bandits_torch.kernels.state_space import Component, StateSpace
from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.online_model import held_elsewhere


def prior_over(arms: Tensor, kernel: Kernel) -> ArmPrior:
    """The prior of a kernel: with a state of several numbers per arm where one does not tell all of the past."""
    markov = isinstance(kernel, SpatioTemporalKernel) and isinstance(kernel.time_kernel, MarkovTimeKernel)
    in_time = any(isinstance(part, SpatioTemporalKernel) for part in kernel.modules())
    return StateSpacePrior(arms, kernel) if in_time and not markov else ArmPrior(arms, kernel)


class StateSpacePrior(ArmPrior):
    """k((i, s), (j, t)) = sum_c K_c[i, j] k_c(s - t), each k_c with a state space.

    What ``ArmPrior`` tells of K is told of sum_c K_c k_c(0), the covariance at one time.

    Args:
        arms: ``(*arms_batch, N, d)`` features.
        kernel: a ``SpatioTemporalKernel`` or an ``AdditiveKernel`` of such, with or without ``ScaleKernel`` around.

    Raises ValueError for a kernel of another structure, a time kernel without a state, and kernels some of which are
    over features and some over indices.

    Source: Sarkka, Solin & Hartikainen 2013, section 4, for a finite set of places.
    """

    terms: list[
        tuple[Kernel, Kernel, tuple[ScaleKernel, ...]]
    ]  # over arms, over time, what both are scaled by

    def _split(self, kernel: Kernel) -> tuple[Kernel, Kernel | None]:
        terms = _terms(kernel, ())
        for _, over_time, _ in terms:
            known = has_state_space(over_time)
            validation.require(known, "kernel.time_kernel", type(over_time).__name__, KNOWN)
        held_elsewhere(self, terms=terms, _spaces=None, _components=None, _last_step=None)
        indexed = [
            any(isinstance(part, ArmCovarianceKernel) for part in space.modules()) for space, _, _ in terms
        ]
        alike = all(indexed) or not any(indexed)
        validation.require(
            alike, "kernel", kernel, "a sum of terms all over features, or all over indices of arms"
        )
        return terms[0][0], terms[0][1] if len(terms) == 1 and not terms[0][2] else kernel

    def _kernel_batch(self) -> torch.Size:
        parts = [part.batch_shape for space, time, scales in self.terms for part in (space, time, *scales)]
        return torch.broadcast_shapes(*parts)

    def spaces(self) -> list[StateSpace]:
        """The state space of each term, of its kernels' batch shape, float64."""
        if self._spaces is None:
            spaces = []
            with torch.no_grad():
                for _, over_time, scales in self.terms:
                    space = state_space_of(over_time)
                    for scale in scales:
                        space = space.scaled(scale.outputscale)
                    spaces.append(space)
            vars(self)["_spaces"] = spaces
        return self._spaces  # type: ignore[return-value]

    def components(self) -> list[tuple[int, Component]]:
        """Parts of the state, of batch (b, 1) or (1, 1), each with the number of its term."""
        if self._components is None:
            found = [(k, part) for k, space in enumerate(self.spaces()) for part in space.components]
            vars(self)["_components"] = [(k, self._by_members(part)) for k, part in found]
        return self._components  # type: ignore[return-value]

    def step(self, elapsed: float) -> list[tuple[Tensor, Tensor]]:
        """(A, Q) of each component over that time, without its waves, (b, p, p) or (1, p, p). The last is kept."""
        last: tuple[float, list[tuple[Tensor, Tensor]]] | None = vars(self)["_last_step"]
        if last is None or last[0] != elapsed:
            time = torch.full((1, 1), elapsed, dtype=torch.float64, device=self.inputs.device)
            pairs = [(part.decay(time), part.gained(time)) for _, part in self.components()]
            own = [(a.squeeze(1).to(self.inputs), q.squeeze(1).to(self.inputs)) for a, q in pairs]
            last = vars(self)["_last_step"] = (elapsed, own)
        return last[1]

    def matrices(self) -> list[Tensor]:
        """K_c over the arms, (q, N, N), of each term."""
        with torch.no_grad():
            return [self._flat(space(self.inputs, self.inputs).to_dense()) for space, _, _ in self.terms]

    def diagonal(self) -> Tensor:
        """k((i, t), (i, t)) of every arm: (q, N)."""
        return self.matrix().diagonal(dim1=-2, dim2=-1).clone()

    def in_time(self, arm: Tensor, times: Tensor) -> Tensor:
        """The prior covariance among points (T, b, n) of arms and times: (T, b, n, n)."""
        inputs = self._inputs_of(arm)
        apart = (times.unsqueeze(-1) - times.unsqueeze(-2)).double()
        shape = (arm.shape[0], *self.model_batch_shape, arm.shape[-1], arm.shape[-1])
        total = torch.zeros(shape, dtype=inputs.dtype, device=inputs.device)
        with torch.no_grad():
            for (over_arms, _, _), space in zip(self.terms, self.spaces(), strict=True):
                value = _over_pairs(space, apart.reshape(shape))
                total += over_arms(inputs, inputs).to_dense() * value.to(inputs)
        return total.reshape(*arm.shape, arm.shape[-1])

    def forget_hyperparameters(self) -> None:
        """Read the kernels' hyperparameters again when next asked."""
        super().forget_hyperparameters()
        vars(self).update(_spaces=None, _components=None, _last_step=None)

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        with torch.no_grad():
            parts = [
                over_arms(x1, x2).to_dense() * space.value(0.0)[..., None, None].to(x1)
                for (over_arms, _, _), space in zip(self.terms, self.spaces(), strict=True)
            ]
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0)

    def _by_members(self, part: Component) -> Component:
        """With the batch in one dimension, (b, 1) or (1, 1) where all members are alike; float64."""

        def flat(value: Tensor, dims: int) -> Tensor:
            batch, tail = value.shape[: value.dim() - dims], value.shape[value.dim() - dims :]
            value = value.expand(*self.model_batch_shape, *tail) if batch.numel() > 1 else value
            return value.double().reshape(-1, 1, *tail)

        return replace(part.mapped(flat), measurement=part.measurement.double())


def _terms(
    kernel: Kernel, scales: tuple[ScaleKernel, ...]
) -> list[tuple[Kernel, Kernel, tuple[ScaleKernel, ...]]]:
    """Sums and scales unfolded."""
    if isinstance(kernel, ScaleKernel):
        return _terms(kernel.base_kernel, (*scales, kernel))
    if isinstance(kernel, AdditiveKernel):
        return [term for part in kernel.kernels for term in _terms(part, scales)]
    expected = "a SpatioTemporalKernel, or a sum of such, each perhaps in a ScaleKernel"
    validation.require(isinstance(kernel, SpatioTemporalKernel), "kernel", type(kernel).__name__, expected)
    assert isinstance(kernel, SpatioTemporalKernel)
    return [(kernel.space_kernel, kernel.time_kernel, scales)]


def _over_pairs(space: StateSpace, apart: Tensor) -> Tensor:
    """k(apart) of times ``... x batch x n x n`` apart."""

    def aligned(value: Tensor, dims: int) -> Tensor:
        batch = value.dim() - dims
        return value.reshape(*value.shape[:batch], 1, 1, *value.shape[batch:])

    return StateSpace(tuple(part.mapped(aligned) for part in space.components)).value(apart)
