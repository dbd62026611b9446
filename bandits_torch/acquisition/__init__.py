"""BoTorch acquisition functions over models that change with time. EI, PI and the rest are BoTorch's own."""

from bandits_torch.acquisition.batch_upper_confidence_bound import qUpperConfidenceBound
from bandits_torch.acquisition.dual_mixture_bound import DualMixtureBound
from bandits_torch.acquisition.over_priors import (
    BayesianOverPriors,
    LikeliestPrior,
    OptimisticOverPriors,
    OverPriors,
)
from bandits_torch.acquisition.pathwise import PathwiseThompsonSampling
from bandits_torch.acquisition.pathwise_points import PathwisePointDraw
from bandits_torch.acquisition.playing_probability import PlayingProbability
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.acquisition.simultaneous_band import SimultaneousBand
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.acquisition.thompson_sampling import ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound

__all__ = [
    "BayesianOverPriors",
    "DualMixtureBound",
    "LikeliestPrior",
    "OptimisticOverPriors",
    "OverPriors",
    "PathwisePointDraw",
    "PathwiseThompsonSampling",
    "PlayingProbability",
    "PointSearch",
    "SimultaneousBand",
    "StepContext",
    "ThompsonSampling",
    "UpperConfidenceBound",
    "qUpperConfidenceBound",
]
