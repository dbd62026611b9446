"""Algorithms that keep reward and measured outcomes within limits, with high probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.models.outcome_constraint import OutcomeConstraint
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.safe import SafePointPolicy, SafePolicy, count_limits
from bandits_torch.policies.stale_observations import StaleObservations
from bandits_torch.recipes.parts import (
    STALE,
    as_width,
    bayesian_width,
    drifting,
    exponential_forgetting,
    model_over,
)
from bandits_torch.recipes.registration import RUN, Number, Setup, recipe
from bandits_torch.theory.prior_widths import PosteriorSafetyWidth
from bandits_torch.theory.widths import Width

_TAKES = (*RUN, "prior_mean", "form")
_QUICK = {"least_reward": -1.0, "forgetting_rate": 0.1}


@recipe(takes=(*_TAKES, "search"), points=True, quick=_QUICK, race={})
def safe_gp_ucb(
    setup: Setup,
    *,
    constraints: Sequence[OutcomeConstraint] | None = None,
    least_reward: float | None = None,
    safe_arms: Tensor | None = None,
    safe_points: Tensor | None = None,
    trust: str = "start",
    when_empty: str = "likeliest",
    forgetting_rate: float = 0.03,
    delta: float = 0.1,
    guarantee: str = "run",
    width: Any = None,
    safety_width: Any = None,
) -> Policy:
    """Safe GP-UCB: the best upper bound in a safe set recomputed as its models drift (Li et al. 2024, TVSafeOpt's set).

    Reward and outcomes are independent Gaussian processes that forget at ``forgetting_rate`` (0: no drift).

    ``constraints``: the outcomes measured besides the reward, and their limits; ``least_reward``: a lower limit of the
    reward; one of the two is required. ``safe_arms``: a mask (N,) or (S, N), the initial safe set; ``trust``,
    ``when_empty``: see ``SafePolicy``. ``delta``, ``guarantee``: the probability of breaking a limit, in the whole
    ``"run"`` or at each ``"step"`` (``PosteriorSafetyWidth``, valid for draws of the priors; ``safety_width`` replaces
    it). ``width``: of the upper bounds by which arms are chosen.

    Over a ``Domain``: ``SafePointPolicy``, with ``safe_points`` (k, d) or (S, k, d) in place of ``safe_arms``. Only
    ``raw_samples`` of ``search`` is used. Stale observations are dropped (``StaleObservations``).

    Raises ValueError if there are no limits, for safe arms over a domain, for safe points over arms, and for a search
    with an initial design (``initial``), whose points may be unsafe.
    """
    over_points = setup.domain is not None
    wrong = ("safe_arms", safe_arms) if over_points else ("safe_points", safe_points)
    expected = f"None: use {'safe_points' if over_points else 'safe_arms'} instead"
    validation.require(wrong[1] is None, wrong[0], wrong[1], expected)
    parts, rates = _parts(setup, constraints, least_reward, forgetting_rate)
    parts |= _widths(setup, parts, delta, guarantee, width, safety_width)
    parts |= {"trust": trust, "when_empty": when_empty}
    if setup.domain is None:
        return SafePolicy(**parts, safe_arms=safe_arms)
    search = setup.point_search or PointSearch(raw_samples=256)
    expected, initial = "0: the first points must be safe", search.initial
    validation.require(initial == 0, "search.initial", initial, expected)
    return SafePointPolicy(
        **parts,
        domain=setup.domain,
        safe_points=safe_points,
        forgetting={name: StaleObservations(STALE) for name, rate in rates.items() if rate},
        raw_samples=search.raw_samples,
        seed=setup.seed,
    )


@recipe(takes=_TAKES, quick=_QUICK, race={})
def safe_opt(
    setup: Setup,
    *,
    constraints: Sequence[OutcomeConstraint] | None = None,
    least_reward: float | None = None,
    safe_arms: Tensor | None = None,
    trust: str = "start",
    when_empty: str = "likeliest",
    forgetting_rate: float = 0.03,
    delta: float = 0.1,
    guarantee: str = "run",
    width: Any = None,
    safety_width: Any = None,
) -> Policy:
    """SafeOpt without a Lipschitz constant: learns which arms are safe and which is best (Berkenkamp et al. 2016).

    It plays the most uncertain of expanders and maximisers, so it never stops exploring; use ``safe_gp_ucb`` for less
    regret. ``constraints``, ``least_reward``, ``safe_arms``, ``trust``, ``when_empty``, ``delta``, ``guarantee``,
    ``width`` and ``safety_width``: as for ``safe_gp_ucb``. With ``forgetting_rate`` 0 it is GP-SafeOpt; above 0 it has
    the safe set of TVSafeOpt, without its Lipschitz constants.

    Raises ValueError if there are no limits, and over a ``Domain``.
    """
    parts, _ = _parts(setup, constraints, least_reward, forgetting_rate)
    parts |= _widths(setup, parts, delta, guarantee, width, safety_width)
    return SafePolicy(**parts, safe_arms=safe_arms, trust=trust, when_empty=when_empty, explore="safeopt")


def _parts(
    setup: Setup,
    constraints: Sequence[OutcomeConstraint] | None,
    least_reward: float | None,
    forgetting_rate: float,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Models and limits, as arguments of the policy, and the forgetting rates of reward and outcomes."""
    listed = constraints is None or (isinstance(constraints, Sequence) and not isinstance(constraints, str))
    validation.require(listed, "constraints", constraints, "a sequence of OutcomeConstraint")
    given = tuple(constraints or ())
    for one in given:
        validation.instance("constraints", one, OutcomeConstraint, "of OutcomeConstraint")
    names = [one.name for one in given]
    validation.require(len(set(names)) == len(names), "constraints", names, "of different names")
    limits = {one.name: (one.low, one.high) for one in given}
    if least_reward is not None:
        limits["reward"] = (validation.finite_number("least_reward", least_reward), math.inf)
    expected = "given, unless least_reward is"
    validation.require(len(limits) > 0, "constraints", constraints, expected)
    rates = {"reward": validation.below_one("forgetting_rate", forgetting_rate)}
    setups = {"reward": setup}
    for one in given:
        rates[one.name] = forgetting_rate if one.forgetting_rate is None else one.forgetting_rate
        setups[one.name] = replace(
            setup,
            kernel=setup.kernel if one.kernel is None else one.kernel,
            noise_variance=setup.noise_variance if one.noise_variance is None else one.noise_variance,
            prior_mean=cast(Number, one.prior_mean),
        )
    models = {
        name: model_over(drifting(its, exponential_forgetting(rates[name])) if rates[name] else its)
        for name, its in setups.items()
    }
    return {"model": models.pop("reward"), "outcomes": models, "limits": limits}, rates


def _widths(
    setup: Setup, parts: dict[str, Any], delta: float, guarantee: str, width: Any, safety_width: Any
) -> dict[str, Width]:
    """The two widths: those given, or those of the theorems."""
    if safety_width is not None and not isinstance(safety_width, Width):
        validation.non_negative("safety_width", safety_width)
    theorem = PosteriorSafetyWidth(count_limits(parts["limits"]), delta, guarantee)
    used = as_width(width) or bayesian_width(setup, parts["model"], delta)
    return {"width": used, "safety_width": as_width(safety_width) or theorem}
