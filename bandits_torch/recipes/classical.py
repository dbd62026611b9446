"""Classical multi-armed bandits with independent arms. They need no kernel: ``ucb1(arms)``, or ``ucb1(setup)``.

``arms``: N, or features, of which only the number is used. ``reward_range``: (low, high) of the rewards, None for the
range observed so far (``policies.classical``). ``changes``: expected number of changes in ``horizon`` steps. If
``discount``, ``window`` or the ``exploration`` of EXP3.S is None, the paper's formula sets it from both.
"""

from __future__ import annotations

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

Range = tuple[float, float]


@recipe(belief=None, scale_free=True)
def ucb1(setup: Setup, *, reward_range: Range | None = None) -> Policy:
    """UCB1: the largest mean + sqrt(2 ln t / n_i), for rewards that do not change (Auer et al. 2002, Figure 1)."""
    return UCB1(**arm_settings(setup), reward_range=reward_range)


@recipe(belief=None, scale_free=True, quick={"discount": 0.9})
def discounted_ucb(
    setup: Setup,
    *,
    horizon: int,
    changes: float = 1.0,
    discount: float | None = None,
    exploration: float = 0.5,
    reward_range: Range | None = None,
) -> Policy:
    """Discounted UCB: a reward t steps old has weight discount^t (Garivier & Moulines 2011, section 3).

    ``discount``: by default 1 - sqrt(changes / horizon) / 4;  ``exploration``: xi.
    """
    discount = tuned_discount(horizon, changes) if discount is None else discount
    return DiscountedUCB(
        **arm_settings(setup), discount=discount, exploration=exploration, reward_range=reward_range
    )


@recipe(belief=None, scale_free=True, quick={"window": 9})
def sliding_window_ucb(
    setup: Setup,
    *,
    horizon: int,
    changes: float = 1.0,
    window: int | None = None,
    exploration: float = 0.5,
    reward_range: Range | None = None,
) -> Policy:
    """Sliding-window UCB: only the last ``window`` pulls count (Garivier & Moulines 2011, section 4).

    ``window``: by default 2 sqrt(horizon ln(horizon) / changes);  ``exploration``: xi.
    """
    window = tuned_window(horizon, changes) if window is None else window
    return SlidingWindowUCB(
        **arm_settings(setup), window=window, exploration=exploration, reward_range=reward_range
    )


@recipe(belief=None, seeded=True, takes=(*RUN, "noise_variance"), quick={"discount": 0.9})
def discounted_ts(
    setup: Setup,
    *,
    horizon: int,
    changes: float = 1.0,
    discount: float | None = None,
    likelihood: str = "auto",
) -> Policy:
    """Discounted Thompson sampling, Beta for rewards of 0 and 1, else Gaussian (Raj & Kalyani 2017; Qi et al. 2023).

    ``discount``: by default as for discounted UCB;  ``likelihood``: ``"bernoulli"``, ``"gaussian"`` or ``"auto"``;
    ``noise_variance``: for the Gaussian likelihood alone, None if unknown.
    """
    discount = tuned_discount(horizon, changes) if discount is None else discount
    return DiscountedThompsonSampling(
        **arm_settings(setup), discount=discount, likelihood=likelihood, noise_variance=setup.noise_variance
    )


@recipe(
    belief=None,
    scale_free=True,
    seeded=True,
    quick={"exploration": 0.3},
    race={"": {}, " g=0.1": {"exploration": 0.1}},
)
def exp3_s(
    setup: Setup,
    *,
    horizon: int,
    changes: float = 1.0,
    exploration: float | None = None,
    sharing: float | None = None,
    reward_range: Range | None = None,
) -> Policy:
    """EXP3.S: exponential weights with sharing, for adversarial rewards (Auer et al. 2002, Corollary 8.2).

    ``exploration``: gamma, by default the value of the corollary, which is 1 (uniform play) unless ``horizon`` is well
    above the number of arms;  ``sharing``: alpha, by default 1 / ``horizon``. ``changes`` is the corollary's S, which
    covers S - 1 changes.
    """
    return EXP3S(
        **arm_settings(setup),
        horizon=horizon,
        changes=changes,
        exploration=exploration,
        sharing=sharing,
        reward_range=reward_range,
    )


@recipe(belief=None, scale_free=True, seeded=True)
def epsilon_greedy(setup: Setup, *, epsilon: float = 0.1, step_size: float = 0.1) -> Policy:
    """Epsilon-greedy on exponentially weighted means of each arm's rewards (Sutton & Barto 2018, section 2.5).

    ``epsilon``: probability of a random arm;  ``step_size``: the weight of an arm's latest reward.
    """
    return EpsilonGreedy(**arm_settings(setup), epsilon=epsilon, step_size=step_size)


@recipe(belief=None, takes=(*RUN, "prior_mean"), race={})
def log_odds_ucb(
    setup: Setup, *, reward_range: Range = (0.0, 1.0), width: float = 1.25, share: float = 0.001
) -> Policy:
    """For rewards of 0 and 1: the largest upper bound on drifting log-odds (assumed density filtering, Opper 1998).

    It averages over rates of change, variances and levels by how well they predict. ``prior_mean``: expected rewards of
    the arms, 0 if unknown;  ``reward_range``: rewards outside it count as its nearest end;  ``width``: multiplies the
    standard deviation of the log-odds;  ``share``: of the models' weight, redistributed at each reward.
    """
    return LogOddsUCB(
        **arm_settings(setup),
        reward_range=reward_range,
        prior_mean=setup.prior_mean,
        width=width,
        share=share,
    )


@recipe(belief=None, scale_free=True, quick={"delta": 0.5})
def glr_kl_ucb(
    setup: Setup,
    *,
    horizon: int,
    delta: float | None = None,
    exploration: float | None = None,
    restarts: str = "local",
    reward_range: Range | None = None,
) -> Policy:
    """GLR-klUCB: kl-UCB that restarts an arm when a test detects a change (Besson et al. 2022, Algorithm 1).

    ``delta``: failure probability of the test, by default 1 / sqrt(``horizon``), at most 1/2;  ``exploration``: rate of
    forced exploration, by default the paper's sqrt(N ln T / T), at most 0.1;  ``restarts``: ``"local"`` (the arm alone)
    or ``"global"`` (all arms).
    """
    return GLRKLUCB(
        **arm_settings(setup),
        horizon=horizon,
        delta=delta,
        exploration=exploration,
        restarts=restarts,
        reward_range=reward_range,
    )
