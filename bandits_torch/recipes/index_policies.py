"""Algorithms with one prior: a model, an acquisition, a width, and what is forgotten."""

from __future__ import annotations

import math
from typing import Any

import torch
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.thompson_sampling import ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models.arm_gp import ArmGP
from bandits_torch.models.arm_inputs import features_of
from bandits_torch.policies.forgetting import EventTriggeredRestart, PeriodicRestart, SlidingWindow
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.random import RandomPolicy
from bandits_torch.theory.information_gain import MaximumGain, RealisedGain
from bandits_torch.theory.prior_widths import SrinivasBayesianWidth
from bandits_torch.theory.widths import (
    ConstantWidth,
    GPTSWidth,
    IGPWidth,
    RestartWidth,
    SlidingWindowWidth,
    Width,
)

Number = float | Tensor


def random(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    replicates: int = 1,
    seed: int = 0,
    first_replicate: int = 0,
) -> Policy:
    """Uniformly random arms: the floor of every race."""
    features = features_of(arms, None, None)
    device = features.device
    return RandomPolicy(
        features.shape[-2], replicates, seed=seed, first_replicate=first_replicate, device=device
    )


def gp_ucb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> IndexPolicy:
    """GP-UCB with the Bayesian width on a finite set (Srinivas et al. 2010, Theorem 1)."""
    model = _model(arms, kernel, noise_variance, **prior)
    return IndexPolicy(
        model, UpperConfidenceBound, width=as_width(width) or SrinivasBayesianWidth(model.num_arms, delta)
    )


def igp_ucb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width_form: str = "theory",
    width: Any = None,
    **prior: Any,
) -> IndexPolicy:
    """IGP-UCB with the realised information gain (Chowdhury & Gopalan 2017, Algorithm 1)."""
    model = _model(arms, kernel, noise_variance, **prior)
    own = IGPWidth(rkhs_bound, _scale(noise_scale, model), delta, RealisedGain(), form=width_form)
    return IndexPolicy(model, UpperConfidenceBound, width=as_width(width) or own)


def gp_ts(
    arms: Tensor | int,
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
) -> IndexPolicy:
    """GP-TS: play the best arm of a joint draw from GP(mu, v_t^2 k) (Chowdhury & Gopalan 2017, Algorithm 2)."""
    model = _model(arms, kernel, noise_variance, **prior)
    own = GPTSWidth(rkhs_bound, _scale(noise_scale, model), delta, RealisedGain(), form=width_form)
    return IndexPolicy(
        model, ThompsonSampling, width=as_width(width) or own, seed=seed, first_replicate=first_replicate
    )


def gp_ei(arms: Tensor | int, kernel: Kernel, noise_variance: Number, **prior: Any) -> IndexPolicy:
    """GP-EI: BoTorch's expected improvement over the largest posterior mean."""
    return IndexPolicy(
        _model(arms, kernel, noise_variance, **prior),
        lambda model: LogExpectedImprovement(model, best_f=_incumbent(model)),
    )


def gp_pi(
    arms: Tensor | int, kernel: Kernel, noise_variance: Number, *, margin: float = 0.01, **prior: Any
) -> IndexPolicy:
    """GP-PI: BoTorch's probability of improving the largest posterior mean by ``margin`` (in units of reward)."""
    validation.finite_number("margin", margin)
    return IndexPolicy(
        _model(arms, kernel, noise_variance, **prior),
        lambda model: LogProbabilityOfImprovement(model, best_f=_incumbent(model) + margin),
    )


def r_gp_ucb(
    arms: Tensor | int,
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
) -> IndexPolicy:
    """R-GP-UCB: IGP-UCB restarted every ``interval`` steps (Zhou & Shroff 2021, Algorithm 1)."""
    validation.positive_integer("horizon", horizon)
    model = _model(arms, kernel, noise_variance, **prior)
    if interval is None:
        interval = memory_length(model, horizon, variation_budget)
    validation.positive_integer("interval", interval)
    own = RestartWidth(
        math.ceil(horizon / interval), rkhs_bound, _scale(noise_scale, model), delta, RealisedGain()
    )
    return IndexPolicy(
        model, UpperConfidenceBound, width=as_width(width) or own, forgetting=PeriodicRestart(interval)
    )


def sw_gp_ucb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    horizon: int,
    window: int | None = None,
    variation_budget: Number | None = None,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> IndexPolicy:
    """SW-GP-UCB: IGP-UCB on the last ``window`` observations (Zhou & Shroff 2021, Algorithm 2)."""
    model = _model(arms, kernel, noise_variance, **prior)
    if window is None:
        window = memory_length(model, horizon, variation_budget)
    own = SlidingWindowWidth(window, horizon, rkhs_bound, _scale(noise_scale, model), delta, RealisedGain())
    return IndexPolicy(
        model, UpperConfidenceBound, width=as_width(width) or own, forgetting=SlidingWindow(window)
    )


def tv_gp_ucb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    forgetting_rate: float = 0.03,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> IndexPolicy:
    """TV-GP-UCB: GP-UCB with the kernel k (1 - eps)^{|t - t'|/2}, eps the forgetting rate (Bogunovic et al. 2016)."""
    if forgetting_rate == 0:  # a function known not to change
        return gp_ucb(arms, kernel, noise_variance, delta=delta, width=width, **prior)
    drifting = SpatioTemporalKernel(
        _kernel(kernel), ExponentialForgettingKernel(_float64("forgetting_rate", forgetting_rate))
    )
    return gp_ucb(arms, drifting, noise_variance, delta=delta, width=width, **prior)


def ui_gp_ucb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    drift_variance: float = 0.01,
    delta: float = 0.1,
    width: Any = None,
    **prior: Any,
) -> IndexPolicy:
    """Uncertainty injection: GP-UCB that adds ``drift_variance`` * k to its covariance per unit of time."""
    drifting = SpatioTemporalKernel(_kernel(kernel), WienerKernel(_float64("drift_variance", drift_variance)))
    return gp_ucb(arms, drifting, noise_variance, delta=delta, width=width, **prior)


def et_gp_ucb(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    delta: float = 0.1,
    noise_scale: float | None = None,
    width: Any = None,
    **prior: Any,
) -> IndexPolicy:
    """ET-GP-UCB: GP-UCB restarted when an observation refutes its prediction (Brunzema et al. 2022)."""
    model = _model(arms, kernel, noise_variance, **prior)
    own = SrinivasBayesianWidth(model.num_arms, delta)
    rule = EventTriggeredRestart(delta, noise_scale)
    return IndexPolicy(model, UpperConfidenceBound, width=as_width(width) or own, forgetting=rule)


def memory_length(model: ArmGP, horizon: int, variation_budget: Number | None = None) -> int:
    """Zhou & Shroff's H or w: gamma_T^{1/4} (T / P_T)^{1/2}, or gamma_T^{1/4} T^{1/2} for an unknown P_T.

    gamma_T is the greedy maximum over the arms, over 1 000 of them evenly spread in their order where there are
    more; an average over replicates that differ. Between 1 and T.
    """
    validation.instance("model", model, ArmGP, "an ArmGP")
    validation.positive_integer("horizon", horizon)
    noise = model.noise_variance.mean()
    some = torch.linspace(0, model.num_arms - 1, min(model.num_arms, 1000), device=model.arms.device).long()
    gain = MaximumGain(model.prior.matrix(some), noise, horizon, upper_bound=False)
    gamma = float(gain(horizon, model).mean())
    budget = 1.0
    if variation_budget is not None:
        budgets = validation.numbers("variation_budget", variation_budget, noise)
        budget = validation.non_negative("variation_budget", float(budgets.mean()))
    if budget == 0:
        return horizon
    return min(horizon, max(1, math.ceil(gamma**0.25 * math.sqrt(horizon / budget))))


def _model(
    arms: Tensor | int,
    kernel: Kernel,
    noise_variance: Number,
    *,
    replicates: int = 1,
    prior_mean: Number = 0.0,
    form: str = "auto",
) -> ArmGP:
    validation.positive_integer("replicates", replicates)
    return ArmGP(arms, kernel, noise_variance, prior_mean=prior_mean, form=form, batch_shape=(replicates,))


def _kernel(kernel: Kernel | Tensor) -> Kernel:
    return ArmCovarianceKernel(kernel) if isinstance(kernel, Tensor) else kernel


def as_width(width: float | Width | None) -> Width | None:
    """A number as the width that is always that; anything else as it is."""
    return width if width is None or isinstance(width, Width) else ConstantWidth(width)


def _float64(name: str, value: float) -> Tensor:
    """A hyperparameter as it was written: GPyTorch would round a Python number to its default dtype."""
    return validation.numbers(name, value, torch.zeros((), dtype=torch.float64))


def _scale(noise_scale: Number | None, model: ArmGP) -> Number:
    return model.noise_variance.sqrt() if noise_scale is None else noise_scale


def _incumbent(model: ArmGP) -> Tensor:
    """Largest posterior mean, ``batch_shape x 1``: the last dimension is the one output BoTorch expects."""
    return model.marginals()[0].amax(-1, keepdim=True)
