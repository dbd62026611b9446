"""The classical bandits: they learn each arm independently, without a kernel or features.

They do not use correlations between arms, on which the other policies rely. If arms are uncorrelated, they are hard to
beat and cost very little.

Their papers assume rewards in [0, 1]; ``reward_range=(low, high)`` sets another range. By default it is the range of
the rewards seen so far, separately in each replicate, so choices do not depend on the unit or the origin of rewards. No
theorem covers that: unbounded noise widens the range slowly, and outliers widen it at once. The other common arguments
are those of ``ArmPolicy``.
"""

from bandits_torch.policies.classical.policies import (
    EXP3S,
    GLRKLUCB,
    UCB1,
    DiscountedThompsonSampling,
    DiscountedUCB,
    EpsilonGreedy,
    LogOddsUCB,
    SlidingWindowUCB,
)

__all__ = [
    "EXP3S",
    "GLRKLUCB",
    "UCB1",
    "DiscountedThompsonSampling",
    "DiscountedUCB",
    "EpsilonGreedy",
    "LogOddsUCB",
    "SlidingWindowUCB",
]
