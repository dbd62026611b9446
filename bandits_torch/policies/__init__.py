"""What chooses and learns: index policies, what they forget, and the random floor."""

from bandits_torch.policies.ada_opkb import AdaOPKB
from bandits_torch.policies.calibrated_opkb import CalibratedOPKB
from bandits_torch.policies.features import FeatureSource, FixedFeatures
from bandits_torch.policies.forgetting import (
    EventTriggeredRestart,
    ForgettingRule,
    KeepEverything,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.master import Master, MasterThresholds
from bandits_torch.policies.neural import NeuralFeatures
from bandits_torch.policies.opkb import OPKB
from bandits_torch.policies.opkb_constants import Constants
from bandits_torch.policies.policy import Choice, Observation, Policy
from bandits_torch.policies.random import RandomPolicy

__all__ = [
    "OPKB",
    "AdaOPKB",
    "CalibratedOPKB",
    "Choice",
    "Constants",
    "EventTriggeredRestart",
    "FeatureSource",
    "FixedFeatures",
    "ForgettingRule",
    "IndexPolicy",
    "KeepEverything",
    "Master",
    "MasterThresholds",
    "NeuralFeatures",
    "Observation",
    "PeriodicRestart",
    "Policy",
    "RandomPolicy",
    "SlidingWindow",
]
