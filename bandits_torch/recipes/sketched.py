"""Algorithms for many arms, with a sketched posterior: BKB and batch BKB."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UniformFirst, UpperConfidenceBound
from bandits_torch.models.sketch.embedding import LeverageSampling
from bandits_torch.models.sketch.sketched_gp import SketchedGP
from bandits_torch.policies.batches import BatchBKB
from bandits_torch.policies.policy import Policy
from bandits_torch.recipes.parts import as_width, policy_over
from bandits_torch.recipes.registration import OWN_WIDTH_AND_CONSTANT, RUN, Number, Setup, recipe
from bandits_torch.theory.widths import BKBWidth, Width

_TAKES = (*RUN, "prior_mean")


@recipe(takes=_TAKES, seeded=True, race=OWN_WIDTH_AND_CONSTANT)
def bkb(
    setup: Setup,
    *,
    horizon: int | None = None,
    preset: str = "practical",
    oversampling: float = 5.0,
    growth: float | None = None,
    dictionary: str = "redrawn",
    rkhs_bound: Number = 1.0,
    bound_is_guess: bool = False,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: float | Width | None = None,
    chunk_size: int | None = None,
) -> Policy:
    """BKB: GP-UCB on a dictionary resampled by ridge leverage scores (Calandriello et al. 2019, Figure 1).

    The first arm is drawn uniformly; after each pull every observation enters the new dictionary with probability
    qbar sigma~^2. ``preset="theory"`` takes qbar from their Theorem 1, with delta split between dictionary and width;
    the number of observations replaces ``horizon`` after it, or if there is none (``LeverageSampling.theory``).
    ``"practical"`` uses ``oversampling`` as qbar. ``dictionary="kept"`` is ours: draws are added to the current
    dictionary, which changes little from step to step and is cheaper, but at a qbar of 5 often holds every arm pulled.
    ``growth``: C, the information after which a dictionary is drawn again; None: 1 (at every step), or 2 with
    ``"kept"`` and ``"practical"``. ``bound_is_guess``: ``rkhs_bound`` is a first guess, doubled while the data refute
    it (``BKBWidth``). ``chunk_size``: number of arms processed at a time when memory is short (``SketchedGP``).

    Exact GP-UCB over ``ArmGP(form="factor")`` reads u N numbers per step, with u distinct arms pulled. Prefer it until
    u is many times the dictionary's size, or u N numbers do not fit into memory. ``bbkb`` scores all arms at few steps
    only: prefer it for hundreds of thousands of arms, or for late rewards.

    Raises ValueError for another ``preset`` or ``dictionary``, and ``replicates`` below 1.
    """
    growth = (2.0 if dictionary == "kept" else 1.0) if growth is None else growth
    sampling = _sampling(preset, horizon, delta, oversampling, growth, dictionary)
    model = _sketch(setup, sampling, chunk_size)
    share = delta / 2 if preset == "theory" else delta
    theorem = BKBWidth(rkhs_bound, noise_scale, share, bound_is_guess=bound_is_guess)
    index = UpperConfidenceBound if dictionary == "kept" else UniformFirst
    return policy_over(setup, model, index, width=as_width(width) or theorem)


@recipe(takes=_TAKES, seeded=True, race=OWN_WIDTH_AND_CONSTANT)
def bbkb(
    setup: Setup,
    *,
    horizon: int | None = None,
    preset: str = "practical",
    oversampling: float = 5.0,
    growth: float = 5.0,
    rkhs_bound: Number = 1.0,
    noise_scale: Number | None = None,
    delta: float = 0.1,
    width: float | Width | None = None,
    chunk_size: int | None = None,
) -> Policy:
    """Batch BKB: means frozen until the accumulated variance exceeds ``growth`` (Calandriello et al. 2020).

    ``preset="theory"`` uses ``growth`` times the qbar of Theorem 1, since a dictionary is used until variances have
    fallen by that factor, and multiplies the width by sqrt(growth) for the frozen mean; ``"practical"`` does neither.
    ``oversampling``, ``chunk_size``: as for ``bkb``.

    Raises ValueError as ``bkb`` does, and with ``preset="theory"`` unless ``growth`` >= 1.
    """
    theory = preset == "theory"
    sampling = _sampling(preset, horizon, delta, oversampling, growth)
    if theory:
        validation.require(growth >= 1, "growth", growth, "a number >= 1")
        qbar, rise = growth * sampling.oversampling, growth * sampling.rise
        sampling = replace(sampling, oversampling=qbar, rise=rise, growth=growth)
    model = _sketch(setup, sampling, chunk_size)
    share, stretch = (delta / 2, growth) if theory else (delta, 1.0)
    theorem = BKBWidth(rkhs_bound, noise_scale, share, stretch=stretch)
    return BatchBKB(model, as_width(width) or theorem)


def _sampling(
    preset: str,
    horizon: int | None,
    delta: float,
    oversampling: float,
    growth: float,
    dictionary: str = "kept",
) -> LeverageSampling:
    validation.one_of("preset", preset, "theory", "practical")
    validation.probability("delta", delta)
    if horizon is not None:
        validation.positive_integer("horizon", horizon)
    if preset == "practical":
        return LeverageSampling.practical(oversampling, growth, dictionary)
    return LeverageSampling.theory(horizon or 1, delta / 2, dictionary=dictionary)


def _sketch(setup: Setup, sampling: LeverageSampling, chunk_size: int | None) -> SketchedGP:
    return SketchedGP(
        cast(Tensor, setup.choices),
        cast(Kernel, setup.kernel),
        cast(Number, setup.noise_variance),
        prior_mean=setup.prior_mean,
        sampling=sampling,
        chunk_size=chunk_size,
        batch_shape=(setup.replicates,),
        **setup.seeds,
    )
