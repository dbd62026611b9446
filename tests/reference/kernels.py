"""Kernels that tests begin with."""

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from torch import Tensor


def rbf(lengthscale: float | Tensor) -> RBFKernel:
    """A squared exponential kernel in float64. A Python number is rounded to float32, as GPyTorch does."""
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return kernel


def scaled(base: Kernel, value: float) -> ScaleKernel:
    """A multiple of a kernel."""
    kernel = ScaleKernel(base).double()
    kernel.outputscale = torch.tensor(value, dtype=torch.float64)
    return kernel
