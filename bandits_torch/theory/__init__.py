"""Confidence widths, information gain and optimal designs: pure functions of the literature.

A width is the number that multiplies the posterior standard deviation sigma: with probability at least 1 - delta,

    |f(x) - mu_{t-1}(x)| <= width_t sigma_{t-1}(x)    for every arm x and every step t.

Papers write it beta_t (Chowdhury & Gopalan, Zhou & Shroff, Ziomek et al.), sqrt(beta_t) (Srinivas et al., Bogunovic et
al.) or v_t (GP-TS). BoTorch's ``beta`` is its square. Every width states its theorem, its symbol and its validity.

    symbol   in code                   meaning                                               used by
    t        step                      step of a choice; t - 1 observations precede it       all widths
    T        horizon                   number of steps in a guarantee                        forgetting, priors, designs
    N, d     num_arms, dim             number of arms; dimension of the domain               priors, designs
    S, P     batch_shape               replicates, candidate priors: dimensions of a model   all
    lambda   noise_variance (model)    regulariser; noise variance under a prior             all
    R        noise_scale               sub-Gaussian scale of the noise; None: sqrt(lambda)   bounded norm
    B        rkhs_bound                bound on the RKHS norm of f minus the prior mean      bounded norm
    delta    delta                     failure probability, in (0, 1)                        all
    gamma_n  gain                      information gain of n observations (GainProvider)     bounded norm
    w, M     window, num_intervals     observations held; number of restart intervals        forgetting
    V        drift                     bound on the change of f among the observations held  forgetting, mixtures
    epsilon  sampling.epsilon (model)  accuracy of a sketch, in (0, 1)                       BKBWidth
    rho      -                         bound on the distance between f and the rewards       mixtures
    alpha    -                         ridge; (1 + epsilon) / (1 - epsilon)                  mixtures; BKBWidth
    xi_t     elimination_xi            threshold of prior elimination                        priors
    phi, p   features                  features of the arms, and their number                designs
    r, beta  ridge, beta               sigma/T of the paper; weight of exploration           designs

Parameters are numbers, or tensors that broadcast to the model's batch shape, for example one B per candidate prior. A
value out of range raises ValueError at construction, an integer step below 1 at the call. Unless a class says
otherwise, a call costs O(1) and does not synchronise with the device if its tensors are on the model's device.
``Width.bind`` reads a window or interval from the policy's forgetting rule, and raises ValueError if the width has
another, or neither has one.
"""

from bandits_torch.theory.mixture_widths import DualMixtureWidth, RealisedInformationWidth
from bandits_torch.theory.optimal_design import (
    Design,
    estimated_gaps,
    exploration_problem,
    features_of_covariance,
    fractional_gain,
    optimal_design,
    optimal_exploration,
    propensity_matrix,
)
from bandits_torch.theory.prior_widths import (
    CGPUCBWidth,
    PosteriorSafetyWidth,
    PriorEliminationContinuousWidth,
    PriorEliminationFiniteWidth,
    SrinivasBayesianWidth,
    SrinivasContinuousWidth,
    elimination_xi,
    mean_excess,
)
from bandits_torch.theory.widths import (
    BKBWidth,
    ConstantWidth,
    DriftAwareWidth,
    GPBUCBWidth,
    GPTSWidth,
    GrowthBound,
    IGPWidth,
    MaximumGain,
    PermutationWidth,
    RealisedGain,
    RestartWidth,
    SlidingWindowWidth,
    SrinivasRKHSWidth,
    Width,
    uncertainty_sampling,
)

__all__ = [
    "BKBWidth",
    "CGPUCBWidth",
    "ConstantWidth",
    "Design",
    "DriftAwareWidth",
    "DualMixtureWidth",
    "GPBUCBWidth",
    "GPTSWidth",
    "GrowthBound",
    "IGPWidth",
    "MaximumGain",
    "PermutationWidth",
    "PosteriorSafetyWidth",
    "PriorEliminationContinuousWidth",
    "PriorEliminationFiniteWidth",
    "RealisedGain",
    "RealisedInformationWidth",
    "RestartWidth",
    "SlidingWindowWidth",
    "SrinivasBayesianWidth",
    "SrinivasContinuousWidth",
    "SrinivasRKHSWidth",
    "Width",
    "elimination_xi",
    "estimated_gaps",
    "exploration_problem",
    "features_of_covariance",
    "fractional_gain",
    "mean_excess",
    "optimal_design",
    "optimal_exploration",
    "propensity_matrix",
    "uncertainty_sampling",
]
