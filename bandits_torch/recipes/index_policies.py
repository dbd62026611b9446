"""Recipes with one known prior: index policies (UCB, Thompson sampling, EI, PI) with and without forgetting, safe
policies, policies under contexts, and BKB, for many arms."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import GridSearch, PointSearch
from bandits_torch.acquisition.thompson_sampling import (
    PathwisePointDraw,
    PredictiveSampling,
    ThompsonSampling,
)
from bandits_torch.acquisition.upper_confidence_bound import (
    SimultaneousBand,
    UniformFirst,
    UpperConfidenceBound,
)
from bandits_torch.domain import Domain
from bandits_torch.kernels import (
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
    arm_context_kernel,
)
from bandits_torch.kernels.composed import COMBINATIONS
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.outcome_constraint import OutcomeConstraint
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.models.sketch.embedding import LeverageSampling
from bandits_torch.models.sketch.sketched_gp import SketchedGP
from bandits_torch.policies.batches import BatchBKB
from bandits_torch.policies.choices.contexts import check_contexts, pairs_of
from bandits_torch.policies.forgetting import (
    CANDIDATES,
    EventTriggeredRestart,
    ForgettingRule,
    LikelihoodWindow,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.policies.index import ContextualPolicy, Improvement, IndexPolicy, RewardImprovementPolicy
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.random import RandomPolicy
from bandits_torch.policies.safe import SafePointPolicy, SafePolicy
from bandits_torch.policies.stale_observations import StaleObservations, WassersteinForgetting
from bandits_torch.recipes.parts import (
    as_time_kernel,
    as_width,
    bayesian_width,
    drifting,
    in_float64,
    kernel_over_arms,
    memory_length,
    model_over,
    norm_width,
    one_prior_mean,
    over_arms,
    policy_over,
    steepness,
    with_forgetting,
)
from bandits_torch.recipes.registration import GP, OWN_WIDTH_AND_CONSTANT, RUN, Number, Setup, recipe
from bandits_torch.theory.prior_widths import CGPUCBWidth, PosteriorSafetyWidth
from bandits_torch.theory.widths import (
    BKBWidth,
    GPTSWidth,
    IGPWidth,
    RealisedGain,
    RestartWidth,
    SlidingWindowWidth,
    Width,
)

_MEAN, _ARMS = (*RUN, "prior_mean"), (*RUN, "prior_mean", "form")  # fields of a setup that a recipe takes
STALE = 1e-6  # largest change of a mean when a stale observation is dropped, in prior standard deviations
_SAFE = {"least_reward": -1.0, "forgetting_rate": 0.1}  # arguments for cheap tests


@recipe(belief=None, seeded=True, points=True, contexts=True, scale_free=True)
def random(setup: Setup) -> Policy:
    """Uniformly random arms or points: the baseline of every race."""
    choices = setup.domain or setup.features
    device = "cpu" if isinstance(choices, Domain) else choices.device
    return RandomPolicy(choices, setup.replicates, **setup.seeds, device=device)


@recipe(takes=GP, points=True, race=OWN_WIDTH_AND_CONSTANT)
def gp_ucb(setup: Setup, *, delta: float = 0.1, width: Any = None) -> Policy:
    """GP-UCB with the Bayesian width (Srinivas et al. 2010, Theorem 1; Theorem 2 over a domain)."""
    return _gp_ucb(setup, delta, width)


def _gp_ucb(setup: Setup, delta: float, width: Any, rule: ForgettingRule | None = None) -> Policy:
    """GP-UCB with this ``width``, or the Bayesian one if it is None."""
    model = model_over(setup)
    theorem = bayesian_width(setup, model, delta)
    return policy_over(setup, model, UpperConfidenceBound, width=as_width(width) or theorem, forgetting=rule)


@recipe(takes=GP, points=True, passes_to=norm_width)
def igp_ucb(setup: Setup, *, width_form: str = "theory", **options: Any) -> Policy:
    """IGP-UCB with the realised information gain (Chowdhury & Gopalan 2017, Algorithm 1)."""
    model, theorem = model_over(setup), partial(IGPWidth, gain=RealisedGain(), form=width_form)
    return policy_over(setup, model, UpperConfidenceBound, width=norm_width(theorem, **options))


@recipe(takes=GP, points=True, seeded=True, race={"": {}, " w=1": {"width": 1.0}}, passes_to=norm_width)
def gp_ts(
    setup: Setup,
    *,
    rkhs_bound: Number = 1.0,
    width_form: str = "theory",
    grid_until: int | None = None,
    **options: Any,
) -> Policy:
    """GP-TS: play the best arm of a joint draw from GP(mu, v_t^2 k) (Chowdhury & Gopalan 2017, Algorithm 2).

    Over arms, the decision set D_t is the set of arms. Over a domain, an optimiser searches all points for the maximum
    of the draw (``PathwisePointDraw``). Theorem 4 does not cover this: it needs finite grids D_t that come within
    1/(B L t^2) of every point. ``grid_until=T`` plays on those grids in steps 1 to T (``GridSearch``), for functions
    that do not change; the prior term of the draw still consists of random features. |D_t| grows as t^(2 d): a few
    hundred steps can be played if d = 1, a few dozen if d = 2.

    Raises ValueError for ``grid_until`` over arms, with a kernel over time, with constraints or with
    ``learn_hyperparameters``, and if D_T has more than a million points.
    """
    model = model_over(setup)
    if grid_until is not None:
        setup = replace(setup, search=_grid(setup, model, rkhs_bound, grid_until))
    theorem = partial(GPTSWidth, gain=RealisedGain(), form=width_form)
    draw = ThompsonSampling if setup.domain is None else PathwisePointDraw
    if isinstance(model, OnlineGP):  # refuse a kernel without draws now, not at the first choice
        PathwisePointDraw(model, time=0.0, seeds=[0] * setup.replicates, features=2)
    return policy_over(setup, model, draw, width=norm_width(theorem, rkhs_bound=rkhs_bound, **options))


def _grid(setup: Setup, model: ArmGP | OnlineGP, rkhs_bound: Number, until: int) -> GridSearch:
    """The search over the grids D_t of GP-TS, with the initial design of the setup's search."""
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

    ``incumbent``: ``"mean"``, the largest posterior mean of an arm or of an observed point, or ``"reward"``, the
    largest reward observed, which suits rewards without noise. BoTorch raises variances below 1e-12 to 1e-12. If the
    prior standard deviation is below about 1e-4, use another unit of rewards.

    Raises ValueError for any other ``incumbent``.
    """
    return _improvement(setup, incumbent, LogExpectedImprovement, 0.0)


@recipe(takes=GP, points=True)
def gp_pi(setup: Setup, *, margin: float = 0.01, incumbent: str = "mean") -> Policy:
    """GP-PI: BoTorch's probability of improving the incumbent by ``margin`` (in units of reward).

    ``incumbent`` and the floor of the variance are as for ``gp_ei``. Raises ValueError for any other ``incumbent``, and
    a ``margin`` that is not a finite number.
    """
    validation.finite_number("margin", margin)
    return _improvement(setup, incumbent, LogProbabilityOfImprovement, margin)


def _improvement(
    setup: Setup, incumbent: str, acquisition: Callable[..., AcquisitionFunction], margin: float
) -> Policy:
    validation.one_of("incumbent", incumbent, "mean", "reward")
    kind = IndexPolicy if incumbent == "mean" else RewardImprovementPolicy
    return policy_over(setup, model_over(setup), Improvement(acquisition, margin), kind=kind)


@recipe(takes=GP, points=True, quick={"interval": 7}, race=OWN_WIDTH_AND_CONSTANT, passes_to=norm_width)
def r_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    interval: int | None = None,
    rkhs_variation_budget: Number | None = None,
    **options: Any,
) -> Policy:
    """R-GP-UCB: IGP-UCB restarted every ``interval`` steps (Zhou & Shroff 2021, Algorithm 1).

    ``interval``: None for Zhou & Shroff's formula (``memory_length``). Raises ValueError unless ``horizon`` and
    ``interval`` are integers >= 1.
    """
    validation.positive_integer("horizon", horizon)
    model = model_over(setup)
    if interval is None:
        interval = memory_length(model, horizon, rkhs_variation_budget, setup.domain)
    rule, width = PeriodicRestart(interval), norm_width(partial(RestartWidth, horizon=horizon), **options)
    return policy_over(setup, model, UpperConfidenceBound, width=width, forgetting=rule)


@recipe(takes=GP, points=True, quick={"window": 9}, race=OWN_WIDTH_AND_CONSTANT, passes_to=norm_width)
def sw_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    window: int | str | Mapping[str, Any] | None = None,
    rkhs_variation_budget: Number | None = None,
    **options: Any,
) -> Policy:
    """SW-GP-UCB: IGP-UCB on the last ``window`` observations (Zhou & Shroff 2021, Algorithm 2).

    ``window``: a number, or None for Zhou & Shroff's formula (``memory_length``). ``"likelihood"``, or the arguments of
    ``LikelihoodWindow``, chooses it during the run by the predictive likelihood of the latest rewards, by default among
    8, 16, ..., 256, none above ``horizon``. The width then covers all W candidates, with ln(W T/delta).

    Raises ValueError for a ``window`` of the wrong kind.
    """
    validation.positive_integer("horizon", horizon)
    model = model_over(setup)
    if window is None:
        window = memory_length(model, horizon, rkhs_variation_budget, setup.domain)
    window = {} if window == "likelihood" else window
    if isinstance(window, Mapping):
        known = sorted(inspect.signature(LikelihoodWindow).parameters)
        validation.known_names("arguments of window", window, known)
        usual = tuple({min(w, horizon) for w in CANDIDATES})
        rule: SlidingWindow = LikelihoodWindow(**({"candidates": usual} | dict(window)))
    else:
        rule = SlidingWindow(cast(int, window))
    candidates = len(rule.candidates) if isinstance(rule, LikelihoodWindow) else 1
    width = norm_width(partial(SlidingWindowWidth, horizon=candidates * horizon), **options)
    return policy_over(setup, model, UpperConfidenceBound, width=width, forgetting=rule)


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

    ``time_kernel``: another kernel over time, which replaces ``forgetting_rate``: Matern for smooth changes, whose
    trends it extrapolates, ``QuasiPeriodicKernel`` for cycles. Over arms it must be a ``MarkovTimeKernel`` or have a
    state space (``state_space_of``); with s numbers per arm a step costs O((s N)^2). It may also be a name and a
    number: ``"quasi-periodic:24"`` and ``"periodic:24"`` (a period; the shape of the first changes over about five
    periods), ``"matern-3/2:50"`` (a length-scale), ``"exponential:0.03"``, ``"wiener:0.01"``; ``+`` averages several.

    ``stale``: over a domain, exponential forgetting drops an observation once it can change no mean by more than this
    many prior standard deviations (``StaleObservations``), so steps do not slow down. ``"wasserstein"`` drops
    more, without that bound, also under a Matern kernel over time (``WassersteinForgetting``). None keeps all.

    Raises ValueError for any other ``time_kernel``, and for a ``stale`` that is not > 0 or has no effect.
    """
    time_kernel = as_time_kernel(time_kernel, forgetting_rate)
    rule: ForgettingRule | None
    if isinstance(stale, str):
        validation.require(stale == "wasserstein", "stale", stale, "a tolerance, 'wasserstein' or None")
        drops = setup.domain is not None and time_kernel is not None
        validation.require(drops, "stale", stale, "the default or None, except under drift over a domain")
        rule = WassersteinForgetting()
    else:
        drops = setup.domain is not None and isinstance(time_kernel, ExponentialForgettingKernel)
        rule = _stale(stale, drops, "except under exponential forgetting over a domain")
    setup = setup if time_kernel is None else drifting(setup, time_kernel)
    return _gp_ucb(setup, delta, width, rule)


def _stale(stale: float | None, drops: bool, except_where: str) -> StaleObservations | None:
    """The rule that drops stale observations; None if it would have no effect, and the tolerance is the default."""
    if stale is None:
        return None
    validation.positive("stale", stale)
    validation.require(drops or stale == STALE, "stale", stale, f"the default or None, {except_where}")
    return StaleObservations(stale) if drops else None


@recipe(takes=GP, points=True, race=OWN_WIDTH_AND_CONSTANT)
def ui_gp_ucb(
    setup: Setup, *, drift_variance: float = 0.01, start: float = 0.0, delta: float = 0.1, width: Any = None
) -> Policy:
    """Uncertainty injection: GP-UCB that adds ``drift_variance`` * k to its covariance per unit of time.

    The function drifts as a random walk (``WienerKernel``), not as the stationary process of TV-GP-UCB (Bogunovic et
    al. 2016). ``start``: the time at which the covariance is k. If the clock does not begin near 0, pass the time of
    the first step: at 1.7e9 seconds since 1970 a walk that starts at 0 has a prior variance of 17 million k.
    """
    walk = WienerKernel(in_float64("drift_variance", drift_variance), start)
    return _gp_ucb(drifting(setup, walk), delta, width)


@recipe(takes=GP, points=True, quick={"delta": 0.5}, race=OWN_WIDTH_AND_CONSTANT)
def et_gp_ucb(
    setup: Setup, *, delta: float = 0.1, noise_scale: float | None = None, width: Any = None
) -> Policy:
    """ET-GP-UCB: GP-UCB restarted when an observation contradicts its prediction (Brunzema et al. 2022)."""
    return _gp_ucb(setup, delta, width, EventTriggeredRestart(delta, noise_scale))


@recipe(takes=_ARMS, seeded=True, quick={"forgetting_rate": 0.1, "draws": 39})
def band_gp_ucb(
    setup: Setup, *, forgetting_rate: float = 0.03, delta: float = 0.1, draws: int = 199
) -> Policy:
    """TV-GP-UCB with the narrowest width that holds at all arms of a step at once, from draws of the joint posterior.

    A quantile replaces both union bounds in the confidence band of GP-UCB's proof (Srinivas et al. 2010, Lemma 5.1; see
    ``SimultaneousBand``). The band is about half as wide. It holds at each step with probability 1 - delta, not at all
    steps at once, and for draws of the prior; ``mean_excess`` bounds the regret.

    ``forgetting_rate``: epsilon of the kernel k (1 - eps)^{|t - t'|/2}, 0 for a function known not to change;
    ``draws``: M, draws of the posterior per step.

    Raises ValueError for fewer than 1/delta - 1 ``draws``.
    """
    setup = with_forgetting(setup, forgetting_rate)
    return policy_over(setup, model_over(setup), SimultaneousBand(delta, draws))


@recipe(takes=_ARMS, seeded=True, quick={"forgetting_rate": 0.1})
def predictive_sampling(setup: Setup, *, forgetting_rate: float = 0.03, interval: float = 1.0) -> Policy:
    """Predictive sampling: explores less what will soon change (Liu, Van Roy & Xu 2022, arXiv 2205.01970).

    Thompson sampling with the kernel k (1 - eps)^{|t - t'|/2}, eps the forgetting rate, which draws the mean of f given
    all future rewards instead of f (``PredictiveSampling`` has the derivation). The faster f changes, the less it
    explores. At rate 0 it is Thompson sampling; near 1 it plays the largest posterior mean.

    ``forgetting_rate``: eps, per unit of time;  ``interval``: time between future rewards.

    Raises ValueError unless 0 <= ``forgetting_rate`` < 1 and ``interval`` > 0.
    """
    setup = with_forgetting(setup, forgetting_rate)
    model = cast(ArmGP, model_over(setup))
    return policy_over(setup, model, PredictiveSampling(model, interval))


def _safe_parts(
    setup: Setup,
    *,
    constraints: Sequence[OutcomeConstraint] | None = None,
    least_reward: float | None = None,
    trust: str = "start",
    when_empty: str = "likeliest",
    forgetting_rate: float = 0.03,
    delta: float = 0.1,
    guarantee: str = "run",
    width: Any = None,
    safety_width: Any = None,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Arguments of the policy, and the forgetting rates by name of reward and outcomes. Widths that are not given are
    those of the theorems."""
    given, expected = () if constraints is None else constraints, "a sequence of OutcomeConstraint"
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    validation.require(listed, "constraints", constraints, expected)
    for one in given:
        validation.instance("constraints", one, OutcomeConstraint, expected)
    names = [one.name for one in given]
    validation.require(len(set(names)) == len(names), "constraints", names, "of different names")
    limits = {one.name: (one.low, one.high) for one in given}
    if least_reward is not None:
        limits["reward"] = (validation.finite_number("least_reward", least_reward), math.inf)
    validation.require(len(limits) > 0, "constraints", constraints, "given, unless least_reward is")
    rates = {"reward": forgetting_rate}
    setups = {"reward": setup}
    for one in given:
        given_or_that_of_reward = {"kernel": one.kernel, "noise_variance": one.noise_variance}
        own = {name: value for name, value in given_or_that_of_reward.items() if value is not None}
        setups[one.name] = replace(setup, prior_mean=cast(Number, one.prior_mean), **cast(Any, own))
        rates[one.name] = forgetting_rate if one.forgetting_rate is None else one.forgetting_rate
    models = {name: model_over(with_forgetting(its, rates[name])) for name, its in setups.items()}
    model = models.pop("reward")
    if safety_width is not None and not isinstance(safety_width, Width):
        validation.non_negative("safety_width", safety_width)
    finite = sum(math.isfinite(limit) for pair in limits.values() for limit in pair)
    theorem = PosteriorSafetyWidth(finite, delta, guarantee)
    parts: dict[str, Any] = {"model": model, "outcomes": models, "limits": limits}
    parts |= {"trust": trust, "when_empty": when_empty, "safety_width": as_width(safety_width) or theorem}
    return parts | {"width": as_width(width) or bayesian_width(setup, model, delta)}, rates


@recipe(takes=(*_ARMS, "search"), points=True, quick=_SAFE, race={}, passes_to=_safe_parts)
def safe_gp_ucb(
    setup: Setup, *, safe_arms: Tensor | None = None, safe_points: Tensor | None = None, **options: Any
) -> Policy:
    """Safe GP-UCB: the best upper bound in a safe set recomputed as its models drift (Li et al. 2024, TVSafeOpt's set).

    Reward and outcomes are independent Gaussian processes that forget at ``forgetting_rate`` (0: no drift).

    ``constraints``: the outcomes measured besides the reward, and their limits; ``least_reward``: a lower limit of the
    reward. At least one of the two is required. ``safe_arms``: a mask (N,) or (S, N), the initial safe set; ``trust``,
    ``when_empty``: see ``SafePolicy``. ``delta``: the probability of breaking a limit; ``guarantee``: in the whole
    ``"run"``, or at each ``"step"`` (``PosteriorSafetyWidth``, valid for draws of the priors). ``safety_width``
    replaces this width. ``width``: multiplies sigma in the upper bounds by which arms are chosen.

    Over a ``Domain`` it is a ``SafePointPolicy``, with ``safe_points`` (k, d) or (S, k, d) instead of ``safe_arms``.
    It uses only ``raw_samples`` and the rounding of ``search``, and drops stale observations (``StaleObservations``).

    Raises ValueError without limits, for safe arms over a domain, safe points over arms, and a search with an initial
    design (``initial``), whose points may be unsafe.
    """
    over_points = setup.domain is not None
    wrong = ("safe_arms", safe_arms) if over_points else ("safe_points", safe_points)
    expected = f"None: use {'safe_points' if over_points else 'safe_arms'} instead"
    validation.require(wrong[1] is None, wrong[0], wrong[1], expected)
    parts, rates = _safe_parts(setup, **options)
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
        search=search,
        seed=setup.seed,
    )


@recipe(takes=_ARMS, quick=_SAFE, race={}, passes_to=_safe_parts)
def safe_opt(setup: Setup, *, safe_arms: Tensor | None = None, **options: Any) -> Policy:
    """SafeOpt without a Lipschitz constant: learns which arms are safe and which is best (Berkenkamp et al. 2016).

    It plays the most uncertain arm among expanders and maximisers, so it never stops exploring; ``safe_gp_ucb`` has
    less regret. ``constraints``, ``least_reward``, ``safe_arms``, ``trust``, ``when_empty``, ``delta``, ``guarantee``,
    ``width`` and ``safety_width``: as for ``safe_gp_ucb``. With ``forgetting_rate`` 0 it is GP-SafeOpt; above 0 it has
    the safe set of TVSafeOpt, without its Lipschitz constants.

    Raises ValueError if there are no limits, and over a ``Domain``.
    """
    parts, _ = _safe_parts(setup, **options)
    return SafePolicy(**parts, safe_arms=safe_arms, explore="safeopt")


def _under_contexts(
    setup: Setup,
    time_kernel: Kernel | None = None,
    stale: float | None = STALE,
    *,
    context_dim: int = 0,
    context_kernel: Kernel | None = None,
    contexts: Tensor | None = None,
    combine: str = "product",
    num_contexts: int = 1,
    window: int | None = None,
    delta: float = 0.1,
    width: float | Width | None = None,
) -> Policy:
    """GP-UCB over pairs of arm and context, and over time."""
    drops = isinstance(time_kernel, ExponentialForgettingKernel) and window is None and contexts is None
    rule: ForgettingRule | None = None if window is None else SlidingWindow(window)
    rule = _stale(stale, drops, "with a window, contexts, or no exponential forgetting") or rule
    arms = setup.features
    validation.of_shape("arms", arms, ("N", "d"), note=", the same in all replicates")
    kernel, arms = kernel_over_arms(setup, arms)
    validation.natural("context_dim", context_dim)
    validation.require(combine in COMBINATIONS, "combine", combine, f"one of {', '.join(COMBINATIONS)}")
    expected = "a kernel over the context" if context_dim else "None without a context (context_dim 0)"
    fits = (context_kernel is not None) == (context_dim > 0)
    validation.require(fits, "context_kernel", context_kernel, expected)
    if contexts is not None:
        check_contexts(contexts)
        note = f", with context_dim {context_dim}"
        validation.of_shape("contexts", contexts, ("M", context_dim), note=note)
    if context_kernel is not None:
        kernel = arm_context_kernel(kernel, context_kernel, arms.shape[-1], context_dim, combine)
    theorem = CGPUCBWidth(len(arms), num_contexts, delta)
    if time_kernel is not None:
        kernel = SpatioTemporalKernel(kernel, time_kernel)
    model: OnlineModel
    if contexts is None:
        model = OnlineGP(
            kernel,
            cast(Number, setup.noise_variance),  # the model raises ValueError for None
            prior_mean=one_prior_mean(setup),
            input_dim=arms.shape[-1] + context_dim + (time_kernel is not None),
            batch_shape=(setup.replicates,),
            dtype=arms.dtype,
            device=arms.device,
        )
    else:
        pairs = pairs_of(arms, contexts.to(arms))
        model = model_over(replace(setup, choices=pairs, kernel=kernel, prior_mean=one_prior_mean(setup)))
    return ContextualPolicy(
        model,
        UpperConfidenceBound,
        choices=arms,
        context_dim=context_dim,
        contexts=contexts,
        width=as_width(width) or theorem,
        forgetting=rule,
        **setup.seeds,
    )


@recipe(takes=_MEAN, one_mean=True, contexts=True, quick={"window": 9}, race={}, passes_to=_under_contexts)
def cgp_ucb(setup: Setup, **options: Any) -> Policy:
    """CGP-UCB: GP-UCB over pairs of arm and context, given each step's context (Krause & Ong 2011, Algorithm 1).

    ``choose`` and ``ask`` take an ``ArmContext`` of ``context_dim`` numbers; with 0 it is GP-UCB. If arms are given as
    a number N, or with a covariance matrix as kernel, their feature is their index.

    ``context_kernel``: over contexts; ``combine``: how it is combined with the arms' kernel (``arm_context_kernel``);
    ``num_contexts``: the M of ``CGPUCBWidth``; ``window``: number of observations held, None for all. A window bounds
    the cost of a step, O(n (n + N)) with n held, but the width's theorem does not cover it.

    ``contexts``: (M, c), all contexts that can occur. The model is then an ``ArmGP`` over the N M pairs of arm and
    context, with the same posterior and steps whose cost does not grow.

    Raises ValueError for a ``context_kernel`` without contexts, or contexts without one, and a ``window`` below 1.
    """
    return _under_contexts(setup, **options)


@recipe(takes=_MEAN, one_mean=True, contexts=True, race={}, passes_to=_under_contexts)
def tv_cgp_ucb(
    setup: Setup,
    *,
    forgetting_rate: float = 0.03,
    time_kernel: Kernel | str | None = None,
    stale: float | None = STALE,
    **options: Any,
) -> Policy:
    """CGP-UCB with drift: its kernel is multiplied by (1 - eps)^{|t - t'|/2} (after Bogunovic et al. 2016).

    ``forgetting_rate``: eps; 0 gives ``cgp_ucb``. ``time_kernel``: another kernel over time, Markov or not, or its name
    and number, as for ``tv_gp_ucb``.

    ``stale``: exponential forgetting drops an observation once it can change no mean by more than this many prior
    standard deviations (``StaleObservations``), so steps do not slow down; None keeps all. ``window``: the number
    of observations held; ``stale`` then has no effect. ``context_dim``, ``context_kernel``, ``contexts``, ``combine``,
    ``num_contexts``: as for ``cgp_ucb``. With ``contexts`` no observation counts as stale, and ``ArmGP`` must support
    the kernel over time.

    Raises ValueError as ``cgp_ucb`` and ``tv_gp_ucb`` do.
    """
    return _under_contexts(setup, as_time_kernel(time_kernel, forgetting_rate), stale, **options)


def _sketched(
    setup: Setup,
    growth: float | None,
    dictionary: str,
    bound_is_guess: bool,
    batches: bool,
    *,
    horizon: int | None = None,
    preset: str = "practical",
    oversampling: float = 5.0,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: float | Width | None = None,
    chunk_size: int | None = None,
) -> tuple[SketchedGP, Width]:
    """The model and the width. ``batches``: means are frozen until the variances may have fallen by ``growth``."""
    theory = preset == "theory"
    expected = "None or 1 with preset='theory', whose theorem draws at every step"
    validation.require(batches or not theory or growth in (None, 1), "growth", growth, expected)
    growth = (2.0 if dictionary == "kept" else 1.0) if growth is None else growth
    validation.one_of("preset", preset, "theory", "practical")
    validation.probability("delta", delta)
    if horizon is not None:
        validation.positive_integer("horizon", horizon)
    if theory:
        delta = delta / 2  # for the dictionary, and as much for the width
        sampling = LeverageSampling.theory(horizon or 1, delta, dictionary=dictionary)
    else:
        sampling = LeverageSampling.practical(oversampling, growth, dictionary)
    stretch = 1.0
    if theory and batches:
        qbar, rise = growth * sampling.oversampling, growth * sampling.rise
        sampling, stretch = replace(sampling, oversampling=qbar, rise=rise, growth=growth), growth
    model = SketchedGP(**over_arms(setup), sampling=sampling, chunk_size=chunk_size, **setup.seeds)
    theorem = BKBWidth(rkhs_bound, noise_scale, delta, stretch=stretch, bound_is_guess=bound_is_guess)
    return model, as_width(width) or theorem


@recipe(takes=_MEAN, seeded=True, race=OWN_WIDTH_AND_CONSTANT, passes_to=_sketched)
def bkb(
    setup: Setup,
    *,
    growth: float | None = None,
    dictionary: str = "redrawn",
    bound_is_guess: bool = False,
    **options: Any,
) -> Policy:
    """BKB: GP-UCB on a dictionary resampled by ridge leverage scores (Calandriello et al. 2019, Figure 1).

    The first arm is drawn uniformly. After each pull, every observation enters the new dictionary with probability qbar
    sigma~^2 / lambda. ``preset="theory"`` takes qbar from their Theorem 1, for at least ``horizon`` observations, and
    splits delta between dictionary and width. ``"practical"`` uses ``oversampling`` as qbar. ``dictionary="kept"`` is
    ours: draws are added to the current dictionary, which is cheaper, but at a qbar of 5 often holds every arm pulled.
    ``growth``: C, the information after which a dictionary is drawn again (``LeverageSampling``); None: 1, at every
    step, but 2 with ``"kept"`` and ``"practical"``; ``"theory"`` takes no other than 1. ``bound_is_guess``:
    ``rkhs_bound`` is a first guess, doubled while the data refute it (``BKBWidth``). ``chunk_size``: number of arms
    processed at a time when memory is short (``SketchedGP``).

    Prefer exact GP-UCB over ``ArmGP(form="factor")`` until the distinct arms pulled are many times the dictionary's
    size, and ``bbkb`` for hundreds of thousands of arms or for late rewards.

    Raises ValueError for any other ``preset`` or ``dictionary``, and a ``growth`` above 1 with ``preset="theory"``.
    """
    model, width = _sketched(setup, growth, dictionary, bound_is_guess, False, **options)
    index = UpperConfidenceBound if dictionary == "kept" else UniformFirst
    return policy_over(setup, model, index, width=width)


@recipe(takes=_MEAN, seeded=True, race=OWN_WIDTH_AND_CONSTANT, passes_to=_sketched)
def bbkb(setup: Setup, *, growth: float = 5.0, **options: Any) -> Policy:
    """Batch BKB: means frozen until the accumulated variance exceeds ``growth`` (Calandriello et al. 2020).

    ``preset="theory"`` multiplies the qbar of ``bkb`` by ``growth``, and the width by sqrt(growth), because dictionary
    and mean are frozen. ``"practical"`` does neither.
    ``oversampling``, ``chunk_size``: as for ``bkb``.

    Raises ValueError as ``bkb`` does, and unless ``growth`` >= 1.
    """
    validation.at_least_one("growth", growth)
    return BatchBKB(*_sketched(setup, growth, "kept", False, True, **options))
