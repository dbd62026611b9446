"""GPyTorch kernels for rewards that change with time, for arms without coordinates, and for arms in a context.

    symbol     in code               meaning                                           used by
    N          num_arms              number of arms                                    ArmCovarianceKernel
    n, m       x1, x2                numbers of inputs; a covariance is ... x n x m    all
    d, c       arm_dim, context_dim  columns: features of an arm, context              arm_context_kernel
    P          batch_shape           candidate priors, the last batch dimension        StackedKernel
    s, t, tau  s, t, elapsed         two times and t - s, in any unit                  kernels over time
    eps        forgetting_rate       rate of forgetting per unit of time, in (0, 1)    ExponentialForgettingKernel
    v          drift_variance        prior variance gained per unit of time            WienerKernel
    v          variance              variance of the offset of a period                PeriodKernel
    nu         nu                    smoothness of a Matern kernel                     MaternTimeKernel
    J, q_j     order                 harmonics of a cycle, and their variances         PeriodicTimeKernel
    P, h       covariance, ...       linear Gaussian state: covariance, output         StateSpace
    A          decay, waves          its step: s(t + tau) = A s(t) + noise             StateSpace

Importing the package registers Fourier features of its kernels with BoTorch's pathwise sampling.
"""

from bandits_torch.kernels.arms import (
    ArmCovarianceKernel,
    NeuralTangentKernel,
    PeriodKernel,
    estimate_covariance,
)
from bandits_torch.kernels.composed import SpatioTemporalKernel, StackedKernel, arm_context_kernel
from bandits_torch.kernels.temporal import (
    ExponentialForgettingKernel,
    MarkovTimeKernel,
    MaternTimeKernel,
    PeriodicTimeKernel,
    ProductOfTimeKernels,
    QuasiPeriodicKernel,
    StateSpaceTimeKernel,
    SumOfTimeKernels,
    WienerKernel,
    state_space_of,
)

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
