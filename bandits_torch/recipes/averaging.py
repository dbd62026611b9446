"""What needs to be told nothing but the choices: a mixture over kernels, noises and rates of change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.kernels import estimate_covariance
from bandits_torch.models.arms import inputs, settings
from bandits_torch.models.arms.arm_members import ArmMembers
from bandits_torch.models.arms.low_rank_members import LowRankMembers, pivoted_root
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.member_scale import MemberScale
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.policies.policy import Policy
from bandits_torch.policies.sharing import FixedShare
from bandits_torch.recipes.point_averaging import auto_over_points
from bandits_torch.recipes.registration import RUN, recipe
from bandits_torch.recipes.setup import Number, Setup

RATES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
PLAUSIBLE = 4.0  # nats
_UNKNOWN_RATES = (0.0, 0.01, 0.03, 0.1, 0.3)
_FEW_RATES = (0.0, 0.01, 0.1)
_LENGTHSCALES = (0.05, 0.1, 0.2, 0.4, 0.8)  # of features spread like the unit interval, times sqrt(d)
_FEW_LENGTHSCALES = (0.05, 0.2, 0.8)
_NOISES = (0.01, 0.1, 1.0)  # as shares of the variance of the function
_FEW_NOISES = (0.01, 0.3)
_TOLD_NOISES = (0.25, 1.0, 4.0)  # times the noise variance told
_PARTS = (
    (0.0, 0.6),
    (0.3, 0.2),
    (3.0, 0.2),
)  # independent part of each arm as a share of the variance, weight
_TOLD = 0.9  # prior weight of the members that believe what is told
_FULL_UP_TO, _RANK = 500, 100  # arms with a covariance of their own; above, rank of the members
_FEW = 16  # arms: up to so many are all tried, features or not, where no kernel is told
_TOLD_STRENGTH = 10.0  # of the unit told, in observations


@dataclass(frozen=True)
class _Family:
    """Members that share a covariance (or its root): every one of these noises with every one of these rates."""

    shape: Tensor
    noises: Sequence[Tensor]
    rates: Sequence[float]
    weight: float
    told: bool


@recipe(takes=(*RUN, "prior_mean", "search"), optional=True, points=True)
def auto(
    setup: Setup,
    *,
    history: Tensor | None = None,
    width: float | None = None,
    share: float = 0.001,
    behind: float = 12.0,
    plausible: float = PLAUSIBLE,
) -> Policy:
    """Told only what can be chosen: averages over kernels, noises and rates of change by how well each predicts.

    Members are weighed by ``ModelAveraging``.
    Told nothing, the choices are the same when rewards are multiplied or shifted, or time is counted in another unit.
    Where no kernel is told, up to 16 arms, and any number without features, are all tried in time (``try_all``).
    A kernel or a noise variance that is told is used; members that do without it stay, so being wrong costs little.

    Args:
        kernel: None: not known; else as for the other recipes.
        noise_variance: None: not known; given only with ``kernel`` or ``history``.
        prior_mean: given only with ``kernel``.
        history: (T, N) past rewards of the arms, NaN where missing, in place of ``kernel`` and ``prior_mean``: their
            covariance (``estimate_covariance``) and means are what is told.
        width: multiplies the mixture's standard deviation; by default 1.25, over a ``Domain`` 1.
        share, behind: of ``FixedShare``.
        plausible: of ``ModelAveraging``; not for a ``Domain``, over whose points there are no such checks.
        search, seed: how a ``Domain`` is searched (``auto_over_points``, which says what it takes of a ``kernel``).

    Members: P = 15 (arms without features) to 105 up to 500 arms, fewer and of rank 100 above; memory O(S P N^2), above
    that O(S P N).

    Source: fixed share (Herbster & Warmuth 1998); the grids, the unit learned on line and the checks are ours. No
    theorem bounds its regret. Raises ValueError for what is told twice or cannot be used, and for more than 500 arms of
    which neither features nor a kernel are known.
    """
    if setup.domain is not None:
        validation.require(plausible == PLAUSIBLE, "plausible", plausible, "left as it is over a Domain")
        return _over_points(setup, history, 1.0 if width is None else width, share, behind)
    features = _features(setup.choices)
    kernel, noise_variance, prior_mean = setup.kernel, setup.noise_variance, setup.prior_mean
    said = {"kernel": kernel, "noise_variance": noise_variance, "prior_mean": prior_mean, "history": history}
    for name, value in said.items():
        real = not (isinstance(value, Tensor) and value.is_complex())
        validation.require(real, name, getattr(value, "dtype", None), "real numbers")
    if history is not None:
        validation.require(kernel is None, "kernel", kernel, "None where a history tells it")
        validation.require(_is_zero(prior_mean), "prior_mean", prior_mean, "0 where a history tells it")
        kernel, prior_mean = _of_history(features, history)
    unused = kernel is None and noise_variance is not None
    validation.require(
        not unused, "noise_variance", noise_variance, "None where neither kernel nor history is given"
    )
    told = kernel is not None or _is_zero(prior_mean)
    validation.require(told, "prior_mean", prior_mean, "0 where no kernel is given")
    if noise_variance is not None:
        noise = settings.noise_over(features, noise_variance)
        one_each = noise.shape in ((), (setup.replicates,))
        validation.shape_is("noise_variance", noise, one_each, f"() or ({setup.replicates},)")
    families = _families(features, kernel, noise_variance)
    return _policy(
        features,
        families,
        prior_mean,
        setup.replicates,
        {
            "width": 1.25 if width is None else width,
            "plausible": plausible,
            "try_all": kernel is None and (len(features) <= _FEW or _spread(features) is None),
        },
        {"share": share, "behind": behind},
    )


def _is_zero(prior_mean: Number) -> bool:
    """Whether it is what it is when none is told."""
    return not isinstance(prior_mean, Tensor) and prior_mean == 0.0


def _features(choices: object) -> Tensor:
    """The arms' features, (N, d)."""
    if isinstance(choices, Tensor) and (choices.is_floating_point() or choices.is_complex()):
        fits = choices.dtype in (torch.float32, torch.float64)
        validation.require(fits, "arms", choices.dtype, "float32 or float64")
    features = inputs.features_of(cast(Tensor | int, choices), None, None)
    validation.shape_is("arms", features, features.dim() == 2, "(N, d), the same for every replicate")
    return features


def _over_points(
    setup: Setup, history: Tensor | None, width: float, share: float, behind: float
) -> PointAveraging:
    kernel, prior_mean = setup.kernel, setup.prior_mean
    validation.require(history is None, "history", history, "None where the choices are a Domain")
    validation.require(not isinstance(kernel, Tensor), "kernel", kernel, "a kernel over points, or None")
    validation.require(_is_zero(prior_mean), "prior_mean", prior_mean, "0 over a Domain, where it is learned")
    return auto_over_points(
        cast(Domain, setup.domain),
        cast(Kernel | None, kernel),
        setup.noise_variance,
        replicates=setup.replicates,
        seed=setup.seed,
        width=width,
        search=setup.search,
        share=share,
        behind=behind,
    )


def _families(
    features: Tensor, kernel: Kernel | Tensor | None, noise_variance: Number | None
) -> list[_Family]:
    """The members for what is told; above 500 arms few of them, and of low rank."""
    many, x = len(features) > _FULL_UP_TO, _spread(features)
    if many and x is None and kernel is None:
        expected = f"features, or at most {_FULL_UP_TO} of them, where no kernel is told"
        validation.require(False, "arms", len(features), expected)
    if kernel is None:
        grid = (
            (_LENGTHSCALES, _NOISES, _UNKNOWN_RATES) if not many else (_LENGTHSCALES, _FEW_NOISES, _FEW_RATES)
        )
        return _unknown(features, x, 1.0, *grid)
    families = _told(features, kernel, noise_variance)
    return families + _unknown(features, x, 1 - _TOLD, _FEW_LENGTHSCALES, _FEW_NOISES, _FEW_RATES)


def _of_history(features: Tensor, history: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance and means of past rewards."""
    n = len(features)
    validation.tensor("history", history)
    fits = history.dim() == 2 and history.shape[1] == n
    validation.shape_is("history", history, fits, f"(T, {n}), a column for each arm")
    try:
        covariance = estimate_covariance(history.to(features))
    except ValueError as error:
        raise ValueError(f"history: {error}") from error
    return covariance, history.to(features).nanmean(0)


def _told(features: Tensor, kernel: Kernel | Tensor, noise_variance: Number | None) -> list[_Family]:
    """Members over the kernel told, and over it with an independent part for each arm."""
    n, own = len(features), settings.kernel_over(features, kernel)
    if isinstance(kernel, Tensor):
        features = torch.arange(n, dtype=features.dtype, device=features.device).unsqueeze(-1)
    with torch.no_grad():
        variance = own(features, diag=True).expand(n)
        s = float(variance.mean())
        noises = [s * features.new_tensor(share) for share in _NOISES]
        if noise_variance is not None:
            told = settings.noise_over(features, noise_variance)
            settings.check_ratio(told, variance)
            noises = [times * told for times in _TOLD_NOISES]
        if n > _FULL_UP_TO:
            root = pivoted_root(
                lambda i: own(features[i : i + 1], features).to_dense().squeeze(0), variance, _RANK
            )
            return [_Family(root, noises, _UNKNOWN_RATES, _TOLD, True)]
        K = own(features).to_dense()
    one = torch.eye(n, dtype=K.dtype, device=K.device)
    return [_Family(K + part * s * one, noises, RATES, _TOLD * weight, True) for part, weight in _PARTS]


def _unknown(
    features: Tensor,
    x: Tensor | None,
    weight: float,
    lengthscales: Sequence[float],
    noises: Sequence[float],
    rates: Sequence[float],
) -> list[_Family]:
    """Members that know the arms' features alone, or nothing; about the first reward, hence the constant part."""
    n, smooth = len(features), []
    full = n <= _FULL_UP_TO
    if x is not None:
        scales = [scale * math.sqrt(x.shape[-1]) for scale in lengthscales]
        smooth = [_matern(x, x, scale) if full else _matern_root(x, scale) for scale in scales]
    if full:
        one = torch.eye(n, dtype=features.dtype, device=features.device)
        mixed = [(smooth[len(smooth) // 2] + one) / 2] if smooth else []
        shapes = [K + 1.0 for K in (one, *smooth, *mixed)]
    else:
        shapes = [torch.cat([root, features.new_ones(n, 1)], -1) for root in smooth]
    ratios = [features.new_tensor(share) for share in noises]
    return [_Family(shape, ratios, rates, weight / len(shapes), False) for shape in shapes]


def _policy(
    features: Tensor,
    families: Sequence[_Family],
    prior_mean: Number,
    replicates: int,
    own: dict[str, Any],
    sharing: dict[str, Any],
) -> ModelAveraging:
    members = [
        (g, noise, rate, family.weight / (len(family.noises) * len(family.rates)), family.told)
        for g, family in enumerate(families)
        for noise, rate in product(family.noises, family.rates)
    ]
    kernel, noise, rate, weight, told = zip(*members, strict=True)
    believes = torch.tensor(told, device=features.device)
    n = features.shape[-2]
    mean = settings.prior_mean_over(features, prior_mean)
    validation.shape_is("prior_mean", mean, mean.shape in ((), (n,)), f"() or ({n},)")
    rank = max(family.shape.shape[-1] for family in families)
    shapes = [pad(family.shape, (0, rank - family.shape.shape[-1])) for family in families]
    build = LowRankMembers if len(features) > _FULL_UP_TO else ArmMembers
    model = build(
        features,
        torch.stack(shapes),
        torch.tensor(kernel, device=features.device),
        torch.stack([value.expand(replicates) for value in noise], -1),
        features.new_tensor(rate),
        prior_mean=torch.where(believes.unsqueeze(-1), mean.expand(n), 0.0),
        replicates=replicates,
    )
    return ModelAveraging(
        model,
        sharing=FixedShare(features.new_tensor(weight), replicates, **sharing),
        scale=MemberScale(torch.where(believes, _TOLD_STRENGTH, 0.0).to(features), ~believes, replicates),
        typical_gap=True,
        **own,
    )


def _spread(features: Tensor) -> Tensor | None:
    """Features each spread like the uniform distribution on the unit interval, without those that are constant or count
    the arms; None where none is left."""
    x = features
    index = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)
    if x.shape[-1] > 0 and torch.equal(x[:, 0], index):
        x = x[:, 1:]
    x = x[:, x.amax(0) > x.amin(0)] if x.shape[-1] else x
    if x.shape[-1] == 0:
        return None
    return (x - x.mean(0)) / (math.sqrt(12) * x.std(0, unbiased=False))


def _matern(x: Tensor, y: Tensor, lengthscale: float) -> Tensor:
    """Matern 5/2 covariance of the rows of x with those of y."""
    r = math.sqrt(5) * torch.cdist(x, y) / lengthscale
    return (1 + r + r.square() / 3) * (-r).exp()


def _matern_root(x: Tensor, lengthscale: float) -> Tensor:
    """A root of it over many arms, of low rank."""
    return pivoted_root(
        lambda i: _matern(x, x[i : i + 1], lengthscale).squeeze(-1), x.new_ones(len(x)), _RANK
    )
