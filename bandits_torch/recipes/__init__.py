"""The literature, by name: each algorithm is a sentence over models, widths, acquisitions and forgetting rules.

A recipe is a function of a ``Setup`` and of arguments of its own: ``sw_gp_ucb(setup, window=100)``. By hand it is
called as ``recipe(arms, kernel, noise_variance, ...)``, with what else the setup holds among its keywords:

* ``arms``: ``(N, d)`` features, or N; for index policies also a ``Domain``, whose points they then play;
  ``kernel``: prior covariance over arms or points, static (recipes that drift add the time kernel); neither it nor the
  noise is needed where a recipe ignores it;
  ``noise_variance``: lambda, a number or one for each replicate, (S,);
* ``replicates``: S runs advanced together;  ``prior_mean``: number or (N,);  ``form``: of ``ArmGP``;
* ``seed``, ``first_replicate``: of the policy's own random numbers, and the number of its first replicate;
* ``learn_hyperparameters``: True (or the arguments of ``LearnedHyperparameters``) to refit kernel, noise and mean;
  among them ``anisotropy`` of ``learnable``, to be raised where some inputs matter far more than others;
* ``search``: a ``PointSearch`` (or its arguments), how points of a ``Domain`` are searched for.

An argument that a recipe does not take, or lacks, is an error that names it and what was perhaps meant: a ValueError,
as for every bad argument here, that is a TypeError too, as Python has it. What recipes share of their own:

* ``delta``: failure probability;  ``rkhs_bound``: B;  ``noise_scale``: R, by default sqrt(lambda);
* ``width``: a number or a ``Width`` in place of the algorithm's own, whose theorem then no longer applies;
  ``width_form``: ``"theory"`` or ``"printed"``, the form of the algorithm's own (``IGPWidth``);
* ``window`` (of ``sw_gp_ucb``): observations held; or ``"likelihood"``, to choose it by predictive likelihood;
* ``horizon``: T, the steps the run is planned for;  ``variation_budget``: P_T, how much the rewards change in all
  (``Knowledge``), None for unknown;  ``forgetting_rate``: epsilon per unit of time;
* ``time_kernel`` (of ``tv_gp_ucb``): how rewards correlate over time, in place of exponential forgetting.

Recipes for an unknown prior take a sequence of ``CandidatePrior`` in place of the kernel (``unknown_prior``). A
recipe of one's own is registered by the decorator ``recipe``, which says what command line, tests and leaderboard must
know.
"""

from bandits_torch.recipes.adaptive import (
    ada_opkb,
    ada_opkb_calibrated,
    ada_opnn,
    master_gp_ucb,
    opkb,
    opnn,
    w_gp_ucb,
)
from bandits_torch.recipes.classical import (
    discounted_ts,
    discounted_ucb,
    epsilon_greedy,
    exp3_s,
    glr_kl_ucb,
    sliding_window_ucb,
    ucb1,
)
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
from bandits_torch.recipes.parts import memory_length
from bandits_torch.recipes.registration import Recipe, recipe
from bandits_torch.recipes.registry import RECIPES, build, options_of, registered
from bandits_torch.recipes.setup import Setup
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
    "ada_opkb",
    "ada_opkb_calibrated",
    "ada_opnn",
    "bayes_gp_ucb",
    "bbkb",
    "bkb",
    "build",
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
    "master_gp_ucb",
    "memory_length",
    "mle_gp_ucb",
    "opkb",
    "opnn",
    "options_of",
    "pe_gp_ucb",
    "r_gp_ucb",
    "random",
    "recipe",
    "registered",
    "regret_balancing",
    "sliding_window_ucb",
    "sw_gp_ucb",
    "tv_gp_ucb",
    "ucb1",
    "ui_gp_ucb",
    "w_gp_ucb",
]
