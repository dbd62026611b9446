"""Algorithms for a kernel whose length-scale is unknown, with regret bounds: it is told too long, and found."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms import settings
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.candidate_priors import arm_gp_over_priors
from bandits_torch.models.arms.inputs import features_of
from bandits_torch.models.candidate_prior import CandidatePrior
from bandits_torch.policies.length_scales import LengthScaleBalancing, ShrinkingLengthScale
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.parts import as_width
from bandits_torch.recipes.registration import RUN, recipe
from bandits_torch.recipes.setup import Number, Setup
from bandits_torch.theory.information_gain import RealisedGain
from bandits_torch.theory.parameters import checked
from bandits_torch.theory.widths import IGPWidth

_TAKES = (*RUN, "prior_mean", "form")


@recipe(takes=_TAKES, race={})
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

    The kernel's length-scale theta_0 is an upper bound of the true one, B = ``rkhs_bound`` the norm under theta_0's
    kernel. At step t it is theta_0 / g, g = t^``shrink``. Under that the norm is at most g^{d/2} B (Bull 2011, Lemma 4;
    tested), which is the width's; the paper's g^d B is larger. Squared exponential and Matern kernels over features.

    Raises ValueError for another kernel, and arms without features.
    """
    model, factors, _ = _candidates(setup, horizon, shrink)
    dim = cast(Tensor, setup.choices).shape[-1]
    checked(validation.non_negative, "rkhs_bound", rkhs_bound)
    growth = model.noise_variance.new_tensor([g ** (dim / 2) for g in factors])
    bound = torch.as_tensor(rkhs_bound, dtype=growth.dtype).reshape(-1, 1) * growth  # (S or 1, P)
    own = IGPWidth(bound, _per_member(noise_scale), delta, RealisedGain())
    return ShrinkingLengthScale(model, as_width(width) or own, factors, shrink)


@recipe(takes=_TAKES, race={})
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
    """LB-GP-UCB: regret balancing between length-scales, shorter ones come in later (Ziomek et al. 2024, 2410.10384).

    The kernel's length-scale theta_0 is an upper bound of the true one, B = ``rkhs_bound`` the norm under the true
    one's kernel. Candidates are theta_0 e^{-p/d}, p = 0, 1, ..., each once t^``shrink`` >= e^{p/d}. For functions that
    do not change. Squared exponential and Matern kernels over features.

    Raises ValueError for another kernel, and arms without features.
    """
    model, factors, lengthscale = _candidates(setup, horizon, shrink)
    bound = _per_member(rkhs_bound)
    own = IGPWidth(cast(Number, bound), _per_member(noise_scale), delta, RealisedGain())
    return LengthScaleBalancing(
        model,
        as_width(width) or own,
        factors,
        shrink,
        lengthscale=lengthscale,
        dim=cast(Tensor, setup.choices).shape[-1],
        rkhs_bound=cast(Number, bound),
        delta=delta,
        noise_scale=_per_member(noise_scale),
    )


def _candidates(setup: Setup, horizon: int, shrink: float) -> tuple[ArmGP, list[float], float]:
    """A model of batch shape (S, P), the factors e^{p/d} up to g(T), and the geometric mean of theta_0."""
    arms, kernel = setup.choices, setup.kernel
    featured = isinstance(arms, Tensor)
    validation.require(featured, "arms", arms, "features (N, d): a length-scale is of features")
    assert isinstance(arms, Tensor)
    arms = features_of(arms, None, None)
    mean = settings.prior_mean_over(arms, setup.prior_mean)
    scale = math.log(validation.positive_integer("horizon", horizon)) * validation.probability(
        "shrink", shrink
    )
    dim = arms.shape[-1]
    factors = [math.exp(p / dim) for p in range(1 + math.ceil(dim * scale - 1e-9))]
    longest = _stationary(kernel).lengthscale
    kernels = [copy.deepcopy(cast(Kernel, kernel)).double() for _ in factors]
    for factor, shorter in zip(factors, kernels, strict=True):
        _stationary(shorter).lengthscale = longest.detach().double() / factor
    priors = [CandidatePrior(one, mean) for one in kernels]
    model = arm_gp_over_priors(
        arms, priors, cast(Number, setup.noise_variance), replicates=setup.replicates, form=setup.form
    )
    return model, factors, float(longest.detach().double().log().mean().exp())


def _stationary(kernel: Any) -> RBFKernel | MaternKernel:
    """The part of a kernel that has the length-scale."""
    base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    expected = "a squared exponential or Matern kernel over features, maybe scaled"
    validation.require(isinstance(base, RBFKernel | MaternKernel), "kernel", kernel, expected)
    return cast(RBFKernel, base)


def _per_member(value: Number | None) -> Number | None:
    """A number, or (S,) as it broadcasts to (S, P)."""
    return value.reshape(-1, 1) if isinstance(value, Tensor) and value.dim() else value
