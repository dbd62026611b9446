"""The literature, by name: each algorithm is a sentence over models, widths, acquisitions and forgetting rules.

Every recipe is called as ``recipe(arms, kernel, noise_variance, ...)`` with

* ``arms``: ``(N, d)`` features, or N;  ``kernel``: prior covariance over the arms, static (recipes that
  drift add the time kernel);  ``noise_variance``: lambda, a number or one for each replicate, (S,);
* ``replicates``: S runs advanced together;  ``prior_mean``: number or (N,);  ``form``: of ``ArmGP``;
* ``delta``: failure probability;  ``rkhs_bound``: B;  ``noise_scale``: R, by default sqrt(lambda);
* ``width``: a number or a ``Width`` in place of the algorithm's own, whose theorem then no longer applies.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
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
from bandits_torch.policies.forgetting import EventTriggeredRestart, PeriodicRestart, SlidingWindow
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.random import RandomPolicy
from bandits_torch.problems.problem import Problem
from bandits_torch.recipes_adaptive import ADAPTIVE
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
    num_arms, device = (arms, "cpu") if isinstance(arms, int) else (arms.shape[-2], arms.device)
    return RandomPolicy(num_arms, replicates, seed=seed, first_replicate=first_replicate, device=device)


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
        model, UpperConfidenceBound, width=_width(width) or SrinivasBayesianWidth(model.num_arms, delta)
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
    return IndexPolicy(model, UpperConfidenceBound, width=_width(width) or own)


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
        model, ThompsonSampling, width=_width(width) or own, seed=seed, first_replicate=first_replicate
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
    model = _model(arms, kernel, noise_variance, **prior)
    if interval is None:
        interval = memory_length(model, horizon, variation_budget)
    validation.positive_integer("interval", interval)
    own = RestartWidth(
        math.ceil(horizon / interval), rkhs_bound, _scale(noise_scale, model), delta, RealisedGain()
    )
    return IndexPolicy(
        model, UpperConfidenceBound, width=_width(width) or own, forgetting=PeriodicRestart(interval)
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
        model, UpperConfidenceBound, width=_width(width) or own, forgetting=SlidingWindow(window)
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
    drifting = SpatioTemporalKernel(_kernel(kernel), ExponentialForgettingKernel(forgetting_rate))
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
    drifting = SpatioTemporalKernel(_kernel(kernel), WienerKernel(drift_variance))
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
    return IndexPolicy(model, UpperConfidenceBound, width=_width(width) or own, forgetting=rule)


_ALL: tuple[Callable[..., Policy], ...] = (
    random,
    gp_ucb,
    igp_ucb,
    gp_ts,
    gp_ei,
    gp_pi,
    r_gp_ucb,
    sw_gp_ucb,
    tv_gp_ucb,
    ui_gp_ucb,
    et_gp_ucb,
    *ADAPTIVE,
)
RECIPES: dict[str, Callable[..., Policy]] = {recipe.__name__: recipe for recipe in _ALL}
_PRIOR_OPTIONS = {"replicates": 1, "prior_mean": 0.0, "form": "auto", "noise_variance": None}


def build(
    name: str, problem: Problem, *, replicates: int, horizon: int, seed: int = 0, **options: Any
) -> Policy:
    """The recipe ``name`` for a problem: what an honest user knows of it fills what ``options`` leave open.

    Raises ValueError on an unknown name or option, listing those there are.
    """
    accepted = options_of(name)
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        raise ValueError(f"options of {name} must be among {', '.join(accepted)}, got {', '.join(unknown)}")
    known = vars(problem.knowledge) | {"replicates": replicates, "horizon": horizon, "seed": seed} | options
    kernel, noise_variance = known.pop("kernel"), known.pop("noise_variance")
    wanted = {key: value for key, value in known.items() if key in accepted}
    return RECIPES[name](problem.arms, kernel, noise_variance, **wanted)


def options_of(name: str) -> dict[str, Any]:
    """The keyword settings of a recipe with their defaults."""
    validation.require(name in RECIPES, "policy", name, f"one of {', '.join(RECIPES)}")
    parameters = inspect.signature(RECIPES[name]).parameters.values()
    own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    passes_on = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if RECIPES[name] is random:  # knows of no model
        return own
    return own | (_PRIOR_OPTIONS if passes_on else {"noise_variance": None})


def memory_length(model: ArmGP, horizon: int, variation_budget: Number | None = None) -> int:
    """Zhou & Shroff's H or w: gamma_T^{1/4} (T / P_T)^{1/2}, or gamma_T^{1/4} T^{1/2} for an unknown P_T.

    gamma_T is the greedy maximum over the arms; an average over replicates that differ. Between 1 and T.
    """
    validation.positive_integer("horizon", horizon)
    noise = model.noise_variance.mean()
    gamma = float(MaximumGain(model.prior.matrix(), noise, horizon, upper_bound=False)(horizon, model).mean())
    budget = 1.0 if variation_budget is None else float(torch.as_tensor(variation_budget).mean())
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


def _width(width: float | Width | None) -> Width | None:
    return width if width is None or isinstance(width, Width) else ConstantWidth(width)


def _scale(noise_scale: Number | None, model: ArmGP) -> Number:
    return model.noise_variance.sqrt() if noise_scale is None else noise_scale


def _incumbent(model: ArmGP) -> Tensor:
    """Largest posterior mean, ``batch_shape x 1``: the last dimension is the one output BoTorch expects."""
    return model.marginals()[0].amax(-1, keepdim=True)
