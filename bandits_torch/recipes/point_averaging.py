"""``auto`` over the points of a domain: it needs to know only where points may be played."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.points.point_members import PointMembers, WideningMembers
from bandits_torch.policies.averaging import ContextAveraging
from bandits_torch.policies.point_averaging import PointAveraging

_RATES = (0.0, 0.01, 0.05, 0.3)  # per typical gap between observations
_TIMESCALES = (10.0, 30.0, 100.0)  # in typical gaps
_LENGTHSCALES = (0.2, 0.6)  # of the unit cube, times sqrt(d)
_NOISE = 0.02  # share of the variance of the function
_TOLD = 0.5  # given length-scales, of the box in which members then count
_IGNORED = 10.0  # the length-scale of a context that hardly matters, of its range


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
        kernel: None: not known; else squared exponential or Matern. The second half of the members begins with its
            length-scales. All adapt.
        noise_variance: given only with ``kernel``. That half begins with it, divided by the kernel's variance.
        replicates: S.
        width, search, seed: of ``PointAveraging``.
        capacity: of ``PointMembers``.
        kind: the class of the policy, a kind of ``PointAveraging``.
        options: others of ``PointAveraging``.

    Raises ValueError for another kernel, and a noise variance without one.
    """
    scales = [[times * math.sqrt(domain.dim)] * domain.dim for times in _LENGTHSCALES]
    lengthscales, noises = domain.bounds.double().new_tensor(scales), [_NOISE] * len(scales)
    if kernel is not None:
        lengthscales[1], noises[1] = _told(domain, kernel, noise_variance)
    else:
        validation.require(noise_variance is None, "noise_variance", noise_variance, "None without a kernel")
    grid = _over_time(lengthscales, noises)
    members = PointMembers(domain.bounds, *grid, replicates=replicates, capacity=capacity)
    if isinstance(search, Mapping):
        search = PointSearch(**search)
    return kind(domain, members, width=width, search=search, seed=seed, **options)


def _over_time(lengthscales: Tensor, noises: list[float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Length-scales (P, d), noise variances, rates and time-scales (P,) of members: for each of these length-scales
    (L, d) and noises one for each kernel over time."""
    over_time = [(rate, math.inf) for rate in _RATES] + [(0.0, scale) for scale in _TIMESCALES]
    rate, timescale = lengthscales.new_tensor(over_time).repeat(len(noises), 1).T
    noise = lengthscales.new_tensor(noises)
    return *(value.repeat_interleave(len(over_time), 0) for value in (lengthscales, noise)), rate, timescale


def auto_under_contexts(
    arms: Tensor,
    context_dim: int,
    kernel: Kernel | None = None,
    noise_variance: float | Tensor | None = None,
    context_kernel: Kernel | None = None,
    *,
    matters: Sequence[int] | None = None,
    first: int | None = None,
    replicates: int = 1,
    width: float = 1.0,
    capacity: int = 200,
    **options: Any,
) -> ContextAveraging:
    """``PointAveraging`` over the features of N arms, (N, d), joined with a context of ``context_dim`` numbers.

    Length-scales begin as shares of the ranges observed for features and contexts (``WideningMembers``). A third of the
    members begins with contexts that hardly matter. All adapt, the length-scale of each input by itself, so the policy
    learns which inputs matter. Arms without features have an input each, 1 for that arm.

    ``kernel``, ``context_kernel``: both or neither, as for ``auto_over_points``, each over its own inputs. ``matters``:
    the columns of the context that are used (None: all). ``first``: the number of arms (None: all) whose features
    determine the range.
    """
    n, d = arms.shape
    columns = list(range(context_dim) if matters is None else matters)
    counts = arms[:, 0] == torch.arange(n, device=arms.device) if d == 1 else arms.new_zeros(n).bool()
    counted = bool(counts.all())
    goes_on = counted or not bool(counts[:first].all())
    validation.require(goes_on, "features", arms[first:], "numbers that go on counting, as the first do")
    rows = torch.eye(n, dtype=torch.float64, device=arms.device) if counted else arms.double()
    d, c = rows.shape[-1], len(columns)
    bounds, known = rows.new_tensor([[0.0], [1.0]]).repeat(1, d + c), torch.arange(d + c) < d
    low, high = rows[:first].amin(0), rows[:first].amax(0)
    bounds[:, :d] = torch.stack([low, torch.where(high > low, high, low + 1)])
    root = math.sqrt((1 if counted else d) + c)
    scales, noises = [times * root for times in _LENGTHSCALES], [_NOISE] * 3
    if kernel is not None and context_kernel is not None:
        validation.require(
            not counted, "kernel", kernel, "None for arms without features, or contexts listed"
        )
        of_arms, noise = _told(_unit_box(d), kernel, noise_variance)
        of_context, _ = _told(_unit_box(context_dim), context_kernel, None)
        length = torch.cat([of_arms.expand(d), of_context.expand(context_dim)[columns]]).to(rows)
        bounds, known = torch.stack([0 * length, length / _TOLD]), known | True
        scales, noises = [_TOLD / 3, _TOLD], [_NOISE, noise, noise]
    lengthscales = rows.new_tensor([*scales, scales[-1]]).unsqueeze(-1).repeat(1, d + c)
    lengthscales[-1, d:] = _IGNORED
    if counted:  # arms that are added later have the last columns
        order = [*range(d, d + c), *range(d)]
        bounds, known, lengthscales = bounds[:, order], known[order], lengthscales[:, order]
    grid = _over_time(lengthscales, noises)
    members = WideningMembers(known.to(rows.device), bounds, *grid, replicates=replicates, capacity=capacity)
    policy = PointAveraging(Domain(bounds), members, width=width, ends=0.0, **options)
    return ContextAveraging(policy, arms.double(), context_dim, columns, counted=counted)


def _unit_box(dim: int) -> Domain:
    return Domain(torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(1, dim))


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
