"""Kernels over time for cycles and smooth drift: covariances of GPyTorch that also have a linear Gaussian state."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    ScaleKernel,
)
from gpytorch.priors import Prior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.state_space import TOLERANCE, StateSpace
from bandits_torch.kernels.temporal import (
    ExponentialForgettingKernel,
    TimeKernel,
    elapsed_between,
    set_parameter,
)


class StateSpaceTimeKernel(TimeKernel):
    """A stationary kernel over time that is also a linear Gaussian state.

    ``forward`` gives its covariance, so it works wherever a GPyTorch kernel does. ``state_space()`` gives its state,
    with which an ``ArmGP`` learns at a cost that does not grow with time. ``+`` and ``*`` of two such kernels, or of
    one and another kernel that ``state_space_of`` supports, give such a kernel.

    Inputs are times in one column, ``... x n x 1``, in any unit. Differences are taken first, so a clock of 1e9 loses
    no precision. Parameters take the dtype of the tensors they are built from; Python numbers give float64.

    Source: Hartikainen & Sarkka 2010. Constructor arguments are those of ``gpytorch.kernels.Kernel``.
    """

    @abstractmethod
    def state_space(self) -> StateSpace:
        """The linear Gaussian state for the current hyperparameters, of the kernel's batch shape."""

    def __add__(self, other: Kernel) -> Kernel:
        return SumOfTimeKernels([self, other]) if has_state_space(other) else super().__add__(other)

    def __mul__(self, other: Kernel) -> Kernel:
        return ProductOfTimeKernels([self, other]) if has_state_space(other) else super().__mul__(other)


@validation.names_arguments
class MaternTimeKernel(StateSpaceTimeKernel, MaternKernel):
    """Matern over time, nu = 1/2, 3/2 or 5/2: GPyTorch's ``MaternKernel``, with its state of 1, 2 or 3 numbers.

    nu = 3/2 drifts smoothly: a trend goes on for about a length-scale. nu = 1/2 is exponential forgetting.

    Args:
        lengthscale: > 0, in units of time; a number or a tensor that broadcasts to ``batch_shape x 1 x 1``.
        nu: 0.5, 1.5 or 2.5.
        lengthscale_prior, lengthscale_constraint, batch_shape, active_dims: of ``gpytorch.kernels.MaternKernel``.

    Raises ValueError for another ``nu``, and a length-scale that is not finite and > 0.

    Source: Hartikainen & Sarkka 2010, section 4; Rasmussen & Williams 2006, equation 4.17.
    """

    def __init__(
        self,
        lengthscale: float | Tensor = 1.0,
        nu: float = 1.5,
        *,
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
        batch_shape: Sequence[int] = (),
        active_dims: Sequence[int] | None = None,
    ) -> None:
        validation.require(isinstance(nu, float) and nu in (0.5, 1.5, 2.5), "nu", nu, "0.5, 1.5 or 2.5")
        super().__init__(
            nu=nu,
            lengthscale_prior=lengthscale_prior,
            lengthscale_constraint=lengthscale_constraint,
            batch_shape=torch.Size(batch_shape),
            active_dims=active_dims,
        )
        _set_parameters(self, lengthscale=lengthscale)

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """e^{-x} times 1, 1 + x or 1 + x + x^2 / 3, with x = sqrt(2 nu) |s - t| / lengthscale."""
        return _matern(self, elapsed_between(s, t))

    def state_space(self) -> StateSpace:
        """See ``StateSpace.matern``."""
        return StateSpace.matern(self.nu, _batch_of(self.lengthscale))


@validation.names_arguments
class PeriodicTimeKernel(StateSpaceTimeKernel, PeriodicKernel):
    """k(s, t) = exp(-2 sin^2(pi |s - t| / period) / lengthscale): GPyTorch's ``PeriodicKernel``, with a state of
    1 + 2 J numbers for J harmonics.

    Args:
        period_length: > 0, in units of time: a day, say. A number or a tensor, as ``lengthscale``.
        lengthscale: > 0, without a unit, not squared: small values make sharp cycles and need more harmonics.
        order: J; the kernel then also has these harmonics only, and variance 1 - sum_{j > J} q_j. None: as many
            as leave out at most ``tolerance`` of the variance of 1 (lengthscale 1: 12; 0.1: 26), and the kernel
            is exact.
        tolerance: > 0, the largest error of a covariance of the state.
        period_length_prior, period_length_constraint, lengthscale_prior, lengthscale_constraint: GPyTorch's.
        batch_shape, active_dims: of ``gpytorch.kernels.PeriodicKernel``.

    Raises ValueError for parameters that are not finite and > 0 and an ``order`` that is not an integer >= 0.

    Source: Solin & Sarkka 2014, Explicit link between periodic covariance functions and state space models.
    """

    def __init__(
        self,
        period_length: float | Tensor = 1.0,
        lengthscale: float | Tensor = 1.0,
        *,
        order: int | None = None,
        tolerance: float = TOLERANCE,
        period_length_prior: Prior | None = None,
        period_length_constraint: Interval | None = None,
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
        batch_shape: Sequence[int] = (),
        active_dims: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            period_length_prior=period_length_prior,
            period_length_constraint=period_length_constraint,
            lengthscale_prior=lengthscale_prior,
            lengthscale_constraint=lengthscale_constraint,
            batch_shape=torch.Size(batch_shape),
            active_dims=active_dims,
        )
        self.order = None if order is None else validation.natural("order", order)
        self.tolerance = validation.positive("tolerance", tolerance)
        _set_parameters(self, period_length=period_length, lengthscale=lengthscale)

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """The formula above, or the sum of the harmonics up to ``order``."""
        elapsed = elapsed_between(s, t)
        if self.order is not None:
            lengthscale, period = (value.squeeze(-1) for value in (self.lengthscale, self.period_length))
            return StateSpace.periodic(lengthscale, period, self.order).value(elapsed)
        return _periodic(self, elapsed)

    def state_space(self) -> StateSpace:
        """See ``StateSpace.periodic``."""
        parameters = _batch_of(self.lengthscale), _batch_of(self.period_length)
        return StateSpace.periodic(*parameters, self.order, self.tolerance)


class _OfTimeKernels(StateSpaceTimeKernel):
    """Base of sums and products."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        some = isinstance(kernels, Sequence) and len(kernels) > 0
        validation.require(some, "kernels", kernels, "at least one kernel, in a sequence")
        for kernel in kernels:
            validation.require(has_state_space(kernel), "kernels", type(kernel).__name__, KNOWN)
        super().__init__(*kernels)

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """The sum, or the product, of the covariances."""
        return _covariance(self, s, t)

    def state_space(self) -> StateSpace:
        """The states stacked, or their Kronecker product."""
        return state_space_of(self)


@validation.names_arguments
class SumOfTimeKernels(_OfTimeKernels, AdditiveKernel):
    """The sum of kernels over time; states are stacked.

    Args:
        kernels: one or more, each with a state (``state_space_of``).

    Raises ValueError for an empty sequence, and for a kernel without a state.

    Source: Solin & Sarkka 2014, section 3.4.
    """


@validation.names_arguments
class ProductOfTimeKernels(_OfTimeKernels, ProductKernel):
    """The product of kernels over time; the state is the Kronecker product of states.

    Args:
        kernels: one or more, each with a state (``state_space_of``).

    Raises ValueError for an empty sequence, and for a kernel without a state.

    Source: Solin & Sarkka 2014, section 3.4.
    """


@validation.names_arguments
class QuasiPeriodicKernel(ProductOfTimeKernels):
    """A cycle that changes slowly: ``PeriodicTimeKernel`` times ``MaternTimeKernel``.

    Args:
        period_length, lengthscale, order, tolerance: of the cycle, see ``PeriodicTimeKernel``.
        memory: length-scale of the Matern part, > 0, in units of time: how long a cycle keeps its shape.
        nu: of the Matern part; 0.5 has the smallest state, 1 + 2 J numbers.
        batch_shape: of both parts.

    Raises ValueError as its parts do.

    Source: Solin & Sarkka 2014, section 3.4.
    """

    def __init__(
        self,
        period_length: float | Tensor = 1.0,
        lengthscale: float | Tensor = 1.0,
        memory: float | Tensor = 10.0,
        *,
        nu: float = 0.5,
        order: int | None = None,
        tolerance: float = TOLERANCE,
        batch_shape: Sequence[int] = (),
    ) -> None:
        batch = torch.Size(batch_shape)
        settings: dict[str, Any] = {"order": order, "tolerance": tolerance, "batch_shape": batch}
        cycle = PeriodicTimeKernel(period_length, lengthscale, **settings)
        length = validation.numbers("memory", memory, cycle.lengthscale)
        ok = bool((torch.isfinite(length) & (length > 0)).all())
        validation.require(ok, "memory", memory, "finite and > 0")
        super().__init__([cycle, MaternTimeKernel(length, nu, batch_shape=batch)])


def state_space_of(kernel: Kernel) -> StateSpace:
    """The linear Gaussian state of a kernel over time, of the kernel's batch shape, for its current hyperparameters.

    It supports kernels with a ``state_space()`` (``StateSpaceTimeKernel``, ``ExponentialForgettingKernel``), and of
    GPyTorch ``MaternKernel``, ``PeriodicKernel`` (to 1e-12), ``CosineKernel``, ``ConstantKernel``, ``ScaleKernel``,
    ``AdditiveKernel`` and ``ProductKernel`` of these. Raises ValueError for any other.

    Source: Hartikainen & Sarkka 2010; Solin & Sarkka 2014.
    """
    with torch.no_grad():
        if isinstance(kernel, AdditiveKernel):
            return functools.reduce(StateSpace.__add__, map(state_space_of, kernel.kernels))
        if isinstance(kernel, ProductKernel):
            return functools.reduce(StateSpace.__mul__, map(state_space_of, kernel.kernels))
        if isinstance(kernel, StateSpaceTimeKernel | ExponentialForgettingKernel):
            return kernel.state_space()
        if isinstance(kernel, ScaleKernel):
            return state_space_of(kernel.base_kernel).scaled(kernel.outputscale)
        if isinstance(kernel, ConstantKernel):
            return StateSpace.constant(kernel.constant.squeeze(-1))
        if isinstance(kernel, MaternKernel):
            return StateSpace.matern(kernel.nu, _batch_of(kernel.lengthscale))
        if isinstance(kernel, PeriodicKernel):
            return StateSpace.periodic(_batch_of(kernel.lengthscale), _batch_of(kernel.period_length))
        if isinstance(kernel, CosineKernel):  # cos(pi tau / period)
            return StateSpace.cosine(math.pi / _batch_of(kernel.period_length))
    validation.require(False, "kernel", type(kernel).__name__, KNOWN)
    raise AssertionError


KNOWN = (
    "Markov (a MarkovTimeKernel), or have a state space: MaternTimeKernel, PeriodicTimeKernel, QuasiPeriodicKernel, "
    "ExponentialForgettingKernel, GPyTorch's MaternKernel, PeriodicKernel, CosineKernel, ConstantKernel, and scales, "
    "sums and products of these"
)


def has_state_space(kernel: Any) -> bool:
    """Whether ``state_space_of`` supports this kind of kernel. Parts of sums and products are checked too."""
    if isinstance(kernel, ScaleKernel):
        return has_state_space(kernel.base_kernel)
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        return all(has_state_space(part) for part in kernel.kernels)
    single = (StateSpaceTimeKernel, ExponentialForgettingKernel, MaternKernel, PeriodicKernel, CosineKernel)
    return isinstance(kernel, (*single, ConstantKernel))


def _covariance(kernel: Kernel, s: Tensor | float, t: Tensor | float) -> Tensor:
    """Covariance between times element by element, ``batch x n``: GPyTorch's formulas, from differences of times."""
    if isinstance(kernel, AdditiveKernel):
        return functools.reduce(torch.add, [_covariance(part, s, t) for part in kernel.kernels])
    if isinstance(kernel, ProductKernel):
        return functools.reduce(torch.mul, [_covariance(part, s, t) for part in kernel.kernels])
    if isinstance(kernel, TimeKernel):
        return kernel.covariance(s, t)
    if isinstance(kernel, ScaleKernel):
        return kernel.outputscale.unsqueeze(-1) * _covariance(kernel.base_kernel, s, t)
    elapsed = elapsed_between(s, t)
    if isinstance(kernel, ConstantKernel):
        return kernel.constant * torch.ones_like(elapsed)
    if isinstance(kernel, CosineKernel):
        return torch.cos(math.pi * elapsed / kernel.period_length.squeeze(-1))
    return _matern(kernel, elapsed) if isinstance(kernel, MaternKernel) else _periodic(kernel, elapsed)


def _matern(kernel: MaternKernel, elapsed: Tensor) -> Tensor:
    x = math.sqrt(2 * kernel.nu) * elapsed.abs() / kernel.lengthscale.squeeze(-1)
    return {0.5: 1.0, 1.5: 1 + x, 2.5: 1 + x + x.square() / 3}[kernel.nu] * torch.exp(-x)


def _periodic(kernel: PeriodicKernel, elapsed: Tensor) -> Tensor:
    wave = (math.pi * elapsed / kernel.period_length.squeeze(-1)).sin().square()
    return torch.exp(-2 * wave / kernel.lengthscale.squeeze(-1))


def _batch_of(parameter: Tensor) -> Tensor:
    """A parameter ``batch x 1 x 1`` as ``batch``."""
    return parameter.squeeze(-1).squeeze(-1)


def _set_parameters(kernel: Kernel, **parameters: float | Tensor) -> None:
    """Set hyperparameters in the dtype of the tensors among them; float64 if all are Python numbers."""
    given = [v.dtype for v in parameters.values() if isinstance(v, Tensor) and v.is_floating_point()]
    kernel.to(functools.reduce(torch.promote_types, given) if given else torch.float64)
    for name, value in parameters.items():
        set_parameter(kernel, name, value, "finite, > 0 and inside the constraint")
