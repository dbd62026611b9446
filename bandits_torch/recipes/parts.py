"""Parts that recipes share: models and policies built from a ``Setup``, conversion of arguments, default widths."""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    PeriodicTimeKernel,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.kernels.arms import inputs_over
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.candidate_priors import has_time
from bandits_torch.models.hyperparameters import learnable
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.forgetting import ForgettingRule
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.learned_hyperparameters import LearnedHyperparameters
from bandits_torch.policies.over_priors import PriorElimination
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.registration import Number, Setup
from bandits_torch.theory.prior_widths import SrinivasBayesianWidth, SrinivasContinuousWidth
from bandits_torch.theory.widths import ConstantWidth, MaximumGain, Width


def arm_settings(setup: Setup) -> dict[str, Any]:
    """Arguments of an ``ArmPolicy``, from the number and device of the arms."""
    arms = setup.features
    return {"num_arms": arms.shape[-2], "replicates": setup.replicates, "device": arms.device, **setup.seeds}


def over_arms(setup: Setup) -> dict[str, Any]:
    """Arguments of a model over arms. The model raises ValueError if the kernel or noise variance is None."""
    prior = {"kernel": setup.kernel, "noise_variance": setup.noise_variance, "prior_mean": setup.prior_mean}
    return {"arms": setup.choices, **prior, "batch_shape": (setup.replicates,)}


def model_over(setup: Setup) -> ArmGP | OnlineGP:
    """An ``ArmGP`` over arms, an ``OnlineGP`` over the points of a domain (and time, if the kernel has a time part)."""
    choices, kernel, replicates = setup.choices, setup.kernel, setup.replicates
    if setup.learn_hyperparameters:
        if isinstance(choices, int) or not isinstance(kernel, Kernel):
            raise ValueError(
                "learn_hyperparameters must be False without features or a kernel over them, got True"
            )
        reached = choices.bounds if isinstance(choices, Domain) else choices.flatten(0, -2)
        ranges = reached.amax(0) - reached.amin(0)
        kernel = learnable(kernel, ranges.shape[-1], replicates, setup.anisotropy, ranges)
    if not isinstance(choices, Domain):
        return ArmGP(**over_arms(setup) | {"kernel": kernel, "form": setup.form})
    kernel = validation.instance("kernel", kernel, Kernel, "a kernel over points, for a Domain")
    of_points = not isinstance(kernel, ArmCovarianceKernel)
    validation.require(of_points, "kernel", kernel, "a kernel over points, for a Domain")
    mean = ConstantMean(batch_shape=torch.Size([replicates])).double()
    mean.constant.data.fill_(one_prior_mean(setup))
    noise = validation.numbers("noise_variance", setup.noise_variance, choices.bounds)
    return OnlineGP(
        kernel,
        noise.expand(replicates) if setup.learn_hyperparameters else noise,
        prior_mean=mean.requires_grad_(False),
        input_dim=choices.dim + has_time(kernel),
        batch_shape=(replicates,),
        dtype=choices.bounds.dtype,
        device=choices.bounds.device,
    )


def policy_over(
    setup: Setup,
    model: OnlineModel,
    acquisition: Callable[..., AcquisitionFunction],
    *,
    width: Width | None = None,
    forgetting: ForgettingRule | None = None,
    kind: type[IndexPolicy] = IndexPolicy,
) -> Policy:
    """A policy of a ``kind`` over arms or points; it learns its hyperparameters if the setup asks for it."""
    parts: dict[str, Any] = {"width": width, "forgetting": forgetting, **setup.seeds}
    if setup.domain is not None:
        parts |= {"choices": setup.domain, "search": setup.point_search}
    return learning(setup, kind(model, acquisition, **parts))


def learning(setup: Setup, policy: IndexPolicy | PriorElimination) -> Policy:
    """The policy, which learns its hyperparameters if the setup asks for it."""
    given = setup.learn_hyperparameters
    if not given:
        return policy
    schedule = {} if isinstance(given, bool) else {k: v for k, v in given.items() if k != "anisotropy"}
    return LearnedHyperparameters(policy, **schedule)


def one_noise(setup: Setup) -> float:
    """lambda, averaged over the replicates."""
    like = torch.zeros((), dtype=torch.float64)
    return float(validation.numbers("noise_variance", setup.noise_variance, like).mean())


def one_prior_mean(setup: Setup) -> float:
    """The prior mean as one number. Raises ValueError if the prior means of the arms differ."""
    mean = setup.prior_mean
    if isinstance(mean, Tensor) and mean.numel() > 1 and bool((mean == mean.flatten()[0]).all()):
        mean = mean.flatten()[0]
    single = mean.item() if isinstance(mean, Tensor) and mean.numel() == 1 else mean
    return validation.finite_number("prior_mean", cast(float, single))


_HARMONICS, _MEMORY = 3, 5.0  # of a cycle given by its period; over how many periods its shape changes
_TIME_KERNELS: dict[str, Callable[[Tensor], Kernel]] = {
    "quasi-periodic": lambda period: QuasiPeriodicKernel(period, 1.0, _MEMORY * period, order=_HARMONICS),
    "periodic": lambda period: PeriodicTimeKernel(period, 1.0, order=_HARMONICS),
    "matern-1/2": lambda lengthscale: MaternTimeKernel(lengthscale, 0.5),
    "matern-3/2": lambda lengthscale: MaternTimeKernel(lengthscale, 1.5),
    "matern-5/2": lambda lengthscale: MaternTimeKernel(lengthscale, 2.5),
    "exponential": ExponentialForgettingKernel,
    "wiener": WienerKernel,
}


def as_time_kernel(time_kernel: Kernel | str | None, forgetting_rate: float = 0.0) -> Kernel | None:
    """The kernel over time that a text names (``tv_gp_ucb``); a kernel unchanged; for None exponential forgetting, or
    None at rate 0. Raises ValueError for others."""
    if time_kernel is None and forgetting_rate != 0:
        return ExponentialForgettingKernel(in_float64("forgetting_rate", forgetting_rate))
    if not isinstance(time_kernel, str):
        return time_kernel
    kernels = []
    for part in time_kernel.split("+"):
        name, colon, number = part.strip().partition(":")
        known = ", ".join(_TIME_KERNELS)
        expected = f"a kernel, or a name and a number such as 'quasi-periodic:24', of {known}"
        validation.require(bool(colon) and name in _TIME_KERNELS, "time_kernel", time_kernel, expected)
        try:
            value = in_float64("time_kernel", float(number))
        except ValueError:
            validation.require(False, "time_kernel", time_kernel, expected)
        try:
            kernels.append(_TIME_KERNELS[name](value))
        except ValueError as error:
            raise ValueError(f"time_kernel: {part.strip()!r}: {error}") from error
    if len(kernels) == 1:
        return kernels[0]
    scaled = [ScaleKernel(kernel).to(torch.float64) for kernel in kernels]
    for kernel in scaled:
        kernel.outputscale = 1 / len(scaled)
    return functools.reduce(operator.add, scaled)


def bayesian_width(setup: Setup, model: ArmGP | OnlineGP, delta: float) -> Width:
    """The width of Srinivas et al. (2010) for draws of the prior: Theorem 1 over arms, Theorem 2 over a domain.

    Over a domain, b = sqrt(2) ``relative_steepness``, in units of the prior standard deviation because the theorem
    assumes k(x, x) <= 1, and a = 1. These bound the tail of the derivative at one point; the theorem needs a bound over
    all points, with a larger a.
    """
    domain = setup.domain
    if domain is None:
        return SrinivasBayesianWidth(cast(ArmGP, model).num_arms, delta)
    side = float((domain.bounds[1] - domain.bounds[0]).max())
    b = math.sqrt(2) * float(relative_steepness(cast(OnlineGP, model), domain).max())
    return SrinivasContinuousWidth(domain.dim, side, 1.0, b, delta)


def relative_steepness(model: OnlineGP, domain: Domain) -> Tensor:
    """Largest standard deviation of a partial derivative, divided by the largest of f at 64 points, (batch,).

    It does not depend on the unit of f. All sides of the box are stretched to the length of the longest.
    """
    sides = domain.bounds[1] - domain.bounds[0]
    with torch.no_grad():
        variance = model.kernel(_at_time_zero(model, domain.sample(64, 0)), diag=True).double().amax(-1)
    steepest = (_changes(model, domain) / (1e-3 * sides.max())).amax(-1).expand(model.batch_shape)
    return steepest / torch.where(variance > 0, variance, 1.0).sqrt()


def steepness(model: OnlineGP, domain: Domain) -> Tensor:
    """Prior standard deviation of each partial derivative of f, (d,), the largest over the model's batch.

    The derivative is approximated by a difference over 1e-3 of the side, from the middle of the box.
    """
    step = 1e-3 * (domain.bounds[1] - domain.bounds[0])
    step = torch.where(step > 0, step, 1.0)  # a fixed coordinate has no range, so f does not change along it
    return (_changes(model, domain) / step).reshape(-1, domain.dim).amax(0)


def _changes(model: OnlineGP, domain: Domain) -> Tensor:
    """Prior standard deviation of the change of f from the middle of the box over 1e-3 of each side, (batch, d)."""
    low, high = domain.bounds
    middle, step = (low + high) / 2, 1e-3 * (high - low)
    points = torch.cat([middle.unsqueeze(0), middle + torch.diag(step)])
    with torch.no_grad():  # in float64: the differences are a millionth of the covariances
        kernel = copy.deepcopy(model.kernel).double()
        covariance = kernel(_at_time_zero(model, points).double()).to_dense()
    difference = covariance[..., 0, 0].unsqueeze(-1) + covariance.diagonal(dim1=-2, dim2=-1)[..., 1:]
    difference = (difference - 2 * covariance[..., 0, 1:]).clamp_min(0)
    return difference.sqrt()


def memory_length(
    model: ArmGP | OnlineGP,
    horizon: int,
    rkhs_variation_budget: Number | None = None,
    domain: Domain | None = None,
) -> int:
    """The interval H or window w of Zhou & Shroff: gamma_T^{1/4} (T / P_T)^{1/2}, rounded up, between 1 and T.

    gamma_T is the greedy maximum over the arms (at most 1 000 of them, evenly spaced by index), or over 256 Sobol
    points of a domain, averaged over the replicates.

    ``model``: the prior, over arms or over ``domain``; ``rkhs_variation_budget``: P_T in the RKHS norm, None if
    unknown, then 1. The sum of the largest changes of an arm (``Knowledge.variation_budget``) is smaller and makes
    windows too long: 3.4 times on the cosine problem.

    Source: Zhou & Shroff 2021, remark on their Theorems 1 and 2. Raises ValueError for a ``horizon`` below 1, and
    without a ``domain`` for an ``OnlineGP``.
    """
    validation.instance("model", model, (ArmGP, OnlineGP), "an ArmGP or an OnlineGP")
    validation.positive_integer("horizon", horizon)
    named = "rkhs_variation_budget", rkhs_variation_budget
    return balanced_length(model, horizon, (0.25, 0.5), *named, domain)


def balanced_length(
    model: ArmGP | OnlineGP,
    horizon: int,
    powers: tuple[float, float],
    name: str,
    budget: Number | None,
    domain: Domain | None = None,
) -> int:
    """gamma_T^p (T / P_T)^q for the ``powers`` p and q, rounded up, between 1 and T; gamma_T as in ``memory_length``.

    P_T is the ``budget``, averaged over the replicates, or 1 if it is None. Raises ValueError if it is negative.
    """
    total = 1.0
    if budget is not None:
        mean = float(validation.numbers(name, budget, model.noise_variance).mean())
        total = validation.non_negative(name, mean)
    if total == 0:
        return horizon
    if isinstance(model, ArmGP):
        count = min(model.num_arms, 1000)
        some = torch.linspace(0, model.num_arms - 1, count, device=model.arms.device).long()
        covariance = model.prior.matrix(some)
    else:
        points = validation.instance("domain", domain, Domain, "the Domain of an OnlineGP").sample(256, 0)
        with torch.no_grad():
            covariance = model.kernel(_at_time_zero(model, points)).to_dense()
    gain = MaximumGain(covariance, model.noise_variance.mean(), horizon, upper_bound=False)
    gamma, (p, q) = float(gain(horizon, model).mean()), powers
    return min(horizon, max(1, math.ceil(gamma**p * (horizon / total) ** q)))


def _at_time_zero(model: OnlineGP, points: Tensor) -> Tensor:
    shape, expected = (2, *points.shape[1:]), "of shape (2, d): widths and lengths are computed for one box"
    validation.require(points.dim() == 2, "bounds", f"shape {shape}", expected)
    zeros = points.new_zeros(len(points), model.input_dim - points.shape[-1])
    return torch.cat([points, zeros], -1).to(model.input_dtype)


def as_width(width: float | Width | None) -> Width | None:
    """A number as a ``ConstantWidth``; a ``Width`` or None unchanged."""
    return width if width is None or isinstance(width, Width) else ConstantWidth(width)


def norm_width(
    theorem: Callable[..., Width],
    *,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: Any = None,
) -> Width:
    """``width`` as a ``Width``; None: that of the ``theorem``, for functions of bounded norm, with the other arguments,
    which are checked in any case."""
    own = theorem(rkhs_bound=rkhs_bound, noise_scale=noise_scale, delta=delta)
    return as_width(width) or own


def drifting(setup: Setup, time_kernel: Kernel) -> Setup:
    """The setup with its kernel times ``time_kernel``. Raises ValueError if the kernel has a time part already."""
    return replace(setup, kernel=SpatioTemporalKernel(_static(setup), time_kernel))


def _static(setup: Setup) -> Kernel:
    """The setup's kernel, or one over indices for a covariance matrix. Raises ValueError if it has a time part, which
    would take the last feature for the time."""
    kernel = ArmCovarianceKernel(setup.kernel) if isinstance(setup.kernel, Tensor) else setup.kernel
    kernel = validation.instance("kernel", kernel, Kernel, "a kernel, or the arms' covariance matrix")
    validation.require(not has_time(kernel), "kernel", kernel, "a kernel without a time part")
    return kernel


def with_forgetting(setup: Setup, forgetting_rate: float) -> Setup:
    """The setup with its kernel times (1 - eps)^{|t - t'|/2} for eps = ``forgetting_rate``; unchanged at rate 0."""
    if validation.below_one("forgetting_rate", forgetting_rate) == 0:
        return setup
    return drifting(setup, ExponentialForgettingKernel(in_float64("forgetting_rate", forgetting_rate)))


def in_float64(name: str, value: float) -> Tensor:
    """A hyperparameter in float64, because GPyTorch would round a Python number to its default dtype."""
    return validation.numbers(name, value, torch.zeros((), dtype=torch.float64))


def kernel_over_arms(setup: Setup, arms: Tensor) -> tuple[Kernel, Tensor]:
    """The kernel over arms, and its inputs: the ``arms``, or their indices if it is a covariance matrix. Raises
    ValueError for a kernel with a time part."""
    kernel = _static(setup)
    return kernel, inputs_over(arms, kernel)
