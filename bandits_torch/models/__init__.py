"""BoTorch models that learn and forget one observation at a time. They work with BoTorch's pathwise sampling."""

from bandits_torch.models import botorch_paths  # noqa: F401  # registers
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.members import ArmMembers, SmoothMembers
from bandits_torch.models.arms.structured_members import CyclicMembers, LevelMembers, StackedMembers
from bandits_torch.models.candidate_priors import CandidatePrior, arm_gp_of_prior, arm_gp_over_priors
from bandits_torch.models.hyperparameters import fit_hyperparameters, learnable
from bandits_torch.models.online_model import AtTime, OnlineModel
from bandits_torch.models.outcome_constraint import OutcomeConstraint
from bandits_torch.models.points.member_posterior import MemberMixture
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.models.points.point_members import PointMembers, WideningMembers
from bandits_torch.models.sketch.embedding import LeverageSampling
from bandits_torch.models.sketch.sketched_gp import SketchedGP

__all__ = [
    "ArmGP",
    "ArmMembers",
    "AtTime",
    "CandidatePrior",
    "CyclicMembers",
    "LevelMembers",
    "LeverageSampling",
    "MemberMixture",
    "OnlineGP",
    "OnlineModel",
    "OutcomeConstraint",
    "PointMembers",
    "SketchedGP",
    "SmoothMembers",
    "StackedMembers",
    "WideningMembers",
    "arm_gp_of_prior",
    "arm_gp_over_priors",
    "fit_hyperparameters",
    "learnable",
]
