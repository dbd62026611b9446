"""Kernels over time: Markov kernels, for which future and past are independent given the present, and kernels with a
linear Gaussian state, for cycles and smooth drift."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
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


class TimeKernel(Kernel, ABC):
    """A covariance between times, given element by element.

    Subclasses implement ``covariance``; ``forward`` calls it. Inputs are times in one column, ``... x n x 1``, in any
    unit.
    Source: Rasmussen & Williams 2006, chapter 4. Constructor arguments are those of ``gpytorch.kernels.Kernel``.
    """

    @abstractmethod
    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """Covariance between times ``s`` and ``t``, element by element.

        Args:
            s, t: times, tensors that broadcast to ``batch x n`` with ``batch`` broadcasting with the kernel's
                batch shape, or numbers.

        Returns:
            ``batch x n``; for two numbers (or tensors without dimensions) ``batch_shape x 1``.
        """

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Covariance between two sets of times, ``... x n x m`` (``... x n`` with ``diag``). Cost: O(n m)."""
        ok = x1.shape[-1] == 1 and x2.shape[-1] == 1
        validation.shape_is("x1 of a time kernel", x1, ok, "(..., n, 1), a single column of times")
        if diag:
            return self.covariance(x1.squeeze(-1), x2.squeeze(-1))
        s, t = torch.broadcast_tensors(x1, x2.mT)
        # One row of n m pairs, so parameters of shape (*batch_shape, 1) broadcast as for a row of times.
        return self.covariance(s.flatten(-2), t.flatten(-2)).unflatten(-1, s.shape[-2:])


class MarkovTimeKernel(TimeKernel):
    """A covariance k(s, t) between times with k(r, t) k(s, s) = k(r, s) k(s, t) for r <= s <= t.

    With such a kernel, a model over a fixed set of arms updates its posterior from step to step without the past
    observations, and its state is one number per arm, the smallest possible.

    Parameters take the dtype of the tensors they are built from; Python numbers give float64.

    Source: Rasmussen & Williams 2006, appendix B.2.
    """

    def transition(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """(a, c) with f(t) = a f(s) + independent g of variance c, for s <= t; shapes as for ``covariance``.

        a = k(s, t) / k(s, s) and c = k(t, t) - a^2 k(s, s). A subclass should compute them from t - s if possible, so
        that large clock values lose no precision.
        """
        before = self.covariance(s, s)
        kept = self.covariance(s, t) / before
        return kept, self.covariance(t, t) - kept * kept * before

    def _register(self, name: str, value: float | Tensor, constraint: Interval, prior: Prior | None) -> None:
        """Register parameter ``raw_<name>`` of shape (*batch_shape, 1) with its constraint and its prior."""
        like = value if isinstance(value, Tensor) and value.is_floating_point() else torch.empty(()).double()
        raw = torch.zeros(*self.batch_shape, 1, dtype=like.dtype, device=like.device)
        self.register_parameter(f"raw_{name}", torch.nn.Parameter(raw))
        self.register_constraint(f"raw_{name}", constraint)
        setattr(self, name, value)
        if prior is not None:
            if not isinstance(prior, Prior):
                raise TypeError(f"Expected gpytorch.priors.Prior but got {type(prior).__name__}")
            self.register_prior(f"{name}_prior", prior, partial(value_of, name), partial(set_value, name))


def check_markov(kernel: Kernel) -> None:
    """Raise ValueError for a ``MarkovTimeKernel`` that defines only ``covariance``, if that is not Markov.

    It is tested at the times 0, s and 2 s, for s from 10^-2 to 10^4: some are near the kernel's memory.
    """
    if not isinstance(kernel, MarkovTimeKernel) or type(kernel).transition is not MarkovTimeKernel.transition:
        return
    k, s = kernel.covariance, torch.logspace(-2, 4, 13, dtype=torch.float64)
    with torch.no_grad():
        error = k(0 * s, 2 * s) * k(s, s) - k(0 * s, s) * k(s, 2 * s)
        scale = (k(0 * s, 0 * s) * k(2 * s, 2 * s)).sqrt() * k(s, s)
        markov = not bool((error.abs() > 1e-3 * scale).any())
    expected = "Markov, as it is a MarkovTimeKernel: k(r, t) k(s, s) = k(r, s) k(s, t) for r <= s <= t"
    validation.require(markov, "kernel.time_kernel", type(kernel).__name__, expected)


def _hyperparameter(name: str, what: str, expected: str) -> Any:
    """A property of shape ``batch_shape x 1``, stored as ``raw_<name>`` under its constraint."""

    def get(kernel: Kernel) -> Tensor:
        return getattr(kernel, f"raw_{name}_constraint").transform(getattr(kernel, f"raw_{name}"))

    def put(kernel: Kernel, value: float | Tensor) -> None:
        set_parameter(kernel, name, value, expected)

    return property(get, put, doc=f"{what}, ``batch_shape x 1``. Can be set.")


def value_of(name: str, kernel: Kernel) -> Tensor:
    """A hyperparameter. For a prior, ``partial(value_of, name)`` can be pickled, unlike GPyTorch's closures."""
    return getattr(kernel, name)


def set_value(name: str, kernel: Kernel, value: Tensor) -> None:
    """Set a hyperparameter to a draw of its prior."""
    setattr(kernel, name, value)


@validation.names_arguments
class ExponentialForgettingKernel(MarkovTimeKernel):
    """Exponential forgetting: k(t, t') = (1 - eps)^(|t - t'| / 2).

    A function with this kernel in time follows f_{t+1} = sqrt(1 - eps) f_t + sqrt(eps) g_t with independent
    draws g_t of the same prior (Bogunovic, Scarlett, Cevher 2016, Time-varying Gaussian process bandit
    optimization, equations 1-2 and section 3).

    Args:
        forgetting_rate: eps, per unit of time, strictly between 0 and 1; a number or a tensor of the batch
            shape (one rate per candidate prior, say).
        forgetting_rate_prior, forgetting_rate_constraint: over eps, and on it; (0, 1) by default.
        batch_shape: shape of a batch of kernels.

    Raises ValueError for a rate outside the constraint or of the wrong shape.
    """

    is_stationary = True
    forgetting_rate = _hyperparameter(
        "forgetting_rate", "eps per unit of time", "strictly between 0 and 1 and inside the constraint"
    )

    def __init__(
        self,
        forgetting_rate: float | Tensor = 0.03,
        forgetting_rate_prior: Prior | None = None,
        forgetting_rate_constraint: Interval | None = None,
        batch_shape: Sequence[int] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_shape=torch.Size(batch_shape), **kwargs)
        constraint = Interval(0.0, 1.0) if forgetting_rate_constraint is None else forgetting_rate_constraint
        inside = bool(constraint.lower_bound >= 0) and bool(constraint.upper_bound <= 1)
        validation.require(inside, "forgetting_rate_constraint", constraint, "an interval inside (0, 1)")
        self._register("forgetting_rate", forgetting_rate, constraint, forgetting_rate_prior)

    @property
    def decay(self) -> Tensor:
        """-ln(1 - eps) / 2, ``batch_shape x 1``: correlations fall as exp(-decay |t - t'|). Can be set."""
        return -0.5 * torch.log1p(-self.forgetting_rate)

    @decay.setter
    def decay(self, value: Tensor) -> None:
        self.forgetting_rate = -torch.expm1(-2 * value)

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """(1 - eps)^(|s - t| / 2), written as exp(log1p(-eps) |s - t| / 2) so that small rates keep their precision."""
        return torch.exp(0.5 * torch.log1p(-self.forgetting_rate) * elapsed_between(s, t).abs())

    def transition(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """a = (1 - eps)^((t - s) / 2) and c = 1 - a^2."""
        exponent = torch.log1p(-self.forgetting_rate) * elapsed_between(s, t)
        return torch.exp(0.5 * exponent), -torch.expm1(exponent)

    def state_space(self) -> StateSpace:
        """A state of one number, for sums and products with other kernels (``state_space_of``)."""
        return StateSpace.exponential(self.decay.squeeze(-1))


@validation.names_arguments
class WienerKernel(MarkovTimeKernel):
    """Uncertainty injection: k(t, t') = 1 + v max(0, min(t, t') - start).

    In a product with a kernel K over space the function is a draw of K at ``start`` and gains v K of prior
    covariance per unit of time (C <- C + v K on a posterior covariance C): a Wiener process in time. Times
    before ``start`` count as ``start``. The prior variance grows without bound, so theorems that
    assume k(x, x) <= 1 do not apply.

    Args:
        drift_variance: v > 0, prior variance gained per unit of time, in units of the prior variance at
            ``start``; a number or a tensor of the batch shape.
        start: the time at which the function has the prior variance.
        drift_variance_prior, drift_variance_constraint: over v, and on it; positive by default.
        batch_shape: shape of a batch of kernels.

    Raises ValueError for a drift variance outside the constraint or of the wrong shape, or ``start`` not finite.
    Source: the covariance of Brownian motion (Rasmussen & Williams 2006, appendix B.2), started from variance 1.
    """

    is_stationary = False
    drift_variance = _hyperparameter(
        "drift_variance", "v per unit of time", "a finite number > 0 and inside the constraint"
    )

    def __init__(
        self,
        drift_variance: float | Tensor = 0.01,
        start: float = 0.0,
        drift_variance_prior: Prior | None = None,
        drift_variance_constraint: Interval | None = None,
        batch_shape: Sequence[int] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_shape=torch.Size(batch_shape), **kwargs)
        self.start = validation.finite_number("start", start)
        constraint = Positive() if drift_variance_constraint is None else drift_variance_constraint
        above = bool(constraint.lower_bound >= 0)
        validation.require(above, "drift_variance_constraint", constraint, "an interval above 0")
        self._register("drift_variance", drift_variance, constraint, drift_variance_prior)

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        since_s, since_t = self._since_start(s), self._since_start(t)
        return 1.0 + self.drift_variance * torch.minimum(since_s, since_t)

    def transition(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """a = 1 and c = v (t - s), where only the time after ``start`` counts."""
        gained = self.drift_variance * (self._since_start(t) - self._since_start(s))
        return torch.ones_like(gained), gained

    def _since_start(self, t: Tensor | float) -> Tensor:
        """max(0, t - start), in float64 if ``t`` is a number."""
        return elapsed_between(self.start, t).clamp_min(0.0)


def set_parameter(kernel: Kernel, name: str, value: float | Tensor, expected: str) -> None:
    """Store a value > 0 of a hyperparameter as ``raw_<name>``, after checks.

    Raises ValueError for a value that is not finite, > 0 and inside the constraint (``expected`` is the text of the
    message), and for a shape that is not the parameter's and does not broadcast to the kernel's batch shape.
    """
    raw, constraint = getattr(kernel, f"raw_{name}"), getattr(kernel, f"raw_{name}_constraint")
    tensor = validation.numbers(name, value, raw)
    inside = (tensor > constraint.lower_bound) & (tensor < constraint.upper_bound)
    ok = bool((inside & (tensor > 0) & torch.isfinite(tensor)).all())
    validation.require(ok, name, value, expected)
    if tensor.shape != raw.shape:
        batch = kernel.batch_shape
        try:
            tensor = tensor.expand(batch)[(..., *[None] * (raw.dim() - len(batch)))]
        except RuntimeError:
            expected = f"of shape {tuple(batch)} (the batch shape) or {tuple(raw.shape)}"
            validation.require(False, name, tensor, expected)
    kernel.initialize(**{f"raw_{name}": constraint.inverse_transform(tensor)})


def elapsed_between(s: Tensor | float, t: Tensor | float) -> Tensor:
    """t - s; for two numbers in float64, whatever dtype the kernel has."""
    elapsed = t - s
    return elapsed if isinstance(elapsed, Tensor) else torch.tensor(elapsed, dtype=torch.float64)


class StateSpaceTimeKernel(TimeKernel):
    """A stationary kernel over time that has a linear Gaussian state.

    ``forward`` gives its covariance, so it works wherever a GPyTorch kernel does. ``state_space()`` gives its state,
    with which an ``ArmGP`` learns at a cost that does not grow with time. Its sum or product with a kernel that
    ``state_space_of`` supports is a ``StateSpaceTimeKernel`` too.

    Differences of times are taken first, so a clock of 1e9 loses no precision. Parameters take the dtype of the tensors
    they are built from; Python numbers give float64.

    Source: Hartikainen & Sarkka 2010.
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

    nu = 3/2 drifts smoothly: a trend lasts for about a length-scale. nu = 1/2 is exponential forgetting.

    Args:
        lengthscale: > 0, in units of time: a number, a tensor that broadcasts to ``batch_shape``, or one of shape
            ``batch_shape x 1 x 1``.
        nu: 0.5, 1.5 or 2.5.
        lengthscale_prior, lengthscale_constraint, batch_shape, active_dims: see ``gpytorch.kernels.MaternKernel``.

    Raises ValueError for any other ``nu``, and a length-scale that is not finite and > 0. Source: Hartikainen & Sarkka
    2010, section 4; Rasmussen & Williams 2006, equation 4.17.
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
        return StateSpace.matern(self.nu, _batch_of(self.lengthscale))


@validation.names_arguments
class PeriodicTimeKernel(StateSpaceTimeKernel, PeriodicKernel):
    """k(s, t) = exp(-2 sin^2(pi |s - t| / period) / lengthscale): GPyTorch's ``PeriodicKernel``, with a state of
    1 + 2 J numbers for J harmonics.

    Args:
        period_length: > 0, in units of time, for example a day. Shapes as for ``MaternTimeKernel``.
        lengthscale: > 0, without a unit, not squared: small values make sharp cycles and need more harmonics.
        order: J. The kernel then has harmonics 0 to J alone, and variance 1 - sum_{j > J} q_j. None: the kernel is
            exact, and its state has as many harmonics as ``tolerance`` needs (lengthscale 1: 11; 0.1: 26).
        tolerance: > 0, the largest error of a covariance of the state if ``order`` is None.
        period_length_prior, period_length_constraint, lengthscale_prior, lengthscale_constraint: GPyTorch's.
        batch_shape, active_dims: see ``gpytorch.kernels.PeriodicKernel``.

    Raises ValueError for parameters that are not finite and > 0 and an ``order`` that is not an integer >= 0. Source:
    Solin & Sarkka 2014, Explicit link between periodic covariance functions and state space models.
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
        elapsed = elapsed_between(s, t)
        if self.order is not None:
            lengthscale, period = (value.squeeze(-1) for value in (self.lengthscale, self.period_length))
            return StateSpace.periodic(lengthscale, period, self.order).value(elapsed)
        return _periodic(self, elapsed)

    def state_space(self) -> StateSpace:
        parameters = _batch_of(self.lengthscale), _batch_of(self.period_length)
        return StateSpace.periodic(*parameters, self.order, self.tolerance)


class _CombinedTimeKernel(StateSpaceTimeKernel):
    """A sum or a product, by the base class of GPyTorch that a subclass adds."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        nonempty = isinstance(kernels, Sequence) and len(kernels) > 0
        validation.require(nonempty, "kernels", kernels, "at least one kernel, in a sequence")
        for k, kernel in enumerate(kernels):
            kind = type(kernel).__name__
            validation.require(has_state_space(kernel), f"kernels[{k}]", kind, WITH_STATE_SPACE)
        super().__init__(*kernels)

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        return _covariance(self, s, t)

    def state_space(self) -> StateSpace:
        return state_space_of(self)


@validation.names_arguments
class SumOfTimeKernels(_CombinedTimeKernel, AdditiveKernel):
    """The sum of one or more ``kernels`` over time, each with a state (``state_space_of``); states are stacked.

    Raises ValueError for an empty sequence, and for a kernel without a state. Source: Solin & Sarkka 2014, section 3.4.
    """


@validation.names_arguments
class ProductOfTimeKernels(_CombinedTimeKernel, ProductKernel):
    """The product of one or more ``kernels`` over time; the state is the Kronecker product of states.

    Raises ValueError as ``SumOfTimeKernels`` does. Source: Solin & Sarkka 2014, section 3.4.
    """


@validation.names_arguments
class QuasiPeriodicKernel(ProductOfTimeKernels):
    """A cycle that changes slowly: ``PeriodicTimeKernel`` times ``MaternTimeKernel``.

    Args:
        period_length, lengthscale, order, tolerance: for the cycle, see ``PeriodicTimeKernel``.
        memory: length-scale of the Matern part, > 0, in units of time: about how long a cycle keeps its shape.
        nu: smoothness of the Matern part; 0.5 has the smallest state, 1 + 2 J numbers.
        batch_shape: batch shape of both parts.

    Raises ValueError as its parts do. Source: Solin & Sarkka 2014, section 3.4.
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

    Supported are kernels with ``state_space()`` (``StateSpaceTimeKernel``, ``ExponentialForgettingKernel``); GPyTorch's
    ``MaternKernel``, ``PeriodicKernel`` (to 1e-12), ``CosineKernel`` and ``ConstantKernel``; and ``ScaleKernel``,
    ``AdditiveKernel`` and ``ProductKernel`` of these. Raises ValueError for any other kernel.

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
    raise ValueError(f"kernel must be {WITH_STATE_SPACE}, got {type(kernel).__name__!r}")


WITH_STATE_SPACE = (
    "one with a state space: MaternTimeKernel, PeriodicTimeKernel, QuasiPeriodicKernel, ExponentialForgettingKernel, "
    "GPyTorch's MaternKernel, PeriodicKernel, CosineKernel, ConstantKernel, and scales, sums and products of these"
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
