"""Kernels that do not depend on distance: a covariance matrix of arms, offsets of periods, a wide neural network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation


@validation.names_arguments
class ArmCovarianceKernel(Kernel):
    """k(i, j) = C_ij for inputs that are arm indices 0..N-1, stored as floats in one column.

    Args:
        covariance: C, ``batch_shape x N x N``, symmetric and positive semi-definite. A copy is kept as a buffer:
            it moves with ``.to()`` and is saved in ``state_dict``, but is not a parameter.
        kwargs: passed to ``gpytorch.kernels.Kernel``, such as ``active_dims``.

    Inputs are ``... x n x 1``. On the CPU they are checked to be whole numbers in 0..N-1; on other devices
    they are not checked, because a check would synchronise with the device. Cost: O(n m).

    Raises ValueError for a matrix that is not square, finite, symmetric (to sqrt(machine epsilon) times its
    largest entry) or positive semi-definite (no eigenvalue below minus sqrt(machine epsilon) times the largest), and
    for an input that is not an arm's index.

    Source: a Gaussian process over a finite set is its covariance matrix (Rasmussen & Williams 2006, section 2.2).
    """

    def __init__(self, covariance: Tensor, **kwargs: Any) -> None:
        validation.covariance("covariance", covariance)
        covariance = (0.5 * (covariance + covariance.mT)).detach().clone()
        super().__init__(batch_shape=covariance.shape[:-2], **kwargs)
        self.register_buffer("covariance", covariance)

    @classmethod
    def from_table(cls, table: Tensor, shrinkage: float | str = "auto", **kwargs: Any) -> ArmCovarianceKernel:
        """The kernel of ``estimate_covariance(table, shrinkage)``."""
        return cls(estimate_covariance(table, shrinkage), **kwargs)

    @property
    def num_arms(self) -> int:
        """N."""
        return self.covariance.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the matrix."""
        return self.covariance.dtype

    @property
    def device(self) -> torch.device:
        """Device of the matrix."""
        return self.covariance.device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        i, j = self._arms(x1), self._arms(x2)
        if not diag:
            i, j = i.unsqueeze(-1), j.unsqueeze(-2)
        # Batch dimensions are indexed too, so no matrix is copied for each batch of inputs.
        trailing = 1 if diag else 2
        batch = [
            torch.arange(size, device=i.device).view(-1, *[1] * (self.covariance.dim() - 3 - b + trailing))
            for b, size in enumerate(self.covariance.shape[:-2])
        ]
        return self.covariance[(*batch, i, j)]

    def _arms(self, x: Tensor) -> Tensor:
        validation.shape_is("input of ArmCovarianceKernel", x, x.shape[-1] == 1, "(..., n, 1), arm indices")
        x = x.squeeze(-1)
        if x.device.type == "cpu" and not bool(((x >= 0) & (x < self.num_arms) & (x == x.round())).all()):
            raise ValueError(
                f"arm index must be an integer in 0..{self.num_arms - 1}, got {x.unique().tolist()}"
            )
        return x.long()


def over_indices(kernel: torch.nn.Module) -> bool:
    """Whether inputs are indices of arms: whether the kernel is or contains an ``ArmCovarianceKernel`` over all columns
    (no ``active_dims``)."""
    if getattr(kernel, "active_dims", None) is not None:
        return False
    return isinstance(kernel, ArmCovarianceKernel) or any(map(over_indices, kernel.children()))


def inputs_over(arms: Tensor, kernel: Kernel) -> Tensor:
    """The inputs of a kernel over arms: their features (N, d), or (N, 1) indices. Raises ValueError for a covariance of
    another number of arms."""
    if not over_indices(kernel):
        return arms
    n = arms.shape[-2]
    for part in kernel.modules():
        if isinstance(part, ArmCovarianceKernel):  # a larger matrix would be cut to its first arms
            validation.shape_is("kernel", part.covariance, part.num_arms == n, f"{n} x {n}, one row per arm")
    return torch.arange(n).to(arms).unsqueeze(-1)


def estimate_covariance(table: Tensor, shrinkage: float | str = "auto") -> Tensor:
    """Covariance between arms, estimated from past rewards and shrunk towards independent arms.

    C = (1 - a) S + a diag(S), with S the unbiased sample covariance.

    Args:
        table: T x N past rewards, one row per time and one column per arm; NaN where a reward is missing.
        shrinkage: a in [0, 1], or ``"auto"`` for a = sum_{i != j} Var(S_ij) / sum_{i != j} S_ij^2, clipped to
            [0, 1] (Schaefer & Strimmer 2005, A shrinkage approach to large-scale covariance matrix
            estimation, Statistical Applications in Genetics and Molecular Biology 4(1), target D), which
            minimises the expected squared error when the rows are independent.

    Returns:
        N x N, symmetric and positive semi-definite.

    Missing rewards: each column is centred by its mean, and S_ij uses the n_ij rows where both arms have
    a reward (0 where n_ij < 2). Such a matrix may be indefinite; negative eigenvalues of C are then set to 0,
    which can only raise variances. Cost: O(T N^2 + N^3).

    Raises ValueError for a table that is not two-dimensional, holds infinities, or has an arm with fewer than 2
    rewards, and for any other shrinkage.
    """
    validation.tensor("table", table)
    validation.shape_is("table", table, table.dim() == 2 and table.numel() > 0, "(T, N)")
    validation.require(not bool(torch.isinf(table).any()), "table", table, "free of infinities")
    validation.rewards("table", torch.where(torch.isnan(table), 0.0, table))
    automatic = isinstance(shrinkage, str) and shrinkage == "auto"
    ok = automatic or (validation.is_number(shrinkage) and 0 <= shrinkage <= 1)
    validation.require(ok, "shrinkage", shrinkage, "'auto' or a number in [0, 1]")
    held = ~torch.isnan(table)
    rewards = held.sum(0)
    validation.require(bool((rewards >= 2).all()), "table", rewards, "2 or more rewards of every arm")

    seen = held.to(table.dtype)
    n = seen.T @ seen
    centred = torch.where(held, table, 0.0)
    centred = torch.where(held, centred - centred.sum(0) / rewards, 0.0)
    mean_product = centred.T @ centred / n.clamp_min(1.0)
    unbias = torch.where(n >= 2, n / (n - 1).clamp_min(1.0), 0.0)
    sample = unbias * mean_product
    variances = sample.diagonal().diag()
    if automatic:
        # In units of a power of 2, which changes no digit, fourth powers neither overflow nor vanish.
        size = centred.abs().amax()
        unit = torch.ldexp(torch.ones_like(size), torch.frexp(size).exponent)
        squares, products = (centred / unit).square(), mean_product / unit / unit
        spread = squares.T @ squares - n * products.square()
        variance_of_sample = torch.where(n >= 2, n / (n - 1).clamp_min(1.0) ** 3, 0.0) * spread
        of_variances, of_squares = (
            matrix.sum() - matrix.diagonal().sum()
            for matrix in (variance_of_sample, (unbias * products).square())
        )
        amount = torch.nan_to_num(of_variances / of_squares, nan=1.0).clamp(0.0, 1.0)  # 0 / 0: S is diagonal
    else:
        amount = torch.as_tensor(float(shrinkage), dtype=table.dtype, device=table.device)
    matrix = (1 - amount) * sample + amount * variances
    matrix = 0.5 * (matrix + matrix.mT)
    values, vectors = torch.linalg.eigh(matrix)
    if bool(values[0] >= 0):
        return matrix
    clipped = (vectors * values.clamp_min(0.0)) @ vectors.mT
    return 0.5 * (clipped + clipped.mT)


@validation.names_arguments
class PeriodKernel(Kernel):
    """h(p, p') = v if p = p', else 0: an independent offset for each period, shared by all arms.

    In a sum with a kernel over arms (``arm_context_kernel(..., combine="sum")``) a reward is f(x) + b_p + noise with
    independent b_p ~ N(0, v): batches, plates, days, operators. Rewards of one period are compared with each other,
    and arms across periods through arms that were pulled in both. A control arm has a known f(x): give it a zero row
    in an ``ArmCovarianceKernel``, and its rewards measure b_p up to noise.

    Args:
        variance: v >= 0, in squared units of reward: a number or a tensor of the batch shape; not a parameter.
        batch_shape: shape of a batch of kernels.
        kwargs: passed to ``gpytorch.kernels.Kernel``.

    Inputs are ``... x n x 1``, any number that identifies the period. Use float64 for times of a clock: at 1.7e9
    seconds, float32 cannot tell two minutes apart. Cost: O(n m). Raises ValueError for a negative variance and for
    inputs of more than one column.

    Source: the random effect of a group in a linear mixed model (Rasmussen & Williams 2006, section 2.7).
    """

    variance: Tensor

    def __init__(
        self, variance: float | Tensor = 1.0, batch_shape: Sequence[int] = (), **kwargs: Any
    ) -> None:
        super().__init__(batch_shape=torch.Size(batch_shape), **kwargs)
        like = variance if isinstance(variance, Tensor) else torch.empty((), dtype=torch.float64)
        value = validation.finite_tensor("variance", validation.numbers("variance", variance, like))
        validation.require(bool((value >= 0).all()), "variance", variance, "finite and >= 0")
        try:
            value = value.expand(self.batch_shape)
        except RuntimeError:
            expected = f"that broadcasts to batch_shape {tuple(self.batch_shape)}"
            validation.shape_is("variance", value, False, expected)
        self.register_buffer("variance", value.clone())

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the variance."""
        return self.variance.dtype

    @property
    def device(self) -> torch.device:
        """Device of the variance."""
        return self.variance.device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        ok = x1.shape[-1] == 1 and x2.shape[-1] == 1
        validation.shape_is("x1 of a period kernel", x1, ok, "(..., n, 1), a single column of periods")
        if diag:
            return self.variance.unsqueeze(-1) * (x1 == x2).squeeze(-1).to(self.variance)
        return self.variance[..., None, None] * (x1 == x2.mT).to(self.variance)


@validation.names_arguments
class NeuralTangentKernel(Kernel):
    """H(x, x') = lim <grad f(x), grad f(x')> / m for f = sqrt(m) W_L relu(W_{L-1} ... relu(W_1 x)), weights N(0, 2/m).

    With S_0 = x^T x', n = |x| |x'|, t_l = arccos(S_l / n) and l = 0, ..., L - 2,

        S_{l+1} = n (sin t_l + (pi - t_l) cos t_l) / pi,     H_{l+1} = H_l (pi - t_l) / pi + S_{l+1},   H_0 = S_0,

    (Jacot et al. 2018; arc-cosine kernels of Cho & Saul 2009). H(x, x) = L |x|^2: set ``normalise`` for a bound of 1
    on the unit sphere. The network has no biases, so H is homogeneous: scale the inputs to similar norms.

    Args:
        depth: L, number of weight matrices, >= 1; 1 gives the linear kernel.
        normalise: divide by L.

    Cost O(L n m) for n and m inputs. Raises ValueError for a ``depth`` below 1.
    """

    is_stationary = False

    def __init__(self, depth: int = 3, normalise: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.depth = validation.positive_integer("depth", depth)
        self.normalise = normalise

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        first, second = x1.norm(dim=-1), x2.norm(dim=-1)
        if diag:
            inner, scale = (x1 * x2).sum(-1), first * second
        else:
            inner, scale = x1 @ x2.mT, first.unsqueeze(-1) * second.unsqueeze(-2)
        covariance = tangent = inner
        tiny = torch.finfo(scale.dtype).tiny  # a vector may be 0
        for _ in range(self.depth - 1):
            cosine = (covariance / scale.clamp_min(tiny)).clamp(-1.0, 1.0)
            # At +-1 the derivatives of arccos and of the root are infinite, and the gradient would be NaN.
            safe = torch.where(cosine.abs() < 1, cosine, cosine.detach())
            share = (math.pi - torch.arccos(safe)) / math.pi
            covariance = scale * ((1 - safe.square()).clamp_min(0.0).sqrt() / math.pi + share * cosine)
            tangent = tangent * share + covariance
        return tangent / self.depth if self.normalise else tangent
