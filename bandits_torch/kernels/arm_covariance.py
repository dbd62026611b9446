"""Covariance between arms that have no coordinates: a matrix, given or estimated from past rewards."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation


@validation.names_arguments
class ArmCovarianceKernel(Kernel):
    """k(i, j) = C_ij for inputs that are arm indices 0..N-1, stored as floats in one column.

    Args:
        covariance: C, ``batch_shape x N x N``, symmetric and positive semi-definite; copied. It is a buffer:
            it moves with ``.to()`` and is saved in ``state_dict``; it is not a parameter.
        kwargs: passed to ``gpytorch.kernels.Kernel``, such as ``active_dims``.

    Inputs are ``... x n x 1``. On the CPU they are checked to be whole numbers in 0..N-1; on other devices
    they are not checked, because a check would synchronise with the device. Cost: O(n m).

    Raises:
        ValueError: for a matrix that is not square, finite, symmetric (to sqrt(machine epsilon) times its
            largest entry) or positive semi-definite (no eigenvalue below minus sqrt(machine epsilon) times
            the largest); for an input that is not an arm's index.

    Source: a Gaussian process over a finite set is its covariance matrix (Rasmussen & Williams 2006, section 2.2).
    """

    def __init__(self, covariance: Tensor, **kwargs: Any) -> None:
        covariance = _checked(covariance)
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
        """Covariance ``... x n x m`` (``... x n`` with ``diag``)."""
        i, j = self._arms(x1), self._arms(x2)
        if not diag:
            i, j = i.unsqueeze(-1), j.unsqueeze(-2)
        # Indices for the batch dimensions too, so that no matrix is copied per batch of inputs.
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
                f"arm index must be a whole number in 0..{self.num_arms - 1}, got {x.unique().tolist()}"
            )
        return x.long()


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

    Missing rewards: each column is centred by its own mean, and S_ij uses the n_ij rows where both arms have
    a reward (0 where n_ij < 2). Such a matrix may be indefinite; negative eigenvalues of C are then set to 0,
    which can only raise variances. Cost: O(T N^2 + N^3).

    Raises:
        ValueError: for a table that is not two-dimensional, holds infinities, or has an arm with fewer than 2
            rewards; for another shrinkage.
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
        squares = centred.square()
        spread = squares.T @ squares - n * mean_product.square()
        variance_of_sample = torch.where(n >= 2, n / (n - 1).clamp_min(1.0) ** 3, 0.0) * spread
        amount = _off_diagonal_sum(variance_of_sample) / _off_diagonal_sum(sample.square())
        amount = torch.nan_to_num(amount, nan=1.0).clamp(0.0, 1.0)  # 0 / 0: nothing off the diagonal
    else:
        amount = torch.as_tensor(float(shrinkage), dtype=table.dtype, device=table.device)
    return _nearest_psd((1 - amount) * sample + amount * variances)


def _off_diagonal_sum(matrix: Tensor) -> Tensor:
    return matrix.sum() - matrix.diagonal().sum()


def _nearest_psd(matrix: Tensor) -> Tensor:
    """The matrix with its negative eigenvalues set to 0."""
    matrix = 0.5 * (matrix + matrix.mT)
    values, vectors = torch.linalg.eigh(matrix)
    if bool(values[0] >= 0):
        return matrix
    clipped = (vectors * values.clamp_min(0.0)) @ vectors.mT
    return 0.5 * (clipped + clipped.mT)


def _checked(covariance: Tensor) -> Tensor:
    validation.tensor("covariance", covariance)
    square = covariance.dim() >= 2 and covariance.shape[-1] == covariance.shape[-2] > 0
    validation.shape_is("covariance", covariance, square, "(*batch_shape, N, N)")
    validation.finite_tensor("covariance", covariance)
    tolerance = torch.finfo(covariance.dtype).eps ** 0.5
    asymmetry = (covariance - covariance.mT).abs().amax()
    validation.require(
        bool(asymmetry <= tolerance * covariance.abs().amax()),
        "covariance",
        f"a matrix with |C - C^T| up to {asymmetry.item()}",
        "symmetric",
    )
    symmetric = 0.5 * (covariance + covariance.mT)
    eigenvalues = torch.linalg.eigvalsh(symmetric)
    validation.require(
        bool((eigenvalues[..., 0] >= -tolerance * eigenvalues[..., -1].abs()).all()),
        "covariance",
        f"a matrix whose smallest eigenvalue is {eigenvalues[..., 0].min().item()}",
        "positive semi-definite",
    )
    return symmetric.detach().clone()
