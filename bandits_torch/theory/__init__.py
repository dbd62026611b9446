"""Pure functions of the literature: confidence widths and information gain."""

from bandits_torch.theory.batch_widths import GPBUCBWidth, uncertainty_sampling
from bandits_torch.theory.contextual_widths import CGPUCBWidth
from bandits_torch.theory.forgetting_widths import RestartWidth, SlidingWindowWidth
from bandits_torch.theory.information_gain import GrowthBound, MaximumGain, RealisedGain
from bandits_torch.theory.inverse_propensity import estimated_gaps, propensity_matrix
from bandits_torch.theory.mixture_widths import DualMixtureWidth
from bandits_torch.theory.optimal_design import (
    Design,
    exploration_problem,
    features_of_covariance,
    fractional_gain,
    optimal_design,
    optimal_exploration,
)
from bandits_torch.theory.permutation_widths import PermutationWidth
from bandits_torch.theory.prior_widths import (
    PriorEliminationContinuousWidth,
    PriorEliminationFiniteWidth,
    SrinivasBayesianWidth,
    SrinivasContinuousWidth,
    elimination_xi,
)
from bandits_torch.theory.safety_widths import PosteriorSafetyWidth
from bandits_torch.theory.simultaneous_widths import mean_excess
from bandits_torch.theory.sketched_widths import BKBWidth
from bandits_torch.theory.widths import (
    ConstantWidth,
    DriftAwareWidth,
    GPTSWidth,
    IGPWidth,
    RealisedInformationWidth,
    SrinivasRKHSWidth,
    Width,
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
