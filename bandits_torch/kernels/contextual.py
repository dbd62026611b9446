"""Kernels over arm x context, from one over arms and one over contexts; offsets of periods."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation

COMBINATIONS = ("product", "sum", "additive")


def arm_context_kernel(
    arm_kernel: Kernel, context_kernel: Kernel, arm_dim: int, context_dim: int, combine: str = "product"
) -> Kernel:
    """A kernel over [features of an arm, context], (d + c) columns, by GPyTorch's own sums and products of kernels.

    * ``"product"``: k(x, x') h(z, z'): arms are alike if their features are, in contexts that are.
    * ``"sum"``: k(x, x') + h(z, z'): a context moves all arms alike, and the best arm is the same in all. For what
      stands beside the arms' own rewards: the offset of a period (``PeriodKernel``), a cycle.
    * ``"additive"``: k + h + k h = (1 + k) (1 + h) - 1: effects of arm and context, and their interaction.

    Args:
        arm_kernel: k, over the d columns of the features.
        context_kernel: h, over the c columns of the context.
        arm_dim, context_dim: d and c, >= 1.
        combine: one of the three.

    Copies of both are used. Raises ValueError for other kinds of arguments.

    Source: Krause & Ong 2011, section 5.1 (products and sums of kernels over actions and contexts); Duvenaud,
    Nickisch & Rasmussen 2011, Additive Gaussian processes, for the sum of all orders.
    """
    validation.positive_integer("arm_dim", arm_dim)
    validation.positive_integer("context_dim", context_dim)
    validation.require(combine in COMBINATIONS, "combine", combine, f"one of {', '.join(COMBINATIONS)}")
    k = _over("arm_kernel", arm_kernel, 0, arm_dim)
    h = _over("context_kernel", context_kernel, arm_dim, context_dim)
    if combine == "product":
        return k * h
    if combine == "sum":
        return k + h
    return k + h + copy.deepcopy(k) * copy.deepcopy(h)


def _over(name: str, kernel: Kernel, first: int, count: int) -> Kernel:
    """A copy that reads ``count`` columns from this one on; its own choice of columns is one among them."""
    validation.instance(name, kernel, Kernel, "a gpytorch.kernels.Kernel")
    kernel = copy.deepcopy(kernel)
    own = kernel.active_dims
    if own is not None:
        validation.require(int(own.max()) < count, f"{name}.active_dims", own, f"below {count}")
    kernel.active_dims = first + (torch.arange(count) if own is None else own)
    return kernel


@validation.names_arguments
class PeriodKernel(Kernel):
    """h(p, p') = v where p = p', else 0: an offset of its own for each period, shared by all arms.

    In a sum with a kernel over arms (``arm_context_kernel(..., combine="sum")``) a reward is f(x) + b_p + noise with
    independent b_p ~ N(0, v): batches, plates, days, operators. Rewards of one period are compared with each other,
    and arms across periods through arms that were pulled in both. A control arm is an arm whose own reward is known:
    a zero row in an ``ArmCovarianceKernel``, so that its pulls tell b_p up to noise.

    Args:
        variance: v >= 0, in squared units of reward: a number or a tensor of the batch shape. It is fixed, not a
            parameter.
        batch_shape: shape of a batch of kernels.
        kwargs: passed to ``gpytorch.kernels.Kernel``.

    Inputs are ``... x n x 1``, any number that names the period; one of a clock in float64, since float32 has one name
    for two minutes of 1.7e9 seconds. Cost: O(n m). Raises ValueError for a negative variance and for inputs of more
    columns.

    Source: a random effect of a group in a linear mixed model, in the dual form (Rasmussen & Williams 2006,
    section 2.7, of explicit basis functions).
    """

    variance: Tensor

    def __init__(
        self, variance: float | Tensor = 1.0, batch_shape: Sequence[int] = (), **kwargs: Any
    ) -> None:
        super().__init__(batch_shape=torch.Size(batch_shape), **kwargs)
        like = variance if isinstance(variance, Tensor) else torch.empty((), dtype=torch.float64)
        value = validation.finite_tensor("variance", validation.numbers("variance", variance, like))
        validation.require(bool((value >= 0).all()), "variance", variance, "finite and >= 0")
        self.register_buffer("variance", value.expand(self.batch_shape).clone())

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the variance."""
        return self.variance.dtype

    @property
    def device(self) -> torch.device:
        """Device of the variance."""
        return self.variance.device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Covariance ``... x n x m`` (``... x n`` with ``diag``)."""
        ok = x1.shape[-1] == 1 and x2.shape[-1] == 1
        validation.shape_is("x1 of a period kernel", x1, ok, "(..., n, 1), a single column of periods")
        if diag:
            return self.variance.unsqueeze(-1) * (x1 == x2).squeeze(-1).to(self.variance)
        return self.variance[..., None, None] * (x1 == x2.mT).to(self.variance)
