"""GPyTorch kernels for rewards that change with time, and for arms without coordinates."""

from bandits_torch.kernels import fourier_features  # noqa: F401  # registers
from bandits_torch.kernels.arm_covariance import ArmCovarianceKernel, estimate_covariance
from bandits_torch.kernels.contextual import PeriodKernel, arm_context_kernel
from bandits_torch.kernels.neural_tangent import NeuralTangentKernel
from bandits_torch.kernels.smooth_time import (
    MaternTimeKernel,
    PeriodicTimeKernel,
    ProductOfTimeKernels,
    QuasiPeriodicKernel,
    StateSpaceTimeKernel,
    SumOfTimeKernels,
    state_space_of,
)
from bandits_torch.kernels.spatio_temporal import SpatioTemporalKernel
from bandits_torch.kernels.stacked import StackedKernel
from bandits_torch.kernels.temporal import ExponentialForgettingKernel, MarkovTimeKernel, WienerKernel

__all__ = [
    "ArmCovarianceKernel",
    "ExponentialForgettingKernel",
    "MarkovTimeKernel",
    "MaternTimeKernel",
    "NeuralTangentKernel",
    "PeriodKernel",
    "PeriodicTimeKernel",
    "ProductOfTimeKernels",
    "QuasiPeriodicKernel",
    "SpatioTemporalKernel",
    "StackedKernel",
    "StateSpaceTimeKernel",
    "SumOfTimeKernels",
    "WienerKernel",
    "arm_context_kernel",
    "estimate_covariance",
    "state_space_of",
]
