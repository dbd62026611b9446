"""The classical bandits: they treat each arm by itself, without a kernel, features or a prior.

They do not use the smoothness of rewards over the arms, on which the other policies rely. If arms are unrelated, they
are hard to beat and cost very little.

They need the scale of rewards, which their papers assume known, as [0, 1]: ``reward_range=(low, high)`` sets it. By
default it is the range of the rewards seen so far, in each replicate by itself, so that choices do not depend on the
unit or the zero of rewards. No theorem covers that: noise without bounds widens the range as time goes by, and outliers
widen it at once. The other arguments that all of them take are those of ``ArmPolicy``.
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
