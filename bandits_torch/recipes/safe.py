"""Algorithms that play only where reward and measured outcomes stay within limits, with high probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import ExponentialForgettingKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.outcome_constraint import OutcomeConstraint
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.safe import SafePolicy, count_limits
from bandits_torch.recipes.index_policies import drifting, in_float64
from bandits_torch.recipes.parts import as_width, bayesian_width, model_over
from bandits_torch.recipes.registration import RUN, recipe
from bandits_torch.recipes.setup import Number, Setup
from bandits_torch.theory.safety_widths import PosteriorSafetyWidth
from bandits_torch.theory.widths import Width

_TAKES = (*RUN, "prior_mean", "form")
_QUICK = {"least_reward": -1.0, "forgetting_rate": 0.1}


@recipe(takes=_TAKES, quick=_QUICK, race={})
def safe_gp_ucb(
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
    """Safe GP-UCB: the best upper bound in a safe set recomputed as its models drift (Li et al. 2024, TVSafeOpt's set).

    Reward and outcomes are independent Gaussian processes that forget at ``forgetting_rate`` (0: no drift).

    ``constraints``: what is measured beside the reward, within which limits; ``least_reward``: a lower limit of the
    reward itself; one of them is needed. ``safe_arms``: a mask (N,) or (S, N), the initial safe set; ``trust``,
    ``when_empty``: see ``SafePolicy``. ``delta``, ``guarantee``: the probability of breaking a limit, in the whole
    ``"run"`` or at each ``"step"`` (``PosteriorSafetyWidth``, valid for draws of the priors; a ``safety_width`` of
    yours takes its place). ``width``: of the reward's bounds in choosing.

    Raises ValueError where nothing has limits, and over a ``Domain``.
    """
    return _safe(
        setup,
        "ucb",
        constraints,
        least_reward,
        (safe_arms, trust, when_empty),
        forgetting_rate,
        (delta, guarantee),
        (width, safety_width),
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
    """SafeOpt without a Lipschitz constant: learns where it is safe and which arm is best (Berkenkamp et al. 2016).

    Plays the most uncertain of expanders and maximisers, so it explores for good; for little regret take
    ``safe_gp_ucb``. Its arguments ``constraints``, ``least_reward``, ``safe_arms``, ``trust``, ``when_empty``,
    ``delta``, ``guarantee``, ``width`` and ``safety_width`` are those of ``safe_gp_ucb``. With ``forgetting_rate`` 0 it
    is GP-SafeOpt, above it has the safe set of TVSafeOpt, but for the Lipschitz constants.

    Raises ValueError where nothing has limits, and over a ``Domain``.
    """
    return _safe(
        setup,
        "safeopt",
        constraints,
        least_reward,
        (safe_arms, trust, when_empty),
        forgetting_rate,
        (delta, guarantee),
        (width, safety_width),
    )


def _safe(
    setup: Setup,
    explore: str,
    constraints: Sequence[OutcomeConstraint] | None,
    least_reward: float | None,
    initial: tuple[Tensor | None, str, str],
    forgetting_rate: float,
    failure: tuple[float, str],
    widths: tuple[Any, Any],
) -> Policy:
    arms_alone = setup.domain is None
    validation.require(arms_alone, "choices", setup.choices, "arms: a safe set is a set of arms")
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
    validation.require(
        len(limits) > 0, "constraints", constraints, "given, or least_reward, where nothing else has limits"
    )
    model = _arm_gp(setup, validation.below_one("forgetting_rate", forgetting_rate))
    outcomes = {one.name: _arm_gp(_setup_of(one, setup), _rate(one, forgetting_rate)) for one in given}
    (delta, guarantee), (width, safety_width) = failure, widths
    if safety_width is not None and not isinstance(safety_width, Width):
        validation.non_negative("safety_width", safety_width)
    own = PosteriorSafetyWidth(count_limits(limits), delta, guarantee)
    safe_arms, trust, when_empty = initial
    return SafePolicy(
        model,
        outcomes,
        limits,
        width=as_width(width) or bayesian_width(setup, model, delta),
        safety_width=as_width(safety_width) or own,
        safe_arms=safe_arms,
        trust=trust,
        when_empty=when_empty,
        explore=explore,
    )


def _rate(one: OutcomeConstraint, of_reward: float) -> float:
    return of_reward if one.forgetting_rate is None else one.forgetting_rate


def _setup_of(one: OutcomeConstraint, setup: Setup) -> Setup:
    """What is known of an outcome, where it is not told that of the reward."""
    return replace(
        setup,
        kernel=setup.kernel if one.kernel is None else one.kernel,
        noise_variance=setup.noise_variance if one.noise_variance is None else one.noise_variance,
        prior_mean=cast(Number, one.prior_mean),
    )


def _arm_gp(setup: Setup, forgetting_rate: float) -> ArmGP:
    if forgetting_rate:
        setup = drifting(setup, ExponentialForgettingKernel(in_float64("forgetting_rate", forgetting_rate)))
    return cast(ArmGP, model_over(setup))
