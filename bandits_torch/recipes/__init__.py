"""The algorithms of the literature by name, composed of models, widths, acquisition functions and forgetting rules.

A recipe is a function that builds a policy. It is called with a ``Setup``, as in ``sw_gp_ucb(setup, horizon=1000)``,
or as ``recipe(arms, kernel, noise_variance, ...)`` with other fields of the ``Setup`` as keywords: ``prior_mean``,
``replicates``, ``seed``, ``first_replicate``, ``form``, ``search``, ``learn_hyperparameters``. ``arms`` are its
``choices``; recipes that do not use kernel and noise do not require them. Recipes for an unknown prior take a sequence
of ``CandidatePrior``, ``priors``, instead of the kernel, the oracle the true ``prior``. Keywords of several recipes:

    symbol   keyword                meaning
    delta    delta                  failure probability
    B        rkhs_bound             bound on the RKHS norm of the rewards minus their prior mean
    R        noise_scale            sub-Gaussian scale of the noise; None: sqrt(lambda)
    T        horizon                planned number of steps
    P_T      rkhs_variation_budget  bound on the total change of the rewards in the RKHS norm; None if unknown
    H        interval               number of steps between restarts; None: from T and P_T
    w        window                 observations held; None: from T and P_T; "likelihood": chosen during the run
    epsilon  forgetting_rate        rate of exponential forgetting per unit of time
    -        time_kernel            kernel over time, instead of exponential forgetting
    -        width                  a number or a Width instead of the theorem's, which then does not apply
    -        width_form             form of the theorem's width, "theory" or "printed" (IGPWidth)
    c        context_dim            number of columns of a step's context
    h        context_kernel         kernel over contexts

The decorator ``recipe`` registers a recipe for command line, tests and leaderboard. An unknown or missing argument
raises an error that names it, both a ValueError and a TypeError.
"""

from bandits_torch.recipes.adaptive import (
    ada_opkb,
    ada_opkb_calibrated,
    ada_opnn,
    dal,
    master_gp_ucb,
    opkb,
    opnn,
    r_perp,
    w_gp_ucb,
)
from bandits_torch.recipes.averaging import auto
from bandits_torch.recipes.classical import (
    discounted_ts,
    discounted_ucb,
    epsilon_greedy,
    exp3_s,
    glr_kl_ucb,
    log_odds_ucb,
    sliding_window_ucb,
    ucb1,
)
from bandits_torch.recipes.index_policies import (
    band_gp_ucb,
    bbkb,
    bkb,
    cgp_ucb,
    et_gp_ucb,
    gp_ei,
    gp_pi,
    gp_ts,
    gp_ucb,
    igp_ucb,
    predictive_sampling,
    r_gp_ucb,
    random,
    safe_gp_ucb,
    safe_opt,
    sw_gp_ucb,
    tv_cgp_ucb,
    tv_gp_ucb,
    ui_gp_ucb,
)
from bandits_torch.recipes.parts import memory_length
from bandits_torch.recipes.registration import RECIPES, Recipe, Setup, build, options_of, recipe, registered
from bandits_torch.recipes.unknown_prior import (
    a_gp_ucb,
    bayes_gp_ucb,
    hp_gp_ts,
    known_prior_gp_ucb,
    lb_gp_ucb,
    mle_gp_ucb,
    pe_gp_ts,
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
    "dal",
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
    "hp_gp_ts",
    "igp_ucb",
    "known_prior_gp_ucb",
    "lb_gp_ucb",
    "log_odds_ucb",
    "master_gp_ucb",
    "memory_length",
    "mle_gp_ucb",
    "opkb",
    "opnn",
    "options_of",
    "pe_gp_ts",
    "pe_gp_ucb",
    "predictive_sampling",
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

# The package's recipes are listed in this order of their modules. Recipes registered later follow.
_MODULES = ["averaging", "index_policies", "unknown_prior", "adaptive", "classical"]
for _name in sorted(RECIPES, key=lambda name: _MODULES.index(RECIPES[name].__module__.rpartition(".")[2])):
    RECIPES[_name] = RECIPES.pop(_name)
