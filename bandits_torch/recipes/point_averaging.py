"""``auto`` over the points of a domain: told nothing but where points may be played."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.points.point_members import PointMembers
from bandits_torch.policies.point_averaging import PointAveraging

_RATES = (0.0, 0.01, 0.05, 0.3)  # per typical gap between observations
_TIMESCALES = (10.0, 30.0, 100.0)  # in typical gaps
_LENGTHSCALES = (0.2, 0.6)  # of the unit cube, times sqrt(d)
_NOISE = 0.02  # share of the variance of the function


def auto_over_points(
    domain: Domain,
    kernel: Kernel | None = None,
    noise_variance: float | Tensor | None = None,
    *,
    replicates: int = 1,
    width: float = 1.0,
    capacity: int = 200,
    search: PointSearch | Mapping[str, Any] | None = None,
    seed: int = 0,
    kind: type[PointAveraging] = PointAveraging,
    **options: Any,
) -> PointAveraging:
    """``PointAveraging`` over seven kernels over time, without change to fast and smooth, times two length-scales.

    Args:
        kernel: None: not known; else squared exponential or Matern, whose length-scales are those at which the second
            half of the members begins. All adapt.
        noise_variance: given only with ``kernel``, over whose variance it is the noise at which that half begins.
        replicates: S.
        width, search, seed: of ``PointAveraging``.
        capacity: of ``PointMembers``.
        kind: the class of the policy, a kind of ``PointAveraging``.
        options: others of ``PointAveraging``.

    Raises ValueError for another kernel, and a noise variance without one.
    """
    over_time = [(rate, math.inf) for rate in _RATES] + [(0.0, scale) for scale in _TIMESCALES]
    number = domain.bounds.double().new_tensor
    rate, timescale = number(over_time).repeat(2, 1).T
    short, long = (number([times * math.sqrt(domain.dim)] * domain.dim) for times in _LENGTHSCALES)
    noise = [_NOISE, _NOISE]
    if kernel is not None:
        long, noise[1] = _told(domain, kernel, noise_variance)
    else:
        validation.require(noise_variance is None, "noise_variance", noise_variance, "None without a kernel")
    members = PointMembers(
        domain.bounds,
        torch.stack([short, long]).repeat_interleave(len(over_time), 0),
        number(noise).repeat_interleave(len(over_time)),
        rate,
        timescale,
        replicates=replicates,
        capacity=capacity,
    )
    if isinstance(search, Mapping):
        search = PointSearch(**search)
    return kind(domain, members, width=width, search=search, seed=seed, **options)


def _told(domain: Domain, kernel: Kernel, noise_variance: float | Tensor | None) -> tuple[Tensor, float]:
    """Length-scales of the unit cube, (d,), and noise variance over the function's."""
    base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    expected = "squared exponential or Matern, over points"
    validation.instance("kernel", base, (RBFKernel, MaternKernel), expected)
    lengthscale = base.lengthscale.detach().reshape(-1).to(domain.bounds)
    fits = len(lengthscale) in (1, domain.dim)
    validation.shape_is("kernel.lengthscale", lengthscale, fits, f"(1,) or ({domain.dim},)")
    low, high = domain.bounds
    side = torch.where(high > low, high - low, 1.0)
    if noise_variance is None:
        return (lengthscale / side).double(), _NOISE
    noise = validation.numbers("noise_variance", noise_variance, side).mean()
    validation.require(
        bool(noise.isfinite() & (noise > 0)), "noise_variance", noise_variance, "finite and > 0"
    )
    variance = kernel.outputscale.detach().mean() if isinstance(kernel, ScaleKernel) else 1.0
    return (lengthscale / side).double(), float(noise / variance)
