"""The best point of the finite decision sets D_t of GP-TS, in place of a search among all points."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain

_MOST = 1_000_000  # points of D_t
_AT_ONCE = 1 << 14


@validation.names_arguments
@dataclass(frozen=True)
class GridSearch(PointSearch):
    """The maximum over D_t, a grid such that every x of the box has a point [x]_t of D_t with

        |f(x) - f([x]_t)| <= B L ||x - [x]_t||_1 <= 1 / t^2,

    f of RKHS norm at most B, L the largest standard deviation of a partial derivative under the kernel (Chowdhury &
    Gopalan 2017, equation 7, on which their Theorem 4 for GP-TS rests). Side j is cut into ceil(B L r_j d t^2 / 2)
    cells, r_j its length, with a point of D_t in the middle of each: half as many a side as the paper's B L r d t^2.
    After step ``until`` D_t stays as it is then, and the theorem says nothing.

    Attributes:
        lipschitz: B L.
        until: T, the last step t for which D_t is made.
        step: t.

    Cost of a step: |D_t| evaluations, 16 384 at once; |D_t| grows as t^{2d}.

    Raises ValueError for a ``lipschitz`` that is not a number > 0, an ``until`` or ``step`` below 1, and, when a domain
    is searched, for one with constraints or of which D_T has more than a million points.
    """

    lipschitz: float = 1.0
    until: int = 1
    step: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.positive("lipschitz", self.lipschitz)
        validation.positive_integer("until", self.until)
        validation.positive_integer("step", self.step)

    def at_step(self, step: int) -> GridSearch:
        """Over D_t of that step."""
        return replace(self, step=step)

    def check(self, domain: Domain) -> None:
        """Raise ValueError for a domain whose D_T is not to be made."""
        none = not domain.inequality_constraints
        validation.require(none, "inequality_constraints", domain.inequality_constraints, "none with a grid")
        size = math.prod(self._cells(domain, self.until))
        sides = " x ".join(str(n) for n in self._cells(domain, self.until))
        told = f"small enough that D_T has at most {_MOST} points: here it has {sides} = {size}"
        validation.require(size <= _MOST, "grid_until", self.until, told)

    def points(self, domain: Domain) -> Tensor:
        """D_t, (n, d)."""
        low, high = domain.bounds
        middles = [
            a + (b - a) * (torch.arange(n, dtype=low.dtype, device=low.device) + 0.5) / n
            for a, b, n in zip(low, high, self._cells(domain, min(self.step, self.until)), strict=True)
        ]
        return torch.cartesian_prod(*middles).reshape(-1, domain.dim)

    def _cells(self, domain: Domain, step: int) -> list[int]:
        sides = (domain.bounds[1] - domain.bounds[0]).tolist()
        per_length = self.lipschitz * domain.dim * step**2 / 2
        return [
            1 if j in domain.fixed_features else max(1, math.ceil(per_length * side))
            for j, side in enumerate(sides)
        ]

    def maximise(
        self,
        acquisition: AcquisitionFunction,
        domain: Domain,
        *,
        replicates: int = 1,
        time: float | None = None,
        **_search: Any,
    ) -> tuple[Tensor, Tensor]:
        """As ``PointSearch.maximise``, over D_t; starts and seed are not needed."""
        self.check(domain)
        grid, best = self.points(domain), None
        with torch.no_grad():
            for part in grid.split(_AT_ONCE):
                points = domain.fix(part.unsqueeze(1).repeat(1, replicates, 1))
                values, at = self.score(acquisition, points, replicates=replicates, time=time).max(0)
                chosen = points[at, torch.arange(replicates, device=at.device)]
                if best is None:
                    best = chosen, values
                else:
                    larger = values > best[1]
                    best = (
                        torch.where(larger.unsqueeze(-1), chosen, best[0]),
                        torch.where(larger, values, best[1]),
                    )
        assert best is not None
        return best
