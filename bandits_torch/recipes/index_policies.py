"""Algorithms with one prior: a model, an acquisition, a width, and what is forgotten."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.pathwise_points import PathwisePointDraw
from bandits_torch.acquisition.thompson_sampling import ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models.arm_inputs import features_of
from bandits_torch.policies.forgetting import EventTriggeredRestart, PeriodicRestart
from bandits_torch.policies.likelihood_window import LikelihoodWindow
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.random import RandomPolicy
from bandits_torch.recipes.parts import (
    Choices,
    Number,
    as_width,
    as_window,
    bayesian_width,
    incumbent,
    memory_length,
    model_over,
    noise_scale_of,
    policy_over,
)
from bandits_torch.theory.information_gain import RealisedGain
from bandits_torch.theory.widths import GPTSWidth, IGPWidth, RestartWidth, SlidingWindowWidth


def random(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    replicates: int = 1,
    seed: int = 0,
    first_replicate: int = 0,
) -> Policy:
    """Uniformly random arms: the floor of every race."""
    choices = arms if isinstance(arms, Domain) else features_of(arms, None, None)
    device = "cpu" if isinstance(choices, Domain) else choices.device
    return RandomPolicy(choices, replicates, seed=seed, first_replicate=first_replicate, device=device)


def gp_ucb(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> Policy:
    """GP-UCB with the Bayesian width on a finite set (Srinivas et al. 2010, Theorem 1)."""
    model = model_over(arms, kernel, noise_variance, **prior)
    own = bayesian_width(arms, model, delta)
    return policy_over(arms, model, UpperConfidenceBound, width=as_width(width) or own, **prior)


def igp_ucb(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width_form: str = "theory",
    width: Any = None,
    **prior: Any,
) -> Policy:
    """IGP-UCB with the realised information gain (Chowdhury & Gopalan 2017, Algorithm 1)."""
    model = model_over(arms, kernel, noise_variance, **prior)
    own = IGPWidth(rkhs_bound, noise_scale_of(noise_scale, model), delta, RealisedGain(), form=width_form)
    return policy_over(arms, model, UpperConfidenceBound, width=as_width(width) or own, **prior)


def gp_ts(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width_form: str = "theory",
    width: Any = None,
    seed: int = 0,
    first_replicate: int = 0,
    **prior: Any,
) -> Policy:
    """GP-TS: play the best arm of a joint draw from GP(mu, v_t^2 k) (Chowdhury & Gopalan 2017, Algorithm 2)."""
    model = model_over(arms, kernel, noise_variance, **prior)
    own = GPTSWidth(rkhs_bound, noise_scale_of(noise_scale, model), delta, RealisedGain(), form=width_form)
    return policy_over(
        arms,
        model,
        PathwisePointDraw if isinstance(arms, Domain) else ThompsonSampling,
        width=as_width(width) or own,
        seed=seed,
        first_replicate=first_replicate,
        **prior,
    )


def gp_ei(arms: Choices, kernel: Kernel, noise_variance: Number, **prior: Any) -> Policy:
    """GP-EI: BoTorch's expected improvement over the largest posterior mean."""
    return policy_over(
        arms,
        model_over(arms, kernel, noise_variance, **prior),
        lambda model: LogExpectedImprovement(model, best_f=incumbent(model)),
        **prior,
    )


def gp_pi(
    arms: Choices, kernel: Kernel, noise_variance: Number, *, margin: float = 0.01, **prior: Any
) -> Policy:
    """GP-PI: BoTorch's probability of improving the largest posterior mean by ``margin`` (in units of reward).

    Raises ValueError for a ``margin`` that is no finite number.
    """
    validation.finite_number("margin", margin)
    return policy_over(
        arms,
        model_over(arms, kernel, noise_variance, **prior),
        lambda model: LogProbabilityOfImprovement(model, best_f=incumbent(model) + margin),
        **prior,
    )


def r_gp_ucb(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    horizon: int,
    interval: int | None = None,
    variation_budget: Number | None = None,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> Policy:
    """R-GP-UCB: IGP-UCB restarted every ``interval`` steps (Zhou & Shroff 2021, Algorithm 1).

    Raises ValueError unless ``interval`` is an integer >= 1.
    """
    validation.positive_integer("horizon", horizon)
    model = model_over(arms, kernel, noise_variance, **prior)
    if interval is None:
        interval = memory_length(model, horizon, variation_budget, _domain(arms))
    validation.positive_integer("interval", interval)
    own = RestartWidth(
        math.ceil(horizon / interval), rkhs_bound, noise_scale_of(noise_scale, model), delta, RealisedGain()
    )
    rule = PeriodicRestart(interval)
    return policy_over(
        arms, model, UpperConfidenceBound, width=as_width(width) or own, forgetting=rule, **prior
    )


def sw_gp_ucb(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    horizon: int,
    window: int | str | Mapping[str, Any] | None = None,
    variation_budget: Number | None = None,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> Policy:
    """SW-GP-UCB: IGP-UCB on the last ``window`` observations (Zhou & Shroff 2021, Algorithm 2).

    ``window``: a number; None for Zhou & Shroff's formula (``memory_length``); or ``"likelihood"``, or the arguments of
    ``LikelihoodWindow``, for one that is chosen as the run goes by how well it would have predicted the latest rewards.
    By default among 8, 16, ..., 256, up to ``horizon``; the width holds for all W candidates at once: ln(W T/delta).

    Raises ValueError for a ``window`` of another kind.
    """
    validation.positive_integer("horizon", horizon)
    model = model_over(arms, kernel, noise_variance, **prior)
    if window is None:
        window = memory_length(model, horizon, variation_budget, _domain(arms))
    rule = as_window(window, horizon)
    choices = len(rule.candidates) if isinstance(rule, LikelihoodWindow) else 1
    own = SlidingWindowWidth(
        rule.window, choices * horizon, rkhs_bound, noise_scale_of(noise_scale, model), delta, RealisedGain()
    )
    return policy_over(
        arms, model, UpperConfidenceBound, width=as_width(width) or own, forgetting=rule, **prior
    )


def tv_gp_ucb(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    forgetting_rate: float = 0.03,
    time_kernel: Kernel | None = None,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> Policy:
    """TV-GP-UCB: GP-UCB with the kernel k (1 - eps)^{|t - t'|/2}, eps the forgetting rate (Bogunovic et al. 2016).

    ``time_kernel``: any other kernel over time in that factor's place. Over a domain a Matern kernel, for a function
    that changes smoothly: what it is about to do can then be foreseen, while under exponential forgetting it always
    returns to the mean. Over arms a ``MarkovTimeKernel``.

    Raises ValueError for a ``time_kernel`` that is no kernel, or not Markov over arms.
    """
    if time_kernel is None:
        if forgetting_rate == 0:  # a function known not to change
            return gp_ucb(arms, kernel, noise_variance, delta=delta, width=width, **prior)
        time_kernel = ExponentialForgettingKernel(_float64("forgetting_rate", forgetting_rate))
    drifting = SpatioTemporalKernel(_kernel(kernel), time_kernel)
    return gp_ucb(arms, drifting, noise_variance, delta=delta, width=width, **prior)


def ui_gp_ucb(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    drift_variance: float = 0.01,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> Policy:
    """Uncertainty injection: GP-UCB that adds ``drift_variance`` * k to its covariance per unit of time.

    A random walk in place of the stationary drift of Bogunovic et al. 2016; ``WienerKernel`` has the equation.
    """
    drifting = SpatioTemporalKernel(_kernel(kernel), WienerKernel(_float64("drift_variance", drift_variance)))
    return gp_ucb(arms, drifting, noise_variance, delta=delta, width=width, **prior)


def et_gp_ucb(
    arms: Choices,
    kernel: Kernel,
    noise_variance: Number,
    *,
    delta: float = 0.1,
    noise_scale: float | None = None,
    width: Any = None,
    **prior: Any,
) -> Policy:
    """ET-GP-UCB: GP-UCB restarted when an observation refutes its prediction (Brunzema et al. 2022)."""
    model = model_over(arms, kernel, noise_variance, **prior)
    own = bayesian_width(arms, model, delta)
    rule = EventTriggeredRestart(delta, noise_scale)
    return policy_over(
        arms, model, UpperConfidenceBound, width=as_width(width) or own, forgetting=rule, **prior
    )


def _domain(arms: Choices) -> Domain | None:
    return arms if isinstance(arms, Domain) else None


def _kernel(kernel: Kernel | Tensor) -> Kernel:
    return ArmCovarianceKernel(kernel) if isinstance(kernel, Tensor) else kernel


def _float64(name: str, value: float) -> Tensor:
    """A hyperparameter as it was written: GPyTorch would round a Python number to its default dtype."""
    return validation.numbers(name, value, torch.zeros((), dtype=torch.float64))
