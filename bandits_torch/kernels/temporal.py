"""Kernels over time, and the Markov ones: given the present, the future does not depend on the past."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.state_space import StateSpace

_RATE = "strictly between 0 and 1 and inside the constraint"
_VARIANCE = "a finite number > 0 and inside the constraint"


class TimeKernel(Kernel, ABC):
    """A covariance between times, given element by element.

    Subclasses implement ``covariance``; ``forward`` calls it. Inputs are times in one column, ``... x n x 1``.
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
        # One row of n m pairs, so that parameters of shape (*batch_shape, 1) broadcast as for a row of times.
        return self.covariance(s.flatten(-2), t.flatten(-2)).unflatten(-1, s.shape[-2:])


class MarkovTimeKernel(TimeKernel):
    """A covariance k(s, t) between times with k(r, t) k(s, s) = k(r, s) k(s, t) for r <= s <= t.

    With such a kernel, a model over a fixed set of arms updates its posterior from step to step without the past
    observations, and its state is one number per arm: no other kernel is as cheap.
    Inputs of the kernel are times in one column, ``... x n x 1``, in any unit.

    Parameters take the dtype of the tensors they are built from; Python numbers give float64.

    Source: Rasmussen & Williams 2006, appendix B.2. Constructor arguments are those of ``gpytorch.kernels.Kernel``.
    """

    def transition(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """(a, c) with f(t) = a f(s) + independent g of variance c, for s <= t; shapes as for ``covariance``.

        a = k(s, t) / k(s, s) and c = k(t, t) - a^2 k(s, s). A subclass should compute them from t - s if possible, so
        that large clock values lose no precision.
        """
        before = self.covariance(s, s)
        kept = self.covariance(s, t) / before
        return kept, self.covariance(t, t) - kept * kept * before

    def _register(
        self, name: str, value: float | Tensor, constraint: Interval, prior: Prior | None, expected: str
    ) -> None:
        """Register parameter ``raw_<name>`` of shape (*batch_shape, 1) with its constraint and its prior."""
        like = value if isinstance(value, Tensor) and value.is_floating_point() else torch.empty(()).double()
        raw = torch.zeros(*self.batch_shape, 1, dtype=like.dtype, device=like.device)
        self.register_parameter(f"raw_{name}", torch.nn.Parameter(raw))
        self.register_constraint(f"raw_{name}", constraint)
        set_parameter(self, name, value, expected)
        if prior is not None:
            if not isinstance(prior, Prior):
                raise TypeError(f"Expected gpytorch.priors.Prior but got {type(prior).__name__}")
            self.register_prior(f"{name}_prior", prior, partial(_read, name), partial(_write, name))


def _hyperparameter(name: str, what: str, expected: str) -> Any:
    """A property of shape ``batch_shape x 1``, stored as ``raw_<name>`` under its constraint."""

    def get(kernel: Kernel) -> Tensor:
        return getattr(kernel, f"raw_{name}_constraint").transform(getattr(kernel, f"raw_{name}"))

    def put(kernel: Kernel, value: float | Tensor) -> None:
        set_parameter(kernel, name, value, expected)

    return property(get, put, doc=f"{what}, ``batch_shape x 1``. Can be set.")


def _read(name: str, module: Kernel) -> Tensor:
    return getattr(module, name)


def _write(name: str, module: Kernel, value: Tensor) -> None:
    setattr(module, name, value)


@validation.names_arguments
class ExponentialForgettingKernel(MarkovTimeKernel):
    """Exponential forgetting: k(t, t') = (1 - eps)^(|t - t'| / 2).

    A function with this kernel in time follows f_{t+1} = sqrt(1 - eps) f_t + sqrt(eps) g_t with independent
    draws g_t of the same prior (Bogunovic, Scarlett, Cevher 2016, Time-varying Gaussian process bandit
    optimization, equations 1-2 and section 3).

    Args:
        forgetting_rate: eps, per unit of time, strictly between 0 and 1; a number or a tensor of the batch
            shape (one rate per candidate prior, say).
        forgetting_rate_prior: prior over eps.
        forgetting_rate_constraint: constraint on eps; (0, 1) by default.
        batch_shape: shape of a batch of kernels.

    Raises:
        ValueError: for a rate outside the constraint or of another shape.
    """

    is_stationary = True
    forgetting_rate = _hyperparameter("forgetting_rate", "eps per unit of time", _RATE)

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
        self._register("forgetting_rate", forgetting_rate, constraint, forgetting_rate_prior, _RATE)

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """(1 - eps)^(|s - t| / 2), written as exp(log1p(-eps) |s - t| / 2) so that small rates keep their precision."""
        return torch.exp(0.5 * torch.log1p(-self.forgetting_rate) * elapsed_between(s, t).abs())

    def transition(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """a = (1 - eps)^((t - s) / 2) and c = 1 - a^2."""
        exponent = torch.log1p(-self.forgetting_rate) * elapsed_between(s, t)
        return torch.exp(0.5 * exponent), -torch.expm1(exponent)

    def state_space(self) -> StateSpace:
        """A state of one number, for sums and products with other kernels (``state_space_of``)."""
        return StateSpace.exponential(-0.5 * torch.log1p(-self.forgetting_rate).squeeze(-1))


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
        drift_variance_prior: prior over v.
        drift_variance_constraint: constraint on v; positive by default.
        batch_shape: shape of a batch of kernels.

    Raises:
        ValueError: for a drift variance outside the constraint or of another shape, or ``start`` not finite.

    Source: the covariance of Brownian motion (Rasmussen & Williams 2006, appendix B.2), started from variance 1.
    """

    is_stationary = False
    drift_variance = _hyperparameter("drift_variance", "v per unit of time", _VARIANCE)

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
        validation.require(
            bool(constraint.lower_bound >= 0), "drift_variance_constraint", constraint, "an interval above 0"
        )
        self._register("drift_variance", drift_variance, constraint, drift_variance_prior, _VARIANCE)

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """1 + v max(0, min(s, t) - start)."""
        since_s, since_t = self._since_start(s), self._since_start(t)
        return 1.0 + self.drift_variance * torch.minimum(since_s, since_t)

    def transition(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """a = 1 and c = v (t - s), where only the time after ``start`` counts."""
        gained = self.drift_variance * (self._since_start(t) - self._since_start(s))
        return torch.ones_like(gained), gained

    def _since_start(self, t: Tensor | float) -> Tensor:
        """max(0, t - start), subtracted in float64 where ``t`` is a number."""
        return elapsed_between(self.start, t).clamp_min(0.0)


def set_parameter(kernel: Kernel, name: str, value: float | Tensor, expected: str) -> None:
    """Store a value > 0 of a hyperparameter as ``raw_<name>``, after checks.

    Raises ValueError for a value that is not finite, > 0 and inside the constraint (``expected`` says so in words), and
    for one whose shape is neither the parameter's nor broadcasts to the kernel's batch shape.
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
