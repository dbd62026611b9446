"""Algorithms that are told a set of candidate priors, not which of them is true.

They are called as ``recipe(arms, priors, noise_variance, *, horizon, ...)``, ``priors`` a sequence of
``CandidatePrior``; ``pe_gp_ucb`` takes a ``Domain`` of points for arms, too. All play with the same width, that of
PE-GP-UCB's theorem, so that they differ in what they do about the priors alone; ``known_prior_gp_ucb`` is the oracle
among them and gets the true ``prior``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.models.arm_gp import ArmGP
from bandits_torch.models.candidate_points import online_gp_over_priors
from bandits_torch.models.candidate_priors import (
    CandidatePrior,
    arm_gp_of_prior,
    arm_gp_over_priors,
    check_priors,
)
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.learning import LearnedHyperparameters
from bandits_torch.policies.over_priors import BayesianPriorPolicy, LikeliestPriorPolicy, PriorElimination
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.regret_balancing import RegretBalancing
from bandits_torch.recipes.parts import Choices, as_learning, as_search, as_width, steepness
from bandits_torch.theory.prior_widths import PriorEliminationContinuousWidth, PriorEliminationFiniteWidth
from bandits_torch.theory.widths import Width

Number = float | Tensor


def pe_gp_ucb(
    arms: Choices,
    priors: Sequence[CandidatePrior],
    noise_variance: Number,
    *,
    horizon: int,
    replicates: int = 1,
    delta: float = 0.1,
    noise_scale: Number | None = None,
    xi: str = "two-sided",
    width: Any = None,
    form: str = "auto",
    search: PointSearch | Mapping[str, Any] | None = None,
    learn_hyperparameters: bool | Mapping[str, Any] = False,
    seed: int = 0,
) -> Policy:
    """PE-GP-UCB: optimistic over priors too, drops those whose predictions fail (Ziomek et al. 2024, Algorithm 1).

    ``xi``: the form of the test's xi_t, ``"two-sided"`` or ``"printed"`` (``PriorElimination``).

    Raises ValueError for ``learn_hyperparameters`` over arms, whose priors are matrices.
    """
    test: dict[str, Any] = {"delta": delta, "noise_scale": noise_scale, "xi": xi}
    if not isinstance(arms, Domain):
        fixed = not learn_hyperparameters
        validation.require(
            fixed, "learn_hyperparameters", learn_hyperparameters, "False over arms: priors are matrices"
        )
        model = arm_gp_over_priors(arms, priors, noise_variance, replicates=replicates, form=form)
        return PriorElimination(model, _width(width, model, horizon, delta), **test)
    learn, (anisotropy, schedule) = bool(learn_hyperparameters), as_learning(learn_hyperparameters)
    over = online_gp_over_priors(
        arms, priors, noise_variance, replicates=replicates, learn=learn, anisotropy=anisotropy
    )
    side = float((arms.bounds[1] - arms.bounds[0]).max())
    b = math.sqrt(2) * steepness(over, arms)  # with a = 1: see ``parts.bayesian_width``
    own = as_width(width) or PriorEliminationContinuousWidth(arms.dim, horizon, side, 1.0, b, delta)
    policy = PriorElimination(over, own, choices=arms, search=as_search(search), seed=seed, **test)
    return LearnedHyperparameters(policy, **schedule) if learn else policy


def mle_gp_ucb(
    arms: Tensor | int,
    priors: Sequence[CandidatePrior],
    noise_variance: Number,
    *,
    horizon: int,
    replicates: int = 1,
    delta: float = 0.1,
    width: Any = None,
    form: str = "auto",
) -> LikeliestPriorPolicy:
    """GP-UCB under the prior of the largest marginal likelihood so far (type II maximum likelihood).

    A baseline of Ziomek et al. 2024, section 7.
    """
    model = arm_gp_over_priors(arms, priors, noise_variance, replicates=replicates, form=form)
    return LikeliestPriorPolicy(model, _width(width, model, horizon, delta))


def bayes_gp_ucb(
    arms: Tensor | int,
    priors: Sequence[CandidatePrior],
    noise_variance: Number,
    *,
    horizon: int,
    replicates: int = 1,
    delta: float = 0.1,
    width: Any = None,
    form: str = "auto",
) -> BayesianPriorPolicy:
    """Upper confidence bounds averaged over the priors by their posterior probabilities (fully Bayesian).

    A baseline of Ziomek et al. 2024, section 7.
    """
    model = arm_gp_over_priors(arms, priors, noise_variance, replicates=replicates, form=form)
    return BayesianPriorPolicy(model, _width(width, model, horizon, delta))


def regret_balancing(
    arms: Tensor | int,
    priors: Sequence[CandidatePrior],
    noise_variance: Number,
    *,
    horizon: int,
    replicates: int = 1,
    delta: float = 0.1,
    noise_scale: Number | None = None,
    xi: str = "two-sided",
    width: Any = None,
    form: str = "auto",
) -> RegretBalancing:
    """Regret balancing over a GP-UCB of each prior, for what does not change (Ziomek et al. 2024, Algorithm 2).

    ``xi``: the form of the test's xi_t, ``"two-sided"`` or ``"printed"`` (``RegretBalancing``).
    """
    known = {"horizon": horizon, "replicates": replicates, "delta": delta, "width": width, "form": form}
    check_priors(priors)
    policies = [known_prior_gp_ucb(arms, prior, noise_variance, **known) for prior in priors]
    return RegretBalancing(policies, delta=delta, noise_scale=noise_scale, xi=xi)


def known_prior_gp_ucb(
    arms: Tensor | int,
    prior: CandidatePrior,
    noise_variance: Number,
    *,
    horizon: int,
    replicates: int = 1,
    delta: float = 0.1,
    width: Any = None,
    form: str = "auto",
) -> IndexPolicy:
    """The oracle among policies with an unknown prior: GP-UCB told the true one, with PE-GP-UCB's width.

    ``prior`` is the true one. Width: Ziomek et al. 2024, Theorem 4.1 A.
    """
    model = arm_gp_of_prior(arms, prior, noise_variance, replicates=replicates, form=form)
    return IndexPolicy(model, UpperConfidenceBound, width=_width(width, model, horizon, delta))


def _width(width: Any, model: ArmGP, horizon: int, delta: float) -> Width:
    return as_width(width) or PriorEliminationFiniteWidth(model.num_arms, horizon, delta)
