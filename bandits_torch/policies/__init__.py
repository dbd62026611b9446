"""What chooses and learns: index policies, what they forget, and the random floor."""

from bandits_torch.policies.batch_bkb import BatchBKB
from bandits_torch.policies.forgetting import (
    EventTriggeredRestart,
    ForgettingRule,
    KeepEverything,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Choice, Observation, Policy
from bandits_torch.policies.random import RandomPolicy

__all__ = [
    "BatchBKB",
    "Choice",
    "EventTriggeredRestart",
    "ForgettingRule",
    "IndexPolicy",
    "KeepEverything",
    "Observation",
    "PeriodicRestart",
    "Policy",
    "RandomPolicy",
    "SlidingWindow",
]
