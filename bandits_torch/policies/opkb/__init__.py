"""OPKB and its relatives (Hong, Li & Tewari 2023): randomised blocks, tests for change, and features of the arms."""

from bandits_torch.policies.opkb.calibrated import CalibratedOPKB
from bandits_torch.policies.opkb.features import FeatureSource, FixedFeatures, NeuralFeatures
from bandits_torch.policies.opkb.opkb import OPKB, AdaOPKB, Constants, subgaussian_scale

__all__ = [
    "OPKB",
    "AdaOPKB",
    "CalibratedOPKB",
    "Constants",
    "FeatureSource",
    "FixedFeatures",
    "NeuralFeatures",
    "subgaussian_scale",
]
