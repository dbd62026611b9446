"""bandits_torch: optimise functions that change with time under bandit feedback, on PyTorch.

The driver: ``run(recipes.sw_gp_ucb(...), problem, horizon)``. The parts, for a loop of your own: kernels over
space and time (``bandits_torch.kernels``), exact online models (``ArmGP``, ``OnlineGP``), confidence widths
(``bandits_torch.theory``) and BoTorch acquisition functions (``bandits_torch.acquisition``).
"""

from bandits_torch import recipes
from bandits_torch._version import __version__
from bandits_torch.acquisition import ThompsonSampling, UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.models import ArmGP, OnlineGP, OnlineModel
from bandits_torch.policies import AskTell, IndexPolicy, Policy
from bandits_torch.policy_files import load_policy, save_policy
from bandits_torch.problems import Problem, make

__all__ = [
    "ArmGP",
    "AskTell",
    "Domain",
    "History",
    "IndexPolicy",
    "OnlineGP",
    "OnlineModel",
    "Policy",
    "Problem",
    "ThompsonSampling",
    "UpperConfidenceBound",
    "__version__",
    "load_policy",
    "make",
    "recipes",
    "run",
    "save_policy",
]
