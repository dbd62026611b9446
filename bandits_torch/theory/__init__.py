"""Pure functions of the literature: confidence widths and information gain."""

from bandits_torch.theory.information_gain import GrowthBound, MaximumGain, RealisedGain
from bandits_torch.theory.prior_widths import (
    PriorEliminationContinuousWidth,
    PriorEliminationFiniteWidth,
    SrinivasBayesianWidth,
    elimination_xi,
)
from bandits_torch.theory.sketched_widths import BKBWidth
from bandits_torch.theory.widths import (
    ConstantWidth,
    DriftAwareWidth,
    GPTSWidth,
    IGPWidth,
    RealisedInformationWidth,
    RestartWidth,
    SlidingWindowWidth,
    SrinivasRKHSWidth,
    Width,
)

__all__ = [
    "BKBWidth",
    "ConstantWidth",
    "DriftAwareWidth",
    "GPTSWidth",
    "GrowthBound",
    "IGPWidth",
    "MaximumGain",
    "PriorEliminationContinuousWidth",
    "PriorEliminationFiniteWidth",
    "RealisedGain",
    "RealisedInformationWidth",
    "RestartWidth",
    "SlidingWindowWidth",
    "SrinivasBayesianWidth",
    "SrinivasRKHSWidth",
    "Width",
    "elimination_xi",
]
