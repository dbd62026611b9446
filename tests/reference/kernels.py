"""Kernels that tests begin with."""

from gpytorch.kernels import RBFKernel
from torch import Tensor


def rbf(lengthscale: float | Tensor) -> RBFKernel:
    """A squared exponential kernel in float64. A Python number is rounded to float32, as GPyTorch does."""
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return kernel
