"""A Gaussian process posterior the slow and obvious way: one dense solve in float64, no batch, no update."""

import math
from collections.abc import Callable
from typing import NamedTuple

import gpytorch
import torch
from gpytorch.kernels import Kernel
from torch import Tensor


class DensePosterior(NamedTuple):
    mean: Tensor  # (m,)
    covariance: Tensor  # (m, m)
    information_gain: float  # 1/2 log det(I + K / noise)
    log_likelihood: float


def dense_posterior(
    kernel: Kernel | Callable[[Tensor, Tensor], Tensor],
    X: Tensor,
    y: Tensor,
    noise: float,
    Xtest: Tensor,
    prior_mean: float | Callable[[Tensor], Tensor] = 0.0,
) -> DensePosterior:
    """Posterior at Xtest (m, d) given y (n,) at X (n, d); Rasmussen & Williams 2006, equations 2.25, 2.26 and 2.30.

    Args:
        kernel: a GPyTorch kernel without batch, or a function of two matrices of inputs.
        noise: noise variance, a number, or one per observation, (n,).
        prior_mean: a number or a function of inputs (m, d) -> (m,).
    """

    def k(a: Tensor, b: Tensor) -> Tensor:
        if not isinstance(kernel, Kernel):
            return kernel(a, b)
        with torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
            return kernel(a, b).to_dense()

    def mean(a: Tensor) -> Tensor:
        return prior_mean(a).detach() if callable(prior_mean) else torch.full_like(a[:, 0], prior_mean)

    if len(X) == 0:
        return DensePosterior(mean(Xtest), k(Xtest, Xtest), 0.0, 0.0)
    each, residual, B = torch.as_tensor(noise, dtype=torch.float64).expand(len(X)), y - mean(X), k(X, Xtest)
    A = k(X, X) + each.diag()
    solved = torch.linalg.solve(A, torch.cat([residual.unsqueeze(-1), B], -1))
    log_det = torch.linalg.slogdet(A).logabsdet
    return DensePosterior(
        mean(Xtest) + B.T @ solved[:, 0],
        k(Xtest, Xtest) - B.T @ solved[:, 1:],
        0.5 * float(log_det - each.log().sum()),
        -0.5 * float(residual @ solved[:, 0] + log_det + len(X) * math.log(2 * math.pi)),
    )
