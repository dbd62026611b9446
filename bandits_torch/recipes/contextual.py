"""Arms under a context: one model over arm x context."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    arm_context_kernel,
)
from bandits_torch.kernels.composed import COMBINATIONS
from bandits_torch.models.arms.inputs import features_of
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.choices.listed_contexts import check_contexts, pairs_of
from bandits_torch.policies.contextual import ContextualPolicy
from bandits_torch.policies.forgetting import ForgettingRule, KeepEverything, SlidingWindow
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.stale_observations import StaleObservations
from bandits_torch.recipes.parts import STALE, as_width, model_over, one_prior_mean
from bandits_torch.recipes.registration import RUN, recipe
from bandits_torch.recipes.setup import Setup
from bandits_torch.theory.prior_widths import CGPUCBWidth
from bandits_torch.theory.widths import Width

_TAKES = (*RUN, "prior_mean")
Number = float | Tensor


@recipe(takes=_TAKES, one_mean=True, contexts=True, quick={"window": 9}, race={})
def cgp_ucb(
    setup: Setup,
    *,
    context_dim: int = 0,
    context_kernel: Kernel | None = None,
    contexts: Tensor | None = None,
    combine: str = "product",
    num_contexts: int = 1,
    window: int | None = None,
    delta: float = 0.1,
    width: float | Width | None = None,
) -> Policy:
    """CGP-UCB: GP-UCB over arm x context, among the arms of each step's context (Krause & Ong 2011, Algorithm 1).

    ``choose`` and ``ask`` take an ``ArmContext`` of ``context_dim`` numbers. Arms given as a number N, or with a
    covariance matrix as kernel, have their index for a feature. Without a context (``context_dim`` 0) it is GP-UCB.

    ``context_kernel``: over contexts; ``combine``: with the arms' kernel, by ``arm_context_kernel``; ``num_contexts``:
    of the width, see ``CGPUCBWidth``; ``window``: observations held, which bounds the cost of a step, O(n (n + N)) with
    n held, and for which the width's theorem does not hold; None: all.

    ``contexts``: (M, c), where these are all there can be. The model is then an ``ArmGP`` over the N M pairs of arm and
    context: the same posterior, and a step whose cost does not grow. Every context told must be one of them.

    Raises ValueError for a ``context_kernel`` without contexts, or contexts without one, and a ``window`` below 1.
    """
    told = _Contexts(context_dim, context_kernel, contexts, combine, num_contexts)
    return _contextual(setup, None, told, _window(window), delta, width)


@recipe(takes=_TAKES, one_mean=True, contexts=True, race={})
def tv_cgp_ucb(
    setup: Setup,
    *,
    forgetting_rate: float = 0.03,
    time_kernel: Kernel | None = None,
    context_dim: int = 0,
    context_kernel: Kernel | None = None,
    contexts: Tensor | None = None,
    combine: str = "product",
    num_contexts: int = 1,
    stale: float | None = STALE,
    window: int | None = None,
    delta: float = 0.1,
    width: float | Width | None = None,
) -> Policy:
    """CGP-UCB whose function of arm and context drifts: times (1 - eps)^{|t - t'|/2} (after Bogunovic et al. 2016).

    ``time_kernel``: any other kernel over time instead, Markov or not. ``forgetting_rate`` 0 is ``cgp_ucb``.

    ``stale``: under exponential forgetting observations are dropped once no mean can change by more than so many
    prior standard deviations (``StaleObservations``), so that a step does not slow down; None keeps all. ``window``:
    observations held, instead. ``context_dim``, ``context_kernel``, ``contexts``, ``combine``, ``num_contexts``: as for
    ``cgp_ucb``; with ``contexts`` nothing is dropped, and the kernel over time must be one that ``ArmGP`` takes.

    Raises ValueError as ``cgp_ucb``, for a ``time_kernel`` that is not a kernel, and for a ``stale`` that is not > 0 or
    has nothing to do.
    """
    if time_kernel is None and forgetting_rate != 0:
        rate = validation.numbers("forgetting_rate", forgetting_rate, torch.zeros((), dtype=torch.float64))
        time_kernel = ExponentialForgettingKernel(rate)
    exponential = isinstance(time_kernel, ExponentialForgettingKernel)
    if stale is not None:
        validation.positive("stale", stale)
        fits = stale == STALE or (exponential and window is None and contexts is None)
        expected = "left as it is, or None, with a window, contexts, or no exponential forgetting"
        validation.require(fits, "stale", stale, expected)
    drops = stale is not None and exponential and window is None and contexts is None
    rule = StaleObservations(cast(float, stale)) if drops else _window(window)
    told = _Contexts(context_dim, context_kernel, contexts, combine, num_contexts)
    return _contextual(setup, time_kernel, told, rule, delta, width)


@dataclass(frozen=True, eq=False)
class _Contexts:
    """What a recipe is told of them."""

    dim: int
    kernel: Kernel | None
    listed: Tensor | None
    combine: str
    count: int

    def over(self, kernel: Kernel, arm_dim: int) -> Kernel:
        """The kernel over features and context; ValueError for what does not go together."""
        validation.natural("context_dim", self.dim)
        one_of = f"one of {', '.join(COMBINATIONS)}"
        validation.require(self.combine in COMBINATIONS, "combine", self.combine, one_of)
        expected = "a kernel over the context" if self.dim else "None without a context (context_dim 0)"
        validation.require(
            (self.kernel is not None) == (self.dim > 0), "context_kernel", self.kernel, expected
        )
        if self.listed is not None:
            check_contexts(self.listed)
            own = self.listed.shape[-1]
            fits, expected = own == self.dim, f"(M, {self.dim}), with context_dim {self.dim}"
            validation.shape_is("contexts", self.listed, fits, expected)
        if self.kernel is None:
            return kernel
        return arm_context_kernel(kernel, self.kernel, arm_dim, self.dim, self.combine)


def _window(window: int | None) -> ForgettingRule:
    return KeepEverything() if window is None else SlidingWindow(window)


def _contextual(
    setup: Setup,
    time_kernel: Kernel | None,
    told: _Contexts,
    forgetting: ForgettingRule,
    delta: float,
    width: float | Width | None,
) -> Policy:
    validation.require(
        setup.domain is None, "arms", setup.choices, "arms: over points a context is a fixed feature"
    )
    arms = features_of(cast(Tensor | int, setup.choices), None, None)
    validation.shape_is("arms", arms, arms.dim() == 2, "(N, d), the same in all replicates")
    kernel, arms = _over_arms(setup, arms)
    kernel = told.over(kernel, arms.shape[-1])
    own = CGPUCBWidth(len(arms), told.count, delta)
    if time_kernel is not None:
        kernel = SpatioTemporalKernel(kernel, time_kernel)
    model: OnlineModel
    if told.listed is None:
        model = _over_inputs(setup, kernel, arms, arms.shape[-1] + told.dim + (time_kernel is not None))
    else:
        pairs = pairs_of(arms, told.listed.to(arms))
        model = model_over(replace(setup, choices=pairs, kernel=kernel, prior_mean=one_prior_mean(setup)))
    return ContextualPolicy(
        model,
        UpperConfidenceBound,
        choices=arms,
        context_dim=told.dim,
        contexts=told.listed,
        width=as_width(width) or own,
        forgetting=forgetting,
        seed=setup.seed,
        first_replicate=setup.first_replicate,
    )


def _over_inputs(setup: Setup, kernel: Kernel, arms: Tensor, input_dim: int) -> OnlineGP:
    mean = ConstantMean().to(arms)
    mean.constant.data.fill_(one_prior_mean(setup))
    return OnlineGP(
        kernel,
        cast(Number, setup.noise_variance),  # None is refused by name where it is used
        prior_mean=mean.requires_grad_(False),
        input_dim=input_dim,
        batch_shape=(setup.replicates,),
        dtype=arms.dtype,
        device=arms.device,
    )


def _over_arms(setup: Setup, arms: Tensor) -> tuple[Kernel, Tensor]:
    """The kernel over arms and the features it is over: the index, for a covariance matrix."""
    kernel = setup.kernel
    if isinstance(kernel, Tensor):
        kernel = ArmCovarianceKernel(kernel)
    validation.instance("kernel", kernel, Kernel, "a kernel over arms, or their covariance matrix")
    if isinstance(kernel, ArmCovarianceKernel):
        count = kernel.num_arms
        validation.require(count == len(arms), "kernel", kernel, f"a covariance of {len(arms)} arms")
        arms = torch.arange(count).to(arms).unsqueeze(-1)
    return cast(Kernel, kernel), arms
