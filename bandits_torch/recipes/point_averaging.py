"""``auto`` over the points of a domain: told nothing but where points may be played."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.models.point_members import PointMembers
from bandits_torch.policies.point_averaging import PointAveraging
from bandits_torch.recipes.parts import as_search

_RATES = (0.0, 0.01, 0.05, 0.3)  # per typical gap between observations
_TIMESCALES = (10.0, 30.0, 100.0)  # in typical gaps
_LENGTHSCALES = (0.2, 0.6)  # of the unit cube, times sqrt(d)
_NOISE = 0.02  # share of the variance of the function


def auto_over_points(
    domain: Domain,
    *,
    replicates: int = 1,
    width: float = 1.0,
    capacity: int = 200,
    search: PointSearch | Mapping[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> PointAveraging:
    """``PointAveraging`` over seven kernels over time, without change to fast and smooth, times two length-scales.

    Args:
        replicates: S.
        width, search, seed: of ``PointAveraging``.
        capacity: of ``PointMembers``.
        options: others of ``PointAveraging``.
    """
    over_time = [(rate, math.inf) for rate in _RATES] + [(0.0, scale) for scale in _TIMESCALES]
    rate, timescale, lengthscale = zip(*((*t, x) for t, x in product(over_time, _LENGTHSCALES)), strict=True)
    number = domain.bounds.double().new_tensor
    members = PointMembers(
        domain.bounds,
        number(lengthscale) * math.sqrt(domain.dim),
        number([_NOISE] * len(rate)),
        number(rate),
        number(timescale),
        replicates=replicates,
        capacity=capacity,
    )
    return PointAveraging(domain, members, width=width, search=as_search(search), seed=seed, **options)
