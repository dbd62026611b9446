"""BoTorch models that learn one observation at a time, and unlearn it."""

from bandits_torch.models.arm_gp import ArmGP
from bandits_torch.models.candidate_priors import CandidatePrior, arm_gp_of_prior, arm_gp_over_priors
from bandits_torch.models.online_gp import OnlineGP
from bandits_torch.models.online_model import OnlineModel

__all__ = [
    "ArmGP",
    "CandidatePrior",
    "OnlineGP",
    "OnlineModel",
    "arm_gp_of_prior",
    "arm_gp_over_priors",
]
