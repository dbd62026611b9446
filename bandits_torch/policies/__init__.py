"""What chooses and learns: index policies and what they forget, policies for an unknown prior, the random floor."""

from bandits_torch.policies.batch_bkb import BatchBKB
from bandits_torch.policies.forgetting import (
    EventTriggeredRestart,
    ForgettingRule,
    KeepEverything,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.over_priors import (
    BayesianPriorPolicy,
    LikeliestPriorPolicy,
    PriorElimination,
    UnknownPriorPolicy,
)
from bandits_torch.policies.policy import Choice, Observation, Policy
from bandits_torch.policies.random import RandomPolicy
from bandits_torch.policies.regret_balancing import RegretBalancing

__all__ = [
    "BatchBKB",
    "BayesianPriorPolicy",
    "Choice",
    "EventTriggeredRestart",
    "ForgettingRule",
    "IndexPolicy",
    "KeepEverything",
    "LikeliestPriorPolicy",
    "Observation",
    "PeriodicRestart",
    "Policy",
    "PriorElimination",
    "RandomPolicy",
    "RegretBalancing",
    "SlidingWindow",
    "UnknownPriorPolicy",
]
