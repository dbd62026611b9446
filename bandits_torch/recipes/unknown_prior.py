"""Algorithms for a set of candidate priors, of which the true one is unknown.

They are called as ``recipe(arms, priors, noise_variance, *, horizon, ...)``, ``priors`` a sequence of
``CandidatePrior``; all but the oracle take a ``Domain`` of points for arms, too. All
use the width of PE-GP-UCB's theorem, so they differ only in how they handle the priors; the oracle
``known_prior_gp_ucb`` gets the true ``prior``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.candidate_priors import arm_gp_of_prior, arm_gp_over_priors
from bandits_torch.models.candidate_prior import CandidatePrior, check_priors
from bandits_torch.models.points.candidate_priors import online_gp_of_prior, online_gp_over_priors
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.learning import LearnedHyperparameters
from bandits_torch.policies.over_priors import (
    BayesianPriorPolicy,
    LikeliestPriorPolicy,
    PriorElimination,
    UnknownPriorPolicy,
)
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.regret_balancing import RegretBalancing
from bandits_torch.recipes.parts import as_learning, as_width, steepness
from bandits_torch.recipes.registration import OWN_WIDTH_AND_CONSTANT, RUN, recipe
from bandits_torch.recipes.setup import Number, Setup
from bandits_torch.theory.prior_widths import PriorEliminationContinuousWidth, PriorEliminationFiniteWidth
from bandits_torch.theory.widths import Width

Priors = Sequence[CandidatePrior]
_TAKES = (*RUN, "form")
_FLAT = 1e-12  # b of a prior whose functions are constant


@recipe(
    belief="priors",
    takes=(*_TAKES, "search", "learn_hyperparameters"),
    seeded=True,
    points=True,
    race=OWN_WIDTH_AND_CONSTANT,
)
def pe_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    delta: float = 0.1,
    noise_scale: Number | None = None,
    xi: str = "two-sided",
    width: Any = None,
) -> Policy:
    """PE-GP-UCB: optimistic over arms and priors; drops priors that predict badly (Ziomek et al. 2024, Algorithm 1).

    ``xi``: the form of the test's xi_t, ``"two-sided"`` or ``"printed"`` (``PriorElimination``).

    Raises ValueError for ``learn_hyperparameters`` over arms, whose priors are matrices.
    """
    test: dict[str, Any] = {"delta": delta, "noise_scale": noise_scale, "xi": xi}
    if setup.domain is None:
        asked = setup.learn_hyperparameters
        validation.require(not asked, "learn_hyperparameters", asked, "False over arms: priors are matrices")
        model = _over_priors(setup)
        return PriorElimination(model, _width(width, model, horizon, delta), **test)
    learn, (anisotropy, schedule) = (
        bool(setup.learn_hyperparameters),
        as_learning(setup.learn_hyperparameters),
    )
    over = online_gp_over_priors(
        setup.domain,
        cast(Priors, setup.priors),
        cast(Number, setup.noise_variance),
        replicates=setup.replicates,
        learn=learn,
        anisotropy=anisotropy,
    )
    own = _width(width, over, horizon, delta, setup.domain)
    policy = PriorElimination(
        over, own, choices=setup.domain, search=setup.point_search, seed=setup.seed, **test
    )
    return LearnedHyperparameters(policy, **schedule) if learn else policy


@recipe(belief="priors", takes=(*_TAKES, "search"), points=True, race=OWN_WIDTH_AND_CONSTANT)
def mle_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """GP-UCB under the prior of largest marginal likelihood so far (type II maximum likelihood).

    A baseline of PE-GP-UCB (Ziomek et al. 2024, section 7).
    """
    return _baseline(LikeliestPriorPolicy, setup, horizon, delta, width)


@recipe(belief="priors", takes=(*_TAKES, "search"), points=True, race=OWN_WIDTH_AND_CONSTANT)
def bayes_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """Upper confidence bounds averaged over the priors by their posterior probabilities: fully Bayesian.

    A baseline of PE-GP-UCB (Ziomek et al. 2024, section 7).
    """
    return _baseline(BayesianPriorPolicy, setup, horizon, delta, width)


@recipe(belief="priors", takes=(*_TAKES, "search"), points=True, race=OWN_WIDTH_AND_CONSTANT)
def regret_balancing(
    setup: Setup,
    *,
    horizon: int,
    delta: float = 0.1,
    noise_scale: Number | None = None,
    xi: str = "two-sided",
    width: Any = None,
) -> Policy:
    """Regret balancing over one GP-UCB per prior, for functions that do not change (Ziomek et al. 2024, Algorithm 2).

    ``xi``: the form of the test's xi_t, ``"two-sided"`` or ``"printed"`` (``RegretBalancing``).
    """
    priors = cast(Priors, setup.priors)
    check_priors(priors)
    policies = [_ucb_under(prior, setup, horizon, delta, width) for prior in priors]
    return RegretBalancing(policies, delta=delta, noise_scale=noise_scale, xi=xi)


@recipe(belief="prior", takes=_TAKES, race=OWN_WIDTH_AND_CONSTANT)
def known_prior_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """The oracle: GP-UCB with the true prior and PE-GP-UCB's width.

    ``prior`` is the true one. Width: that of PE-GP-UCB (Ziomek et al. 2024, Theorem 4.1 A).
    """
    return _ucb_under(cast(CandidatePrior, setup.prior), setup, horizon, delta, width)


def _ucb_under(prior: CandidatePrior, setup: Setup, horizon: int, delta: float, width: Any) -> IndexPolicy:
    """GP-UCB with one prior, over arms or over the points of a domain."""
    noise, domain = cast(Number, setup.noise_variance), setup.domain
    if domain is None:
        model = arm_gp_of_prior(
            cast(Tensor | int, setup.choices), prior, noise, replicates=setup.replicates, form=setup.form
        )
        return IndexPolicy(model, UpperConfidenceBound, width=_width(width, model, horizon, delta))
    over = online_gp_of_prior(domain, prior, noise, replicates=setup.replicates)
    own = _width(width, over, horizon, delta, domain)
    return IndexPolicy(
        over, UpperConfidenceBound, choices=domain, width=own, search=setup.point_search, seed=setup.seed
    )


def _baseline(
    kind: type[UnknownPriorPolicy], setup: Setup, horizon: int, delta: float, width: Any
) -> UnknownPriorPolicy:
    """A policy over arms, or over the points of a domain."""
    if setup.domain is None:
        model = _over_priors(setup)
        return kind(model, _width(width, model, horizon, delta))
    over = online_gp_over_priors(
        setup.domain,
        cast(Priors, setup.priors),
        cast(Number, setup.noise_variance),
        replicates=setup.replicates,
    )
    own = _width(width, over, horizon, delta, setup.domain)
    return kind(over, own, choices=setup.domain, search=setup.point_search, seed=setup.seed)


def _over_priors(setup: Setup) -> ArmGP:
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
    """The one given, or the theorem's: over a domain with a = 1 (``parts.bayesian_width``) and each prior's own b."""
    if width is not None:
        return cast(Width, as_width(width))
    if domain is None:
        return PriorEliminationFiniteWidth(cast(ArmGP, model).num_arms, horizon, delta)
    side = float((domain.bounds[1] - domain.bounds[0]).max())
    b = (math.sqrt(2) * steepness(cast(OnlineGP, model), domain)).clamp_min(_FLAT)
    return PriorEliminationContinuousWidth(domain.dim, horizon, side, 1.0, b, delta)
