"""Algorithms for arms under a context: one model over arm x context."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from gpytorch.kernels import Kernel
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
from bandits_torch.policies.choices.contexts import check_contexts, pairs_of
from bandits_torch.policies.forgetting import ForgettingRule, KeepEverything, SlidingWindow
from bandits_torch.policies.index import ContextualPolicy
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.stale_observations import StaleObservations
from bandits_torch.recipes.parts import (
    STALE,
    as_time_kernel,
    as_width,
    exponential_forgetting,
    model_over,
    one_prior_mean,
)
from bandits_torch.recipes.registration import RUN, Number, Setup, recipe
from bandits_torch.theory.prior_widths import CGPUCBWidth
from bandits_torch.theory.widths import Width

_TAKES = (*RUN, "prior_mean")


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

    ``choose`` and ``ask`` take an ``ArmContext`` of ``context_dim`` numbers. If arms are given as a number N, or with a
    covariance matrix as kernel, their feature is their index. Without a context (``context_dim`` 0) it is GP-UCB.

    ``context_kernel``: over contexts; ``combine``: how it is combined with the arms' kernel (``arm_context_kernel``);
    ``num_contexts``: of the width, see ``CGPUCBWidth``; ``window``: number of observations held, None for all. A window
    bounds the cost of a step, O(n (n + N)) with n held, but the width's theorem does not cover it.

    ``contexts``: (M, c), a complete list of the contexts that can occur. The model is then an ``ArmGP`` over the N M
    pairs of arm and context: the same posterior, and steps whose cost does not grow. Every context must be listed.

    Raises ValueError for a ``context_kernel`` without contexts, or contexts without one, and a ``window`` below 1.
    """
    return tv_cgp_ucb(
        setup,
        forgetting_rate=0.0,
        context_dim=context_dim,
        context_kernel=context_kernel,
        contexts=contexts,
        combine=combine,
        num_contexts=num_contexts,
        window=window,
        delta=delta,
        width=width,
    )


@recipe(takes=_TAKES, one_mean=True, contexts=True, race={})
def tv_cgp_ucb(
    setup: Setup,
    *,
    forgetting_rate: float = 0.03,
    time_kernel: Kernel | str | None = None,
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

    ``time_kernel``: another kernel over time, Markov or not, or its name and number, as for ``tv_gp_ucb``.
    ``forgetting_rate`` 0 gives ``cgp_ucb``.

    ``stale``: under exponential forgetting an observation is dropped once it can change no mean by more than this many
    prior standard deviations (``StaleObservations``), so that steps do not slow down; None keeps all. ``window``: a
    fixed number of observations held, instead. ``context_dim``, ``context_kernel``, ``contexts``, ``combine``,
    ``num_contexts``: as for ``cgp_ucb``; with ``contexts`` nothing is dropped, and ``ArmGP`` must support the kernel
    over time.

    Raises ValueError as ``cgp_ucb`` does, for a ``time_kernel`` that is not a kernel, and for a ``stale`` that is not
    > 0 or has no effect.
    """
    time_kernel = as_time_kernel(time_kernel)
    if time_kernel is None and forgetting_rate != 0:
        time_kernel = exponential_forgetting(forgetting_rate)
    drops = isinstance(time_kernel, ExponentialForgettingKernel) and window is None and contexts is None
    if stale is not None:
        validation.positive("stale", stale)
        expected = "the default or None, with a window, contexts, or no exponential forgetting"
        validation.require(stale == STALE or drops, "stale", stale, expected)
    rule: ForgettingRule = KeepEverything() if window is None else SlidingWindow(window)
    if stale is not None and drops:
        rule = StaleObservations(stale)
    arms = features_of(cast(Tensor | int, setup.choices), None, None)
    validation.shape_is("arms", arms, arms.dim() == 2, "(N, d), the same in all replicates")
    kernel, arms = kernel_over_arms(setup, arms)
    validation.natural("context_dim", context_dim)
    one_of = f"one of {', '.join(COMBINATIONS)}"
    validation.require(combine in COMBINATIONS, "combine", combine, one_of)
    expected = "a kernel over the context" if context_dim else "None without a context (context_dim 0)"
    fits = (context_kernel is not None) == (context_dim > 0)
    validation.require(fits, "context_kernel", context_kernel, expected)
    if contexts is not None:
        check_contexts(contexts)
        fits = contexts.shape[-1] == context_dim
        validation.shape_is("contexts", contexts, fits, f"(M, {context_dim}), with context_dim {context_dim}")
    if context_kernel is not None:
        kernel = arm_context_kernel(kernel, context_kernel, arms.shape[-1], context_dim, combine)
    theorem = CGPUCBWidth(len(arms), num_contexts, delta)
    if time_kernel is not None:
        kernel = SpatioTemporalKernel(kernel, time_kernel)
    model: OnlineModel
    if contexts is None:
        model = OnlineGP(
            kernel,
            cast(Number, setup.noise_variance),  # the model raises ValueError for None
            prior_mean=one_prior_mean(setup),
            input_dim=arms.shape[-1] + context_dim + (time_kernel is not None),
            batch_shape=(setup.replicates,),
            dtype=arms.dtype,
            device=arms.device,
        )
    else:
        pairs = pairs_of(arms, contexts.to(arms))
        model = model_over(replace(setup, choices=pairs, kernel=kernel, prior_mean=one_prior_mean(setup)))
    return ContextualPolicy(
        model,
        UpperConfidenceBound,
        choices=arms,
        context_dim=context_dim,
        contexts=contexts,
        width=as_width(width) or theorem,
        forgetting=rule,
        **setup.seeds,
    )


def kernel_over_arms(setup: Setup, arms: Tensor) -> tuple[Kernel, Tensor]:
    """The kernel over arms, and the features it takes: the index for a covariance matrix."""
    kernel = setup.kernel
    if isinstance(kernel, Tensor):
        kernel = ArmCovarianceKernel(kernel)
    validation.instance("kernel", kernel, Kernel, "a kernel over arms, or their covariance matrix")
    if isinstance(kernel, ArmCovarianceKernel):
        count = kernel.num_arms
        validation.require(count == len(arms), "kernel", kernel, f"a covariance of {len(arms)} arms")
        arms = torch.arange(count).to(arms).unsqueeze(-1)
    return cast(Kernel, kernel), arms
