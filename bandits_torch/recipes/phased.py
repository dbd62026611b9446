"""Phased elimination for functions that drift."""

from __future__ import annotations

import math
from typing import Any, cast

import torch

from bandits_torch import validation
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.policies.phased_elimination import PhasedElimination, batch_sizes
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.parts import as_width, largest_gain, model_over, one_budget
from bandits_torch.recipes.registration import OWN_WIDTH_AND_CONSTANT, RUN, recipe
from bandits_torch.recipes.setup import Number, Setup
from bandits_torch.theory.forgetting_widths import PermutationWidth
from bandits_torch.theory.parameters import checked


@recipe(takes=(*RUN, "prior_mean", "form"), seeded=True, quick={"interval": 9}, race=OWN_WIDTH_AND_CONSTANT)
def r_perp(
    setup: Setup,
    *,
    horizon: int,
    interval: int | None = None,
    variation_budget: Number | None = None,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Policy:
    """R-PERP: phased elimination in random order, restarted every ``interval`` steps (Iwazaki & Takeno 2024).

    ``interval`` None: gamma_T^{1/3} (T / P_T)^{2/3}, which balances drift within an interval, P_T H / T a step, and
    sqrt(gamma / H). ``variation_budget``: P_T, the sum of the largest changes of an arm; None: unknown, taken as 1
    there. The width's V is P_T, or 2 B sqrt(max k(x, x)) where that is less.

    Raises ValueError unless ``horizon`` and ``interval`` are integers >= 1.
    """
    validation.positive_integer("horizon", horizon)
    checked(validation.non_negative, "rkhs_bound", rkhs_bound)
    model = cast(ArmGP, model_over(setup))
    if interval is None:
        budget = 1.0
        if variation_budget is not None:
            budget = one_budget("variation_budget", variation_budget, model.noise_variance)
        gamma = largest_gain(model, horizon)
        steps = math.ceil(gamma ** (1 / 3) * (horizon / budget) ** (2 / 3)) if budget else horizon
        interval = min(horizon, max(1, steps))
    noise = model.noise_variance
    drift = 2 * torch.as_tensor(rkhs_bound, dtype=noise.dtype) * model.prior.diagonal().max().sqrt()
    if variation_budget is not None:
        drift = torch.minimum(drift, torch.as_tensor(variation_budget, dtype=noise.dtype))
    batches = len(batch_sizes(interval)) * math.ceil(horizon / interval)
    own = PermutationWidth(model.num_arms, batches, rkhs_bound, noise_scale, delta, drift)
    return PhasedElimination(
        model, as_width(width) or own, interval, seed=setup.seed, first_replicate=setup.first_replicate
    )
