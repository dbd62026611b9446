"""Classical multi-armed bandits with independent arms. They need no kernel: ``ucb1(arms)``, or ``ucb1(setup)``.

``arms``: N, or features, of which only the number is used. ``reward_range``: (low, high) of the rewards, None for the
range observed so far (``policies.classical``). ``changes``: expected number of changes in ``horizon`` steps. If
``discount``, ``window`` or the ``exploration`` of EXP3.S is None, the paper's formula sets it from both.
"""

from __future__ import annotations

from typing import Any

from bandits_torch.policies.classical import (
    EXP3S,
    GLRKLUCB,
    UCB1,
    DiscountedThompsonSampling,
    DiscountedUCB,
    EpsilonGreedy,
    LogOddsUCB,
    SlidingWindowUCB,
    tuned_discount,
    tuned_window,
)
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.parts import arm_settings
from bandits_torch.recipes.registration import RUN, Setup, recipe


@recipe(belief=None, scale_free=True, passes_to=UCB1)
def ucb1(setup: Setup, **options: Any) -> Policy:
    """UCB1: the largest mean + sqrt(2 ln t / n_i), for rewards that do not change (Auer et al. 2002, Figure 1)."""
    return UCB1(**arm_settings(setup), **options)


@recipe(belief=None, scale_free=True, quick={"discount": 0.9}, passes_to=DiscountedUCB)
def discounted_ucb(
    setup: Setup, *, horizon: int, changes: float = 1.0, discount: float | None = None, **options: Any
) -> Policy:
    """Discounted UCB: a reward t steps old has weight discount^t (Garivier & Moulines 2011, section 3).

    ``discount``: by default 1 - sqrt(changes / horizon) / 4;  ``exploration``: xi.
    """
    discount = tuned_discount(horizon, changes) if discount is None else discount
    return DiscountedUCB(**arm_settings(setup), discount=discount, **options)


@recipe(belief=None, scale_free=True, quick={"window": 9}, passes_to=SlidingWindowUCB)
def sliding_window_ucb(
    setup: Setup, *, horizon: int, changes: float = 1.0, window: int | None = None, **options: Any
) -> Policy:
    """Sliding-window UCB: only the last ``window`` pulls count (Garivier & Moulines 2011, section 4).

    ``window``: by default 2 sqrt(horizon ln(horizon) / changes);  ``exploration``: xi.
    """
    window = tuned_window(horizon, changes) if window is None else window
    return SlidingWindowUCB(**arm_settings(setup), window=window, **options)


@recipe(
    belief=None,
    seeded=True,
    takes=(*RUN, "noise_variance"),
    quick={"discount": 0.9},
    passes_to=DiscountedThompsonSampling,
)
def discounted_ts(
    setup: Setup, *, horizon: int, changes: float = 1.0, discount: float | None = None, **options: Any
) -> Policy:
    """Discounted Thompson sampling, Beta for rewards of 0 and 1, else Gaussian (Raj & Kalyani 2017; Qi et al. 2023).

    ``discount``: by default as for discounted UCB;  ``likelihood``: ``"bernoulli"``, ``"gaussian"`` or ``"auto"``;
    ``noise_variance``: for the Gaussian likelihood alone, None if unknown.
    """
    discount = tuned_discount(horizon, changes) if discount is None else discount
    noise = setup.noise_variance
    return DiscountedThompsonSampling(
        **arm_settings(setup), discount=discount, noise_variance=noise, **options
    )


@recipe(
    belief=None,
    scale_free=True,
    seeded=True,
    quick={"exploration": 0.3},
    race={"": {}, " g=0.1": {"exploration": 0.1}},
    passes_to=EXP3S,
)
def exp3_s(setup: Setup, **options: Any) -> Policy:
    """EXP3.S: exponential weights with sharing, for adversarial rewards (Auer et al. 2002, Corollary 8.2).

    ``exploration``: gamma, by default the value of the corollary, which is 1 (uniform play) unless ``horizon`` is well
    above the number of arms;  ``sharing``: alpha, by default 1 / ``horizon``. ``changes`` is the corollary's S, which
    covers S - 1 changes.
    """
    return EXP3S(**arm_settings(setup), **options)


@recipe(belief=None, scale_free=True, seeded=True, passes_to=EpsilonGreedy)
def epsilon_greedy(setup: Setup, **options: Any) -> Policy:
    """Epsilon-greedy on exponentially weighted means of each arm's rewards (Sutton & Barto 2018, section 2.5).

    ``epsilon``: probability of a random arm;  ``step_size``: the weight of an arm's latest reward.
    """
    return EpsilonGreedy(**arm_settings(setup), **options)


@recipe(belief=None, takes=(*RUN, "prior_mean"), race={}, passes_to=LogOddsUCB)
def log_odds_ucb(setup: Setup, **options: Any) -> Policy:
    """For rewards of 0 and 1: the largest upper bound on drifting log-odds (assumed density filtering, Opper 1998).

    It averages over rates of change, variances and levels by how well they predict. ``prior_mean``: expected rewards of
    the arms, 0 if unknown;  ``reward_range``: rewards outside it count as its nearest end;  ``width``: multiplies the
    standard deviation of the log-odds;  ``share``: of the models' weight, redistributed at each reward.
    """
    return LogOddsUCB(**arm_settings(setup), prior_mean=setup.prior_mean, **options)


@recipe(belief=None, scale_free=True, quick={"delta": 0.5}, passes_to=GLRKLUCB)
def glr_kl_ucb(setup: Setup, **options: Any) -> Policy:
    """GLR-klUCB: kl-UCB that restarts an arm when a test detects a change (Besson et al. 2022, Algorithm 1).

    ``delta``: failure probability of the test, by default 1 / sqrt(``horizon``), at most 1/2;  ``exploration``: rate of
    forced exploration, by default the paper's sqrt(N ln T / T), at most 0.1;  ``restarts``: ``"local"`` (the arm alone)
    or ``"global"`` (all arms).
    """
    return GLRKLUCB(**arm_settings(setup), **options)
