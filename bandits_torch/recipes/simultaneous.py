"""GP-UCB whose band holds at all arms of a step at once."""

from __future__ import annotations

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import SimultaneousBand
from bandits_torch.kernels import ExponentialForgettingKernel
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.index_policies import drifting, in_float64
from bandits_torch.recipes.parts import model_over, policy_over
from bandits_torch.recipes.registration import RUN, recipe
from bandits_torch.recipes.setup import Setup


@recipe(takes=(*RUN, "prior_mean", "form"), seeded=True, quick={"forgetting_rate": 0.1, "draws": 39})
def band_gp_ucb(
    setup: Setup, *, forgetting_rate: float = 0.03, delta: float = 0.1, draws: int = 199
) -> Policy:
    """TV-GP-UCB with the width that just holds all arms of a step at once, from draws of the joint posterior.

    The band of GP-UCB's proof (Srinivas et al. 2010, Lemma 5.1) with the quantile itself in place of two union bounds:
    it makes use of the arms' correlation, and holds at each step with probability 1 - delta, not at all steps at once
    (``SimultaneousBand``). About half as wide. What regret follows: ``mean_excess``. Bayesian: f is drawn from the
    prior.

    ``forgetting_rate``: epsilon of the kernel k (1 - eps)^{|t - t'|/2}, 0 for a function known not to change;
    ``draws``: M of the posterior per step.

    Raises ValueError for fewer than 1/delta - 1 ``draws``.
    """
    validation.below_one("forgetting_rate", forgetting_rate)
    band = SimultaneousBand(delta, draws)
    if forgetting_rate:
        setup = drifting(setup, ExponentialForgettingKernel(in_float64("forgetting_rate", forgetting_rate)))
    return policy_over(setup, model_over(setup), band)
