"""Recipes for an unknown prior: a set of candidate priors, or a kernel whose length-scale is unknown.

Recipes for candidates are called as ``recipe(arms, priors, noise_variance, *, horizon, ...)``. All but ``hp_gp_ts`` use
the width of PE-GP-UCB's theorem, so they differ only in how they handle the priors. ``a_gp_ucb`` and ``lb_gp_ucb``
start from an upper bound of the length-scale and have regret bounds.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.kernels.composed import unscaled
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.candidate_priors import (
    CandidatePrior,
    arm_gp_of_prior,
    arm_gp_over_priors,
    online_gp_over_priors,
)
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.over_priors import (
    BayesianPriorPolicy,
    LengthScaleBalancing,
    LikeliestPriorPolicy,
    PriorElimination,
    RegretBalancing,
    SampledPriorPolicy,
    ShrinkingLengthScale,
    UnknownPriorPolicy,
)
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.parts import as_width, learning, relative_steepness
from bandits_torch.recipes.registration import OWN_WIDTH_AND_CONSTANT, RUN, Number, Setup, recipe
from bandits_torch.theory.prior_widths import PriorEliminationContinuousWidth, PriorEliminationFiniteWidth
from bandits_torch.theory.widths import IGPWidth, RealisedGain, Width, checked

Priors = Sequence[CandidatePrior]
_TAKES = (*RUN, "form")
_LEAST_B = 1e-12  # the width's b for a prior of constant functions


def _tested(
    kind: Callable[..., UnknownPriorPolicy],
    setup: Setup,
    *,
    horizon: int,
    delta: float = 0.1,
    noise_scale: Number | None = None,
    xi: str = "two-sided",
    width: Any = None,
) -> UnknownPriorPolicy:
    """A policy of this ``kind``, which tests the priors."""
    testing = partial(kind, delta=delta, noise_scale=_per_member(noise_scale), xi=xi)
    return _over_priors(testing, setup, horizon, delta, width)


@recipe(
    belief="priors",
    takes=(*_TAKES, "search", "learn_hyperparameters"),
    seeded=True,
    points=True,
    race=OWN_WIDTH_AND_CONSTANT,
    passes_to=_tested,
)
def pe_gp_ucb(setup: Setup, **options: Any) -> Policy:
    """PE-GP-UCB: optimistic over arms and priors; drops priors that predict badly (Ziomek et al. 2024, Algorithm 1).

    ``xi``: the form of the test's xi_t, ``"two-sided"`` or ``"printed"`` (``PriorElimination``).

    Raises ValueError for ``learn_hyperparameters`` over arms, whose priors are matrices.
    """
    learn = setup.learn_hyperparameters
    if setup.domain is None:
        validation.require(not learn, "learn_hyperparameters", learn, "False over arms: priors are matrices")
    return learning(setup, cast(PriorElimination, _tested(PriorElimination, setup, **options)))


@recipe(belief="priors", takes=_TAKES, seeded=True, race=OWN_WIDTH_AND_CONSTANT, passes_to=_tested)
def pe_gp_ts(setup: Setup, **options: Any) -> Policy:
    """PE-GP-TS: the best of draws under all surviving priors (Sandberg & Haghir Chehreghani 2025, arXiv 2502.01226).

    ``pe_gp_ucb`` with draws f^p ~ GP(mu^p, k^p) instead of upper bounds. It drops priors that predict badly by the
    same test; only this test uses ``width``. ``PriorElimination`` says which parts of the paper were read, and what is
    ours. ``xi``: as for ``pe_gp_ucb``.

    Raises ValueError over a ``Domain``.
    """
    return _tested(partial(PriorElimination, draws=True, **setup.seeds), setup, **options)


@recipe(belief="priors", takes=_TAKES, seeded=True)
def hp_gp_ts(setup: Setup) -> Policy:
    """HP-GP-TS: a prior drawn from its posterior, then f (Sandberg & Haghir Chehreghani 2025, arXiv 2502.01226).

    Thompson sampling with an unknown prior (``SampledPriorPolicy``). The candidates have equal prior probabilities. It
    takes neither width nor horizon. Raises ValueError over a ``Domain``.
    """
    return SampledPriorPolicy(_over_arms(setup), **setup.seeds)


@recipe(belief="priors", takes=(*_TAKES, "search"), points=True, race=OWN_WIDTH_AND_CONSTANT)
def mle_gp_ucb(setup: Setup, *, horizon: int, delta: float = 0.1, width: Any = None) -> Policy:
    """GP-UCB under the prior with the largest marginal likelihood so far (type II maximum likelihood).

    A baseline of PE-GP-UCB (Ziomek et al. 2024, section 7).
    """
    return _over_priors(LikeliestPriorPolicy, setup, horizon, delta, width)


@recipe(belief="priors", takes=(*_TAKES, "search"), points=True, race=OWN_WIDTH_AND_CONSTANT)
def bayes_gp_ucb(setup: Setup, *, horizon: int, delta: float = 0.1, width: Any = None) -> Policy:
    """Upper confidence bounds averaged over the priors by their posterior probabilities: fully Bayesian.

    A baseline of PE-GP-UCB (Ziomek et al. 2024, section 7).
    """
    return _over_priors(BayesianPriorPolicy, setup, horizon, delta, width)


@recipe(
    belief="priors", takes=(*_TAKES, "search"), points=True, race=OWN_WIDTH_AND_CONSTANT, passes_to=_tested
)
def regret_balancing(setup: Setup, **options: Any) -> Policy:
    """Regret balancing over one GP-UCB per prior, for functions that do not change (Ziomek et al. 2024, Algorithm 2).

    ``xi``: the form of the test's xi_t, ``"two-sided"`` or ``"printed"`` (``RegretBalancing``).
    """
    return _tested(RegretBalancing, setup, **options)


@recipe(belief="prior", takes=_TAKES, race=OWN_WIDTH_AND_CONSTANT)
def known_prior_gp_ucb(setup: Setup, *, horizon: int, delta: float = 0.1, width: Any = None) -> Policy:
    """The oracle: GP-UCB with the true ``prior`` and PE-GP-UCB's width (Ziomek et al. 2024, Theorem 4.1 A)."""
    prior, noise = cast(CandidatePrior, setup.prior), cast(Number, setup.noise_variance)
    arms = cast(Tensor | int, setup.choices)
    model = arm_gp_of_prior(arms, prior, noise, replicates=setup.replicates, form=setup.form)
    return IndexPolicy(model, UpperConfidenceBound, width=_width(width, model, horizon, delta))


def _over_priors(
    kind: Callable[..., UnknownPriorPolicy], setup: Setup, horizon: int, delta: float, width: Any
) -> UnknownPriorPolicy:
    """A policy of this ``kind``, over arms or over the points of a domain, with one model over all priors."""
    if setup.domain is None:
        over_arms = _over_arms(setup)
        return kind(over_arms, _width(width, over_arms, horizon, delta))
    model = online_gp_over_priors(
        setup.domain,
        cast(Priors, setup.priors),
        cast(Number, setup.noise_variance),
        replicates=setup.replicates,
        learn=bool(setup.learn_hyperparameters),
        anisotropy=setup.anisotropy,
    )
    used = _width(width, model, horizon, delta, setup.domain)
    return kind(model, used, choices=setup.domain, search=setup.point_search, seed=setup.seed)


def _over_arms(setup: Setup) -> ArmGP:
    return arm_gp_over_priors(
        cast(Tensor | int, setup.choices),
        cast(Priors, setup.priors),
        cast(Number, setup.noise_variance),
        replicates=setup.replicates,
        form=setup.form,
    )


def _width(
    width: Any, model: ArmGP | OnlineGP, horizon: int, delta: float, domain: Domain | None = None
) -> Width:
    """The given width, or the theorem's; over a domain with a = 1, as in ``bayesian_width``, and a b for each prior."""
    if width is not None:
        return cast(Width, as_width(width))
    if domain is None:
        return PriorEliminationFiniteWidth(cast(ArmGP, model).num_arms, horizon, delta)
    side = float((domain.bounds[1] - domain.bounds[0]).max())
    b = (math.sqrt(2) * relative_steepness(cast(OnlineGP, model), domain)).clamp_min(_LEAST_B)
    return PriorEliminationContinuousWidth(domain.dim, horizon, side, 1.0, b, delta)


@recipe(takes=(*RUN, "prior_mean", "form"), race={})
def a_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    shrink: float = 0.25,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """A-GP-UCB: the length-scale shrinks, the norm bound grows (Berkenkamp et al. 2019, Algorithm 1).

    The kernel's length-scale theta_0 is an upper bound of the true one; B = ``rkhs_bound`` bounds the norm under this
    kernel. At step t the length-scale is theta_0 / g, with g = t^``shrink`` rounded up to e^{p/d}, p = 0, 1, ...; after
    ``horizon`` it stays. The width uses the norm bound g^{d/2} B (Bull 2011, Lemma 4; tested). The paper's g^d B is
    larger. For squared exponential and Matern kernels over features.

    Raises ValueError for any other kernel, and arms without features.
    """
    model, factors, _ = _candidates(setup, horizon, shrink)
    dim = setup.features.shape[-1]
    checked(validation.non_negative, "rkhs_bound", rkhs_bound)
    growth = model.noise_variance.new_tensor([g ** (dim / 2) for g in factors])
    bound = torch.as_tensor(rkhs_bound, dtype=growth.dtype).reshape(-1, 1) * growth  # (S or 1, P)
    theorem = IGPWidth(bound, _per_member(noise_scale), delta, RealisedGain())
    return ShrinkingLengthScale(model, as_width(width) or theorem, factors, shrink)


@recipe(takes=(*RUN, "prior_mean", "form"), race={})
def lb_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    shrink: float = 0.25,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """LB-GP-UCB: regret balancing between length-scales; shorter ones enter later (Ziomek et al. 2024, 2410.10384).

    The kernel's length-scale theta_0 is an upper bound of the true one; B = ``rkhs_bound`` bounds the norm under the
    kernel with the true length-scale. Candidates are theta_0 e^{-p/d}, p = 0, 1, ...; each enters once t^``shrink`` >=
    e^{p/d}. For functions that do not change, and squared exponential and Matern kernels over features.

    Raises ValueError for any other kernel, and arms without features.
    """
    model, factors, lengthscale = _candidates(setup, horizon, shrink)
    bound = _per_member(rkhs_bound)
    theorem = IGPWidth(cast(Number, bound), _per_member(noise_scale), delta, RealisedGain())
    return LengthScaleBalancing(
        model,
        as_width(width) or theorem,
        factors,
        shrink,
        lengthscale=lengthscale,
        dim=setup.features.shape[-1],
        rkhs_bound=cast(Number, bound),
        delta=delta,
        noise_scale=_per_member(noise_scale),
    )


def _candidates(setup: Setup, horizon: int, shrink: float) -> tuple[ArmGP, list[float], float]:
    """A model of batch shape (S, P), factors e^{p/d} up to the first >= T^``shrink``, and the geometric mean
    theta_0."""
    kernel = setup.kernel
    expected = "features (N, d), which a length-scale needs"
    validation.require(isinstance(setup.choices, Tensor), "arms", setup.choices, expected)
    arms = setup.features
    mean = inputs.prior_mean_over(arms, setup.prior_mean)
    scale = math.log(validation.positive_integer("horizon", horizon))
    scale *= validation.probability("shrink", shrink)
    dim = arms.shape[-1]
    factors = [math.exp(p / dim) for p in range(1 + math.ceil(dim * scale - 1e-9))]
    longest = _stationary(kernel).lengthscale
    kernels = [copy.deepcopy(cast(Kernel, kernel)).double() for _ in factors]
    for factor, shorter in zip(factors, kernels, strict=True):
        _stationary(shorter).lengthscale = longest.detach().double() / factor
    priors = [CandidatePrior(one, mean) for one in kernels]
    model = _over_arms(replace(setup, choices=arms, priors=priors))
    return model, factors, float(longest.detach().double().log().mean().exp())


def _stationary(kernel: Any) -> RBFKernel | MaternKernel:
    """The base kernel, which has the length-scale."""
    base, _ = unscaled(kernel)
    expected = "a squared exponential or Matern kernel over features, scaled or not"
    validation.require(isinstance(base, RBFKernel | MaternKernel), "kernel", kernel, expected)
    return cast(RBFKernel, base)


def _per_member(value: Number | None) -> Number | None:
    """A value that broadcasts to (S, P): (S,) becomes (S, 1)."""
    return value.unsqueeze(-1) if isinstance(value, Tensor) and value.dim() == 1 else value
