"""Algorithms with one prior: a model, an acquisition function, a width and a forgetting rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.pathwise import PathwisePointDraw
from bandits_torch.acquisition.point_search import GridSearch
from bandits_torch.acquisition.thompson_sampling import PredictiveSampling, ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import SimultaneousBand, UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.kernels import WienerKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.inputs import features_of
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.forgetting import (
    EventTriggeredRestart,
    ForgettingRule,
    LikelihoodWindow,
    PeriodicRestart,
)
from bandits_torch.policies.index import Improvement, IndexPolicy, RewardImprovementPolicy
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.random import RandomPolicy
from bandits_torch.recipes.parts import (
    STALE,
    as_stale_rule,
    as_time_kernel,
    as_width,
    as_window,
    bayesian_width,
    drifting,
    exponential_forgetting,
    in_float64,
    memory_length,
    model_over,
    policy_over,
    steepness,
)
from bandits_torch.recipes.registration import GP, OWN_WIDTH_AND_CONSTANT, RUN, Number, Setup, recipe
from bandits_torch.theory.widths import GPTSWidth, IGPWidth, RealisedGain, RestartWidth, SlidingWindowWidth


@recipe(belief=None, seeded=True, points=True, contexts=True, scale_free=True)
def random(setup: Setup) -> Policy:
    """Uniformly random arms: the baseline of every race."""
    choices = setup.domain or features_of(cast(Tensor | int, setup.choices), None, None)
    device = "cpu" if isinstance(choices, Domain) else choices.device
    return RandomPolicy(choices, setup.replicates, **setup.seeds, device=device)


@recipe(takes=GP, points=True, race=OWN_WIDTH_AND_CONSTANT)
def gp_ucb(setup: Setup, *, delta: float = 0.1, width: Any = None) -> Policy:
    """GP-UCB with the Bayesian width on a finite set (Srinivas et al. 2010, Theorem 1)."""
    return _gp_ucb(setup, delta, width)


def _gp_ucb(setup: Setup, delta: float, width: Any, rule: ForgettingRule | None = None) -> Policy:
    """GP-UCB with the Bayesian width, or another that is given."""
    model = model_over(setup)
    theorem = bayesian_width(setup, model, delta)
    return policy_over(setup, model, UpperConfidenceBound, width=as_width(width) or theorem, forgetting=rule)


@recipe(takes=GP, points=True)
def igp_ucb(
    setup: Setup,
    *,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width_form: str = "theory",
    width: Any = None,
) -> Policy:
    """IGP-UCB with the realised information gain (Chowdhury & Gopalan 2017, Algorithm 1)."""
    model = model_over(setup)
    theorem = IGPWidth(rkhs_bound, noise_scale, delta, RealisedGain(), form=width_form)
    return policy_over(setup, model, UpperConfidenceBound, width=as_width(width) or theorem)


@recipe(takes=GP, points=True, seeded=True, race={"": {}, " w=1": {"width": 1.0}})
def gp_ts(
    setup: Setup,
    *,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width_form: str = "theory",
    width: Any = None,
    grid_until: int | None = None,
) -> Policy:
    """GP-TS: play the best arm of a joint draw from GP(mu, v_t^2 k) (Chowdhury & Gopalan 2017, Algorithm 2).

    Over arms D_t is the set of arms. Over a domain the maximum of the draw is searched for among all points
    (``PathwisePointDraw``), not on the grids D_t of Theorem 4, whose points come within 1/(B L t^2) of every other. The
    theorem does not cover that, since its bound pays 2 ln(|D_t| t^2) for the largest value of a draw over D_t.
    ``grid_until=T`` plays on those grids in steps 1 to T (``GridSearch``), for functions that do not change. One
    difference from the theorem remains: the prior term of the draw consists of random features. |D_t| grows as t^(2 d):
    in one dimension a few hundred steps can be played, in two a few dozen.

    Raises ValueError for ``grid_until`` over arms, with a kernel over time or with ``learn_hyperparameters``, and if
    D_T has more than a million points.
    """
    model = model_over(setup)
    if grid_until is not None:
        setup = replace(setup, search=_grid(setup, model, rkhs_bound, grid_until))
    theorem = GPTSWidth(rkhs_bound, noise_scale, delta, RealisedGain(), form=width_form)
    draw = ThompsonSampling if setup.domain is None else PathwisePointDraw
    return policy_over(setup, model, draw, width=as_width(width) or theorem)


def _grid(setup: Setup, model: ArmGP | OnlineGP, rkhs_bound: Number, until: int) -> GridSearch:
    """The search over the decision sets of GP-TS, with the initial design of the setup's search."""
    validation.positive_integer("grid_until", until)
    learn = setup.learn_hyperparameters
    expected = "False with grid_until: D_t needs one kernel"
    validation.require(not learn, "learn_hyperparameters", learn, expected)
    domain = setup.domain
    if domain is None or not isinstance(model, OnlineGP) or model.input_dim > domain.dim:
        raise ValueError(
            f"grid_until must be None except over a domain without a kernel over time, got {until}"
        )
    norm = float(torch.as_tensor(rkhs_bound).max())
    lipschitz = (norm * steepness(model, domain)).tolist()
    initial = setup.point_search.initial if setup.point_search is not None else 0
    search = GridSearch(initial=initial, lipschitz=lipschitz, until=until)
    search.check(domain)
    return search


@recipe(takes=GP, points=True)
def gp_ei(setup: Setup, *, incumbent: str = "mean") -> Policy:
    """GP-EI: BoTorch's expected improvement over the incumbent.

    ``incumbent``: ``"mean"``, the largest posterior mean (of an arm, or of an observed point), or ``"reward"``, the
    largest reward observed, as for rewards without noise. BoTorch counts a variance below 1e-12 as 1e-12: if the
    prior's standard deviation is below about 1e-4, use another unit of rewards.

    Raises ValueError for any other ``incumbent``.
    """
    return _improvement(setup, incumbent, LogExpectedImprovement, 0.0)


@recipe(takes=GP, points=True)
def gp_pi(setup: Setup, *, margin: float = 0.01, incumbent: str = "mean") -> Policy:
    """GP-PI: BoTorch's probability of improving the incumbent by ``margin`` (in units of reward).

    ``incumbent``, and the smallest unit of rewards: as for ``gp_ei``. Raises ValueError for a ``margin`` that is not a
    finite number.
    """
    validation.finite_number("margin", margin)
    return _improvement(setup, incumbent, LogProbabilityOfImprovement, margin)


def _improvement(
    setup: Setup, incumbent: str, acquisition: Callable[..., AcquisitionFunction], margin: float
) -> Policy:
    validation.one_of("incumbent", incumbent, "mean", "reward")
    kind = IndexPolicy if incumbent == "mean" else RewardImprovementPolicy
    return policy_over(setup, model_over(setup), Improvement(acquisition, margin), kind=kind)


@recipe(takes=GP, points=True, quick={"interval": 7}, race=OWN_WIDTH_AND_CONSTANT)
def r_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    interval: int | None = None,
    rkhs_variation_budget: Number | None = None,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """R-GP-UCB: IGP-UCB restarted every ``interval`` steps (Zhou & Shroff 2021, Algorithm 1).

    Raises ValueError unless ``interval`` is an integer >= 1.
    """
    validation.positive_integer("horizon", horizon)
    model = model_over(setup)
    if interval is None:
        interval = memory_length(model, horizon, rkhs_variation_budget, setup.domain)
    validation.positive_integer("interval", interval)
    rule = PeriodicRestart(interval)
    theorem = RestartWidth(None, rkhs_bound, noise_scale, delta, horizon=horizon)
    return policy_over(setup, model, UpperConfidenceBound, width=as_width(width) or theorem, forgetting=rule)


@recipe(takes=GP, points=True, quick={"window": 9}, race=OWN_WIDTH_AND_CONSTANT)
def sw_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    window: int | str | Mapping[str, Any] | None = None,
    rkhs_variation_budget: Number | None = None,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """SW-GP-UCB: IGP-UCB on the last ``window`` observations (Zhou & Shroff 2021, Algorithm 2).

    ``window``: a number; None for Zhou & Shroff's formula (``memory_length``); or ``"likelihood"``, or the arguments of
    ``LikelihoodWindow``, to choose it during the run by the predictive likelihood of the latest rewards, by default
    among 8, 16, ..., 256, up to ``horizon``. The width then holds for all W candidates: ln(W T/delta).

    Raises ValueError for a ``window`` of another kind.
    """
    validation.positive_integer("horizon", horizon)
    model = model_over(setup)
    if window is None:
        window = memory_length(model, horizon, rkhs_variation_budget, setup.domain)
    rule = as_window(window, horizon)
    candidates = len(rule.candidates) if isinstance(rule, LikelihoodWindow) else 1
    theorem = SlidingWindowWidth(None, candidates * horizon, rkhs_bound, noise_scale, delta)
    return policy_over(setup, model, UpperConfidenceBound, width=as_width(width) or theorem, forgetting=rule)


@recipe(takes=GP, points=True, quick={"forgetting_rate": 0.1}, race=OWN_WIDTH_AND_CONSTANT)
def tv_gp_ucb(
    setup: Setup,
    *,
    forgetting_rate: float = 0.03,
    time_kernel: Kernel | str | None = None,
    stale: float | str | None = STALE,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """TV-GP-UCB: GP-UCB with the kernel k (1 - eps)^{|t - t'|/2}, eps the forgetting rate (Bogunovic et al. 2016).

    ``time_kernel``: another kernel over time, which replaces ``forgetting_rate``. A Matern kernel suits a function that
    changes smoothly, because it extrapolates trends; ``QuasiPeriodicKernel`` suits one with a daily cycle; exponential
    forgetting always predicts a return to the mean. Over arms it must be a ``MarkovTimeKernel`` or have a state space
    (``state_space_of``); with s numbers per arm a step costs O((s N)^2). A name and a number can replace it:
    ``"quasi-periodic:24"`` and ``"periodic:24"`` (three harmonics; the first keeps its shape for five periods),
    ``"matern-3/2:50"``, ``"exponential:0.03"``, ``"wiener:0.01"``; several joined by ``+`` share the variance equally.

    ``stale``, over a domain: under exponential forgetting an observation is dropped once it can change no mean by more
    than this many prior standard deviations (``StaleObservations``), so that steps do not slow down. ``"wasserstein"``
    drops more (``WassersteinForgetting``), without that bound. None keeps all.

    Raises ValueError for a ``time_kernel`` that is not a kernel, or neither of these over arms, and another ``stale``.
    """
    time_kernel = as_time_kernel(time_kernel)
    rule = as_stale_rule(stale, setup, time_kernel)
    if time_kernel is None:
        if forgetting_rate == 0:  # a function known not to change
            return _gp_ucb(setup, delta, width)
        time_kernel = exponential_forgetting(forgetting_rate)
    return _gp_ucb(drifting(setup, time_kernel), delta, width, rule)


@recipe(takes=GP, points=True, race=OWN_WIDTH_AND_CONSTANT)
def ui_gp_ucb(
    setup: Setup, *, drift_variance: float = 0.01, start: float = 0.0, delta: float = 0.1, width: Any = None
) -> Policy:
    """Uncertainty injection: GP-UCB that adds ``drift_variance`` * k to its covariance per unit of time.

    A random walk instead of the stationary drift of TV-GP-UCB (Bogunovic et al. 2016); see ``WienerKernel`` for the
    equation. ``start``: the time at which the covariance is k. If the clock does not begin near 0, give the time of
    the first step: at 1.7e9 seconds since 1970 a walk from 0 has a prior variance of 17 million k.
    """
    walk = WienerKernel(in_float64("drift_variance", drift_variance), start)
    return _gp_ucb(drifting(setup, walk), delta, width)


@recipe(takes=GP, points=True, quick={"delta": 0.5}, race=OWN_WIDTH_AND_CONSTANT)
def et_gp_ucb(
    setup: Setup, *, delta: float = 0.1, noise_scale: float | None = None, width: Any = None
) -> Policy:
    """ET-GP-UCB: GP-UCB restarted when an observation contradicts its prediction (Brunzema et al. 2022)."""
    return _gp_ucb(setup, delta, width, EventTriggeredRestart(delta, noise_scale))


@recipe(takes=(*RUN, "prior_mean", "form"), seeded=True, quick={"forgetting_rate": 0.1, "draws": 39})
def band_gp_ucb(
    setup: Setup, *, forgetting_rate: float = 0.03, delta: float = 0.1, draws: int = 199
) -> Policy:
    """TV-GP-UCB with the narrowest width that holds at all arms of a step at once, from draws of the joint posterior.

    The band of GP-UCB's proof (Srinivas et al. 2010, Lemma 5.1) with the quantile in place of two union bounds
    (``SimultaneousBand``). It uses the correlation of the arms, and holds at each step with probability 1 - delta, not
    at all steps at once. It is about half as wide. ``mean_excess`` gives the regret. Bayesian: f is drawn from the
    prior.

    ``forgetting_rate``: epsilon of the kernel k (1 - eps)^{|t - t'|/2}, 0 for a function known not to change;
    ``draws``: M, draws of the posterior per step.

    Raises ValueError for fewer than 1/delta - 1 ``draws``.
    """
    validation.below_one("forgetting_rate", forgetting_rate)
    band = SimultaneousBand(delta, draws)
    if forgetting_rate:
        setup = drifting(setup, exponential_forgetting(forgetting_rate))
    return policy_over(setup, model_over(setup), band)


@recipe(takes=(*RUN, "prior_mean", "form"), seeded=True, quick={"forgetting_rate": 0.1})
def predictive_sampling(setup: Setup, *, forgetting_rate: float = 0.03, interval: float = 1.0) -> Policy:
    """Predictive sampling: draws discount what will soon be worth nothing (Liu, Van Roy & Xu 2022, arXiv 2205.01970).

    Thompson sampling with the kernel k (1 - eps)^{|t - t'|/2}, eps the forgetting rate, where the draw is not of f but
    of its mean given all future rewards (``PredictiveSampling``, with the derivation). The faster f changes,
    the less it explores: at rate 0 it is Thompson sampling, and near 1 it plays the largest posterior mean.

    ``forgetting_rate``: eps, per unit of time;  ``interval``: time between the rewards of the future.

    Raises ValueError unless 0 <= ``forgetting_rate`` < 1 and ``interval`` > 0.
    """
    if validation.below_one("forgetting_rate", forgetting_rate):
        setup = drifting(setup, exponential_forgetting(forgetting_rate))
    model = cast(ArmGP, model_over(setup))
    return policy_over(setup, model, PredictiveSampling(model, interval))
