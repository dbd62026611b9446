"""What needs to be told nothing but the choices: a mixture over kernels, noises and rates of change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models import arm_arguments, arm_inputs
from bandits_torch.models.arm_members import ArmMembers
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.member_scale import MemberScale
from bandits_torch.policies.sharing import FixedShare

Number = float | Tensor
RATES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
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
_TOLD_STRENGTH = 10.0  # of the unit told, in observations


@dataclass(frozen=True)
class _Family:
    """Members that share a covariance: every one of these noises with every one of these rates."""

    covariance: Tensor
    noises: Sequence[Tensor]
    rates: Sequence[float]
    weight: float
    told: bool


def auto(
    arms: Tensor | int,
    kernel: Kernel | Tensor | None = None,
    noise_variance: Number | None = None,
    *,
    prior_mean: Number = 0.0,
    replicates: int = 1,
    width: float = 1.5,
    share: float = 0.001,
    behind: float = 12.0,
    plausible: float = 4.0,
) -> ModelAveraging:
    """Told only what can be chosen: averages over kernels, length-scales, noises and rates of change by how well each
    predicts (``ModelAveraging``).

    Told nothing, the choices are the same when rewards are multiplied or shifted, or time is counted in another unit.
    A kernel or a noise variance that is told is used; members that do without it stay, so being wrong costs little.

    Args:
        kernel: None: not known; else as for the other recipes.
        noise_variance: None: not known; used with ``kernel`` only.
        prior_mean: used with ``kernel`` only.
        width: multiplies the mixture's standard deviation.
        share, behind: of ``FixedShare``.
        plausible: of ``ModelAveraging``.
    """
    features = arm_inputs.features_of(arms, None, None)
    if kernel is None:
        families = _unknown(features, 1.0, _LENGTHSCALES, _NOISES, _UNKNOWN_RATES)
    else:
        families = _told(features, kernel, noise_variance)
        families += _unknown(features, 1 - _TOLD, _FEW_LENGTHSCALES, _FEW_NOISES, _FEW_RATES)
    return _policy(
        features,
        families,
        prior_mean,
        replicates,
        {"width": width, "plausible": plausible},
        {"share": share, "behind": behind},
    )


def _told(features: Tensor, kernel: Kernel | Tensor, noise_variance: Number | None) -> list[_Family]:
    """Members over the kernel told, and over it with an independent part for each arm."""
    with torch.no_grad():
        K = arm_arguments.kernel_over(features, kernel)(features).to_dense()
    s = float(K.diagonal().mean())
    one = torch.eye(len(K), dtype=K.dtype, device=K.device)
    noises = [s * features.new_tensor(share) for share in _NOISES]
    if noise_variance is not None:
        told = arm_arguments.noise_over(features, noise_variance)
        noises = [times * told for times in _TOLD_NOISES]
    return [_Family(K + part * s * one, noises, RATES, _TOLD * weight, True) for part, weight in _PARTS]


def _unknown(
    features: Tensor,
    weight: float,
    lengthscales: Sequence[float],
    noises: Sequence[float],
    rates: Sequence[float],
) -> list[_Family]:
    """Members that know the arms' features alone, or nothing; about the first reward, hence the constant part."""
    n = features.shape[-2]
    one = torch.eye(n, dtype=features.dtype, device=features.device)
    shapes = [one]
    x = _spread(features)
    if x is not None:
        smooth = [_matern(x, scale * math.sqrt(x.shape[-1])) for scale in lengthscales]
        shapes += [*smooth, (smooth[len(smooth) // 2] + one) / 2]
    ratios = [features.new_tensor(share) for share in noises]
    return [_Family(K + 1.0, ratios, rates, weight / len(shapes), False) for K in shapes]


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
    mean = validation.numbers("prior_mean", prior_mean, features).expand(features.shape[-2])
    model = ArmMembers(
        features,
        torch.stack([family.covariance for family in families]),
        torch.tensor(kernel, device=features.device),
        torch.stack([value.expand(replicates) for value in noise], -1),
        features.new_tensor(rate),
        prior_mean=torch.where(believes.unsqueeze(-1), mean, 0.0),
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


def _matern(x: Tensor, lengthscale: float) -> Tensor:
    """Matern 5/2 covariance."""
    r = math.sqrt(5) * torch.cdist(x, x) / lengthscale
    return (1 + r + r.square() / 3) * (-r).exp()
