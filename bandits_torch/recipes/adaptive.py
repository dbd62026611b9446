"""Recipes for unknown changes: MASTER, weighted GP-UCB. See ``recipes`` for common arguments.

Both have the units of rewards from kernel and noise variance.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.master import Master, MasterThresholds, simulated_rate
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.parts import as_width, one_noise
from bandits_torch.recipes.registration import OWN_WIDTH_AND_CONSTANT, RUN, recipe
from bandits_torch.recipes.setup import Number, Setup
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.information_gain import MaximumGain, RealisedGain
from bandits_torch.theory.optimal_design import features_of_covariance
from bandits_torch.theory.parameters import checked
from bandits_torch.theory.widths import IGPWidth, Width

Arms = Tensor | int
_TAKES = (*RUN, "prior_mean")
_SIMULATED = 16  # runs that MASTER's calibrated rho rests on


@recipe(takes=_TAKES, seeded=True, quick={"rkhs_bound": 4.0}, race=OWN_WIDTH_AND_CONSTANT)
def master_gp_ucb(
    setup: Setup,
    *,
    horizon: int,
    thresholds: str | MasterThresholds = "calibrated",
    rkhs_bound: Number = 1.0,
    noise_scale: float | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """MASTER over GP-UCB (Wei & Luo 2021; Hong et al. 2023, appendix E).

    ``thresholds="theory"``: rho(t) = width_t sqrt(gamma_{t-1} ln(T/delta) / t), as in Lemma E.3, with the tests of Wei
    & Luo. ``"calibrated"`` or your own thresholds: rho(t) from GP-UCB runs of the whole horizon on 16 draws of the
    prior (``simulated_rate``), which takes some seconds in advance at T = 10 000. All replicates share one rho, for
    their largest B and mean noise, so a replicate gives the same run alone only if all have the same B and noise.

    Raises ValueError for other ``thresholds``.
    """
    validation.instance(
        "thresholds", thresholds, (str, MasterThresholds), "'theory', 'calibrated' or MasterThresholds"
    )
    if isinstance(thresholds, str):
        named = ("theory", "calibrated")
        validation.require(
            thresholds in named, "thresholds", thresholds, "'theory', 'calibrated' or MasterThresholds"
        )
    validation.positive_integer("horizon", horizon)
    lam = one_noise(setup)
    bound = torch.as_tensor(checked(validation.non_negative, "rkhs_bound", rkhs_bound))
    # Copies of the base are made later, when the caller may have changed the kernel.
    setup = replace(setup, kernel=copy.deepcopy(setup.kernel))

    def gp_ucb(B: float, copies: int = 1) -> IndexPolicy:
        used = as_width(width) or IGPWidth(B, noise_scale, delta, RealisedGain())
        model = _gp(setup, lam, copies)
        return IndexPolicy(model, UpperConfidenceBound, width=used)

    def base(replicate: int) -> Policy:
        return gp_ucb(float(bound if bound.dim() == 0 else bound[replicate - setup.first_replicate]))

    prior, largest = _gp(setup, lam), float(bound.max())
    if thresholds == "theory":
        limits = MasterThresholds.theory(horizon, delta)
        rho = _lemma_e3(prior, as_width(width), largest, noise_scale, delta, horizon)
    else:
        limits = thresholds if isinstance(thresholds, MasterThresholds) else MasterThresholds.calibrated()
        phi = features_of_covariance(prior.prior.matrix().squeeze(0))
        streams = ReplicateStreams(
            setup.seed, _SIMULATED, purpose="policy", dtype=phi.dtype, device=phi.device
        )
        functions = streams.normal(phi.shape[1]) @ phi.mT + prior.marginals()[0]
        noise = math.sqrt(lam) * torch.stack([streams.normal() for _ in range(horizon)])
        rate = simulated_rate(gp_ucb(largest, _SIMULATED), functions, noise).tolist()
        rho = lambda t: rate[min(t, horizon) - 1]  # noqa: E731
    return Master(
        base,
        rho,
        limits,
        prior.num_arms,
        replicates=setup.replicates,
        seed=setup.seed,
        first_replicate=setup.first_replicate,
        device=prior.arms.device,
    )


def _lemma_e3(
    prior: ArmGP, width: Width | None, rkhs_bound: float, scale: float | None, delta: float, horizon: int
) -> Callable[[int], float]:
    """rho(t) = width_t sqrt(gamma_{t-1} ln(T/delta) / t), with gamma at least 1; constant beyond T.

    The lemma is about rewards of which k(x, x) <= 1; rho is in the units of those whose kernel this is.
    """
    unit = math.sqrt(float(prior.prior.diagonal().max()))
    gain = MaximumGain(prior.prior.matrix().squeeze(0), prior.noise_variance, horizon, upper_bound=False)
    planned = width or IGPWidth(rkhs_bound, scale, delta, gain)

    @cache
    def rho(t: int) -> float:
        t = min(t, horizon)
        gamma = max(1.0, float(gain(t - 1, prior)))
        return unit * float(planned(t, prior)) * math.sqrt(gamma * math.log(horizon / delta) / t)

    return rho


@recipe(takes=_TAKES, race=OWN_WIDTH_AND_CONSTANT)
def w_gp_ucb(
    setup: Setup,
    *,
    discount: float = 0.9995,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """WGP-UCB: GP-UCB on observations weighted by discount^age, with both weight matrices (Deng et al. 2022).

    Raises ValueError for a ``discount`` outside (0, 1] and ``replicates`` below 1.
    """
    model = WeightedGP(
        cast(Arms, setup.choices),
        cast(Kernel, setup.kernel),
        cast(Number, setup.noise_variance),
        prior_mean=setup.prior_mean,
        discount=discount,
        batch_shape=(setup.replicates,),
    )
    own = IGPWidth(rkhs_bound, noise_scale, delta, RealisedGain())
    return IndexPolicy(model, UpperConfidenceBound, width=as_width(width) or own)


def _gp(setup: Setup, noise_variance: float, copies: int | None = None) -> ArmGP:
    """A GP over the arms, of ``copies`` replicates."""
    arms, kernel = cast(Arms, setup.choices), cast(Kernel, setup.kernel)
    batch_shape = () if copies is None else (copies,)
    return ArmGP(arms, kernel, noise_variance, prior_mean=setup.prior_mean, batch_shape=batch_shape)
