"""Policies, which choose and learn: index policies, forgetting rules, policies for an unknown prior, random play."""

from bandits_torch.policies.arm_policy import ArmPolicy
from bandits_torch.policies.averaging import ContextAveraging, ModelAveraging, PairAveraging
from bandits_torch.policies.batches import BatchBKB
from bandits_torch.policies.control import ControlledPolicy
from bandits_torch.policies.counted import LatentRewards
from bandits_torch.policies.detection import DetectionAugmented, Master, MasterThresholds
from bandits_torch.policies.forgetting import (
    EventTriggeredRestart,
    ForgettingRule,
    KeepEverything,
    LikelihoodWindow,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.policies.index import ContextualPolicy, IndexPolicy, RewardImprovementPolicy
from bandits_torch.policies.learned_hyperparameters import LearnedHyperparameters
from bandits_torch.policies.learned_units import MemberScale
from bandits_torch.policies.looking_again import LookingAgain, LookingAtPoints
from bandits_torch.policies.moves import CostlyMoves
from bandits_torch.policies.opkb.calibrated import CalibratedOPKB
from bandits_torch.policies.opkb.features import FeatureSource, FixedFeatures, NeuralFeatures
from bandits_torch.policies.opkb.opkb import OPKB, AdaOPKB, Constants
from bandits_torch.policies.over_priors import (
    BayesianPriorPolicy,
    LikeliestPriorPolicy,
    PriorElimination,
    RegretBalancing,
    SampledPriorPolicy,
    UnknownPriorPolicy,
)
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.policies.random import RandomPolicy
from bandits_torch.policies.safe import SafePointPolicy, SafePolicy
from bandits_torch.policies.sharing import FixedShare
from bandits_torch.policies.stale_observations import StaleObservations, WassersteinForgetting
from bandits_torch.policies.wrapping import CentredPolicy, DoublingTrick, StandardisedPolicy

__all__ = [
    "OPKB",
    "AdaOPKB",
    "ArmPolicy",
    "BatchBKB",
    "BayesianPriorPolicy",
    "CalibratedOPKB",
    "CentredPolicy",
    "Choice",
    "Constants",
    "ContextAveraging",
    "ContextualPolicy",
    "ControlledPolicy",
    "CostlyMoves",
    "DetectionAugmented",
    "DoublingTrick",
    "EventTriggeredRestart",
    "FeatureSource",
    "FixedFeatures",
    "FixedShare",
    "ForgettingRule",
    "IndexPolicy",
    "KeepEverything",
    "LatentRewards",
    "LearnedHyperparameters",
    "LikeliestPriorPolicy",
    "LikelihoodWindow",
    "LookingAgain",
    "LookingAtPoints",
    "Master",
    "MasterThresholds",
    "MemberScale",
    "ModelAveraging",
    "NeuralFeatures",
    "Observation",
    "PairAveraging",
    "Pending",
    "PeriodicRestart",
    "PointAveraging",
    "Policy",
    "PriorElimination",
    "RandomPolicy",
    "RegretBalancing",
    "RewardImprovementPolicy",
    "SafePointPolicy",
    "SafePolicy",
    "SampledPriorPolicy",
    "SlidingWindow",
    "StaleObservations",
    "StandardisedPolicy",
    "UnknownPriorPolicy",
    "WassersteinForgetting",
]
