"""The algorithms of the literature by name, composed of models, widths, acquisition functions and forgetting rules.

A recipe is a function of a ``Setup`` and of its own arguments: ``sw_gp_ucb(setup, window=100)``. It can also be called
as ``recipe(arms, kernel, noise_variance, ...)``, with the other fields of the setup as keywords:

* ``arms``: ``(N, d)`` features, or N; for index policies also a ``Domain`` of points; ``kernel``: prior covariance over
  arms or points, static (recipes with drift add the time kernel); a recipe that ignores kernel or noise does not
  require it; ``noise_variance``: lambda, a number or (S,);
* ``replicates``: S runs advanced together;  ``prior_mean``: number or (N,);  ``form``: of ``ArmGP``;
* ``seed``, ``first_replicate``: of the policy's random numbers, and the number of its first replicate;
* ``learn_hyperparameters``: True (or the arguments of ``LearnedHyperparameters``) to refit kernel, noise and mean;
  raise its ``anisotropy`` (of ``learnable``) if some inputs matter far more than others;
* ``search``: a ``PointSearch`` (or its arguments), the optimiser over a ``Domain``.

An unknown or missing argument raises an error that names it and suggests the closest name. The error is both a
ValueError, as for every bad argument of this package, and a TypeError, as in Python. Arguments that several recipes
share:

* ``delta``: failure probability;  ``rkhs_bound``: B;  ``noise_scale``: R, by default sqrt(lambda);
* ``width``: a number or a ``Width`` instead of the algorithm's own, whose theorem then does not apply;
  ``width_form``: ``"theory"`` or ``"printed"``, the form of the algorithm's own (``IGPWidth``);
* ``window`` (of ``sw_gp_ucb``): observations held; or ``"likelihood"``, chosen by predictive likelihood;
* ``horizon``: T, the planned number of steps;  ``rkhs_variation_budget``: P_T, a bound on the total change of the
  rewards in the RKHS norm (``Knowledge``), None if unknown;  ``forgetting_rate``: epsilon per unit of time;
* ``time_kernel`` (of ``tv_gp_ucb``): the kernel over time, instead of exponential forgetting;
* ``context_dim``, ``context_kernel`` (of ``cgp_ucb``): numbers of a step's context, and the kernel over them.

Recipes for an unknown prior take a sequence of ``CandidatePrior`` instead of the kernel (``unknown_prior``). The
decorator ``recipe`` registers your own recipe, with what command line, tests and leaderboard need.
"""

from bandits_torch.recipes.adaptive import master_gp_ucb, w_gp_ucb
from bandits_torch.recipes.averaging import auto
from bandits_torch.recipes.classical import (
    discounted_ts,
    discounted_ucb,
    epsilon_greedy,
    exp3_s,
    glr_kl_ucb,
    sliding_window_ucb,
    ucb1,
)
from bandits_torch.recipes.contextual import cgp_ucb, tv_cgp_ucb
from bandits_torch.recipes.in_blocks import ada_opkb, ada_opkb_calibrated, ada_opnn, opkb, opnn
from bandits_torch.recipes.index_policies import (
    et_gp_ucb,
    gp_ei,
    gp_pi,
    gp_ts,
    gp_ucb,
    igp_ucb,
    r_gp_ucb,
    random,
    sw_gp_ucb,
    tv_gp_ucb,
    ui_gp_ucb,
)
from bandits_torch.recipes.length_scales import a_gp_ucb, lb_gp_ucb
from bandits_torch.recipes.parts import memory_length
from bandits_torch.recipes.phased import r_perp
from bandits_torch.recipes.registration import Recipe, recipe
from bandits_torch.recipes.registry import RECIPES, build, options_of, registered
from bandits_torch.recipes.safe import safe_gp_ucb, safe_opt
from bandits_torch.recipes.setup import Setup
from bandits_torch.recipes.simultaneous import band_gp_ucb
from bandits_torch.recipes.sketched import bbkb, bkb
from bandits_torch.recipes.unknown_prior import (
    bayes_gp_ucb,
    known_prior_gp_ucb,
    mle_gp_ucb,
    pe_gp_ucb,
    regret_balancing,
)

__all__ = [
    "RECIPES",
    "Recipe",
    "Setup",
    "a_gp_ucb",
    "ada_opkb",
    "ada_opkb_calibrated",
    "ada_opnn",
    "auto",
    "band_gp_ucb",
    "bayes_gp_ucb",
    "bbkb",
    "bkb",
    "build",
    "cgp_ucb",
    "discounted_ts",
    "discounted_ucb",
    "epsilon_greedy",
    "et_gp_ucb",
    "exp3_s",
    "glr_kl_ucb",
    "gp_ei",
    "gp_pi",
    "gp_ts",
    "gp_ucb",
    "igp_ucb",
    "known_prior_gp_ucb",
    "lb_gp_ucb",
    "master_gp_ucb",
    "memory_length",
    "mle_gp_ucb",
    "opkb",
    "opnn",
    "options_of",
    "pe_gp_ucb",
    "r_gp_ucb",
    "r_perp",
    "random",
    "recipe",
    "registered",
    "regret_balancing",
    "safe_gp_ucb",
    "safe_opt",
    "sliding_window_ucb",
    "sw_gp_ucb",
    "tv_cgp_ucb",
    "tv_gp_ucb",
    "ucb1",
    "ui_gp_ucb",
    "w_gp_ucb",
]
