"""The maximum of an acquisition function over a domain: by BoTorch's ``optimize_acqf``, or over a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf
from torch import Tensor

from bandits_torch import validation
from bandits_torch.domain import Domain
from bandits_torch.models.online_model import with_time

# Values with a smaller spread are scaled up, because the optimisers stop at gradients of 1e-5.
_FLAT = 0.01
_ROUNDING = 1e-9  # times the largest value: a smaller spread is due to rounding


@validation.names_arguments
@dataclass(frozen=True)
class PointSearch:
    """How an acquisition is maximised: local searches (L-BFGS-B) from warm starts and from the best raw samples.

    Attributes:
        num_restarts: local searches per replicate, warm starts included; at least one more than the warm starts.
        raw_samples: Sobol points evaluated to find starts.
        warm_start: whether a search also starts at the previous step's optimum.
        options: options of ``optimize_acqf``, such as ``{"maxiter": 50, "factr": 1e10}``.
        initial: number of Sobol points played first, whatever the acquisition: a design to learn hyperparameters from.

    Raises ValueError unless ``num_restarts`` and ``raw_samples`` are integers >= 1, with ``raw_samples`` >=
    ``num_restarts``, ``initial`` an integer >= 0, ``warm_start`` a truth value and ``options`` a mapping.
    """

    num_restarts: int = 4
    raw_samples: int = 64
    warm_start: bool = True
    options: Mapping[str, Any] = field(default_factory=lambda: {"maxiter": 50})
    initial: int = 0

    def __post_init__(self) -> None:
        validation.positive_integer("num_restarts", self.num_restarts)
        validation.positive_integer("raw_samples", self.raw_samples)
        enough = self.raw_samples >= self.num_restarts
        validation.require(enough, "raw_samples", self.raw_samples, f"at least {self.num_restarts} restarts")
        validation.natural("initial", self.initial)
        validation.instance("options", self.options, Mapping, "a mapping, the options of optimize_acqf")
        validation.instance("warm_start", self.warm_start, bool, "True or False")

    def at_step(self, step: int) -> PointSearch:
        """The search of step 1, 2, ...; by default the same at every step."""
        return self

    @property
    def rounds_to(self) -> Any:
        """Equal for searches with the same ``values``; None if every point may be played."""
        return None

    def values(self, X: Tensor) -> Tensor:
        """The nearest points ``... x d`` that may be played; by default every point may."""
        return X

    def inward(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Ends (S, d) of the box of points whose ``values`` lie between ``low`` and ``high``."""
        return low, high

    def opening(self, domain: Domain, step: int, replicates: int, seed: int) -> Tensor | None:
        """Points (S, d) of the initial design after ``step`` others, equal in all replicates; None after the last."""
        if step >= self.initial:
            return None
        return domain.fix(self.values(domain.samples(self.initial, seed, replicates)[step]))

    def maximise(
        self,
        acquisition: AcquisitionFunction,
        domain: Domain,
        *,
        replicates: int = 1,
        time: float | None = None,
        starts: Tensor | None = None,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """argmax over x in the domain of acquisition([x, time]), separately for each replicate.

        All local searches of all replicates advance together, with one batched evaluation per iteration. Each has a
        separate L-BFGS-B state, so a replicate's optimum does not depend on the others. (With inequality constraints
        BoTorch runs SLSQP, and one search at a time for several replicates.)

        Args:
            acquisition: over a model of batch shape (S,), or () for S = 1; values ``t_batch x S`` of inputs
                ``t_batch x S x 1 x D``, or ``t_batch`` of ``t_batch x 1 x D``.
            domain: the domain of x, its d columns.
            replicates: S.
            time: value of the last input column, a fixed feature; None if inputs have no such column.
            starts: (S, w, d) warm starts; those outside the domain are ignored.
            seed: seed of the raw samples, which all replicates share.

        Returns:
            Points (S, d) and values (S,).
        """
        box = domain.bounds
        if box.dim() == 2:
            box = box.unsqueeze(1).expand(2, replicates, -1)
        inside = _InBoxes(acquisition, *box)
        unit = inside.unit(domain)
        if starts is not None:
            starts = inside.to_unit(starts.transpose(0, 1)).transpose(0, 1)
        fixed: dict[int, float | Tensor] = dict(unit.fixed_features)
        bounds = unit.wide_bounds
        if time is not None:
            bounds = with_time(bounds, time)
            fixed[unit.dim] = time
        begin, inside.factor = self._starts(inside, unit, time, starts, seed)  # R x S x D, (S,)
        rounds = begin.shape[0]
        begin = begin.reshape(-1, 1, begin.shape[-1])
        fixed = {i: v.repeat(rounds) if Domain.differs(v) else v for i, v in fixed.items()}
        options = dict(self.options)
        if unit.inequality_constraints:
            options.pop("factr", None)  # an option of L-BFGS-B, unknown to SLSQP
        if replicates > 1:
            member = torch.arange(replicates, dtype=bounds.dtype, device=bounds.device).repeat(rounds)
            fixed[bounds.shape[-1]] = member
            bounds = torch.cat([bounds, bounds.new_tensor([[0.0], [replicates - 1.0]])], -1)
            begin = torch.cat([begin, member.reshape(-1, 1, 1)], -1)
            if unit.inequality_constraints:
                options["max_optimization_problem_aggregation_size"] = 1
        with validation.gradients():
            X, found = optimize_acqf(
                inside,
                bounds,
                q=1,
                num_restarts=len(begin),
                batch_initial_conditions=begin,
                fixed_features=fixed or None,
                inequality_constraints=list(unit.inequality_constraints) or None,
                options=options,
                return_best_only=False,
                retry_on_optimization_warning=False,
            )
        lowest = torch.finfo(box.dtype).min
        best = cast(Tensor, found).nan_to_num(nan=lowest, neginf=lowest).reshape(rounds, -1).max(0)
        points = X[:, 0, : domain.dim].reshape(rounds, replicates, -1).to(box)
        each = torch.arange(replicates, device=points.device)
        return domain.fix(inside.from_unit(points[best.indices, each])), best.values / inside.factor

    @staticmethod
    def score(acquisition: AcquisitionFunction, X: Tensor, *, time: float | None = None) -> Tensor:
        """Values (n, S) of points (n, S, d), those of column s for replicate s; see ``maximise``."""
        X = _with_time(X, time)
        return acquisition(X.unsqueeze(-2) if acquisition.model.batch_shape else X).reshape(len(X), -1)

    def _starts(
        self, inside: _InBoxes, domain: Domain, time: float | None, starts: Tensor | None, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Starts of the searches, R x S x D: the warm starts, then the best raw samples. And a factor for each
        replicate's values, (S,): above 1 if values of its raw samples differ by less than ``_FLAT``."""
        raw = _with_time(domain.samples(self.raw_samples, seed, len(inside.low)), time)  # n x S x d
        warm = raw[:0]
        if starts is not None and self.warm_start:
            warm = _with_time(domain.fix(starts.movedim(1, 0)), time)
        with torch.no_grad():
            values = inside.grid(raw).nan_to_num(nan=-torch.inf)
        order = values.topk(self.num_restarts, dim=0).indices
        best = raw.gather(0, order.unsqueeze(-1).expand(*order.shape, raw.shape[-1]))
        spread = values.amax(0) - values.masked_fill(values.isinf(), torch.inf).amin(0)
        differ = spread > _ROUNDING * values.abs().amax(0)
        factor = torch.where(differ & (spread < _FLAT), 1 / spread, 1.0)
        if not len(warm):
            return best, factor
        outside = ~domain.contains(warm[..., : domain.dim])
        low, high = domain.bounds
        warm[..., : domain.dim] = warm[..., : domain.dim].clamp(low, high)  # against rounding
        spare = best[-1:].expand_as(warm)
        warm = torch.where(outside.unsqueeze(-1), spare, warm)
        return torch.cat([warm, best])[: max(self.num_restarts, len(warm) + 1)], factor


class _InBoxes(AcquisitionFunction):
    """An acquisition over the unit cube, which is scaled to each replicate's box, times the replicate's ``factor``
    (S,). If there are several replicates, the last column of X is the replicate's index."""

    factor: Tensor

    def __init__(self, acquisition: AcquisitionFunction, low: Tensor, high: Tensor) -> None:
        """``low``, ``high``: (S, d)."""
        super().__init__(model=acquisition.model)
        self.acquisition = acquisition
        self.low, self.high, self.side = low, high, torch.where(high > low, high - low, 1.0)

    def unit(self, domain: Domain) -> Domain:
        """``domain``, whose boxes these are, in coordinates of the unit cube."""
        there = self.to_unit(domain.fix(self.low.clone()))
        fixed = {
            i: there[:, i] if bool((there[:, i] != there[0, i]).any()) else float(there[0, i])
            for i in domain.fixed_features
        }
        low, side = self.low[0], self.side[0]  # a domain with constraints has the same box in all replicates
        constraints = [(i, c * side[i], rhs - float(c @ low[i])) for i, c, rhs in domain.scaled_constraints]
        bounds = torch.stack([torch.zeros_like(low), torch.ones_like(low)])
        return Domain(bounds, constraints, fixed)

    def to_unit(self, X: Tensor) -> Tensor:
        return (X - self.low) / self.side

    def from_unit(self, X: Tensor) -> Tensor:
        return torch.minimum(self.low + self.side * X, self.high)

    def grid(self, X: Tensor) -> Tensor:
        """Values n x S of points n x S x D, column s for replicate s; columns after the first d are not scaled."""
        d = self.low.shape[-1]
        X = torch.cat([self.low + self.side * X[..., :d], X[..., d:]], -1)
        return PointSearch.score(self.acquisition, X)

    def forward(self, X: Tensor) -> Tensor:
        """Values b of X, b x 1 x (D + 1), or b x 1 x D of one replicate."""
        zero = 0.0 * X.sum((-2, -1))  # gives a gradient of 0 if the values do not depend on X
        replicates = len(self.low)
        if replicates == 1:
            return self.grid(X).squeeze(-1) * self.factor + zero
        points, member = X[:, 0, :-1], X[:, 0, -1].long()
        one_hot = member.unsqueeze(-1) == torch.arange(replicates, device=X.device)
        # The number of each point among those of its replicate. Replicates with fewer points are filled up.
        rank = one_hot.cumsum(0).gather(-1, member.unsqueeze(-1)).squeeze(-1) - 1
        filler = points[:1].detach().expand(int(rank.max()) + 1, replicates, -1)
        return self.grid(filler.index_put((rank, member), points))[rank, member] * self.factor[member] + zero


def _with_time(X: Tensor, time: float | None) -> Tensor:
    return X if time is None else with_time(X, time)


_MOST = 1_000_000  # points of D_T
_AT_ONCE = 1 << 14  # points evaluated together


@validation.names_arguments
@dataclass(frozen=True)
class GridSearch(PointSearch):
    """The maximum over the finite decision set D_t of GP-TS. Every x of the box has a point [x]_t of D_t with

        |f(x) - f([x]_t)| <= sum_j B L_j |x_j - [x_j]_t| <= 1 / t^2,

    for f of RKHS norm at most B and L_j the largest standard deviation of its partial derivative along x_j under the
    kernel (Chowdhury & Gopalan 2017, equation 7, which their Theorem 4 for GP-TS uses, with one L for all coordinates).
    Side j, of length r_j, is cut into ceil(B L_j r_j d t^2 / 2) cells with a point of D_t in the middle of each: half
    as many as the paper's B L r d t^2, and independent of the unit of x_j. After step ``until`` D_t no longer changes,
    and the theorem does not apply.

    Attributes:
        lipschitz: B L_j of each coordinate, or one number for all.
        until: T, the last step at which D_t changes.
        step: t.

    Cost of a step: |D_t| evaluations, 16 384 at once; |D_t| grows as t^{2d}.

    Raises ValueError for a ``lipschitz`` that is not finite and >= 0 and an ``until`` or ``step`` below 1; and, when a
    domain is searched, for constraints, another number of coordinates and a D_T of more than a million points.
    """

    lipschitz: float | Sequence[float] = 1.0
    until: int = 1
    step: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in self._per_coordinate():
            validation.non_negative("lipschitz", one)
        validation.positive_integer("until", self.until)
        validation.positive_integer("step", self.step)

    def at_step(self, step: int) -> GridSearch:
        return replace(self, step=step)

    def check(self, domain: Domain) -> None:
        """Raise ValueError for a domain with constraints, of the wrong dimension, or with too large a D_T."""
        validation.require(domain.bounds.dim() == 2, "bounds", domain.bounds, "(2, d) with a grid")
        none = not domain.inequality_constraints
        validation.require(none, "inequality_constraints", domain.inequality_constraints, "none with a grid")
        given = len(self._per_coordinate())
        validation.require(
            given in (1, domain.dim), "lipschitz", self.lipschitz, f"1 or {domain.dim} numbers"
        )
        cells = self._cells(domain, self.until)
        size, sides = math.prod(cells), " x ".join(str(n) for n in cells)
        expected = f"small enough that D_T has at most {_MOST} points: here it has {sides} = {size}"
        validation.require(size <= _MOST, "grid_until", self.until, expected)

    def points(self, domain: Domain) -> Tensor:
        """D_t, (n, d)."""
        low, high = domain.bounds
        middles = [
            a + (b - a) * (torch.arange(n, dtype=low.dtype, device=low.device) + 0.5) / n
            for a, b, n in zip(low, high, self._cells(domain, min(self.step, self.until)), strict=True)
        ]
        return torch.cartesian_prod(*middles).reshape(-1, domain.dim)

    def _per_coordinate(self) -> Sequence[float]:
        return self.lipschitz if isinstance(self.lipschitz, Sequence) else [self.lipschitz]

    def _cells(self, domain: Domain, step: int) -> list[int]:
        changes = (domain.bounds[1] - domain.bounds[0]) * domain.bounds.new_tensor(self._per_coordinate())
        return [
            1 if j in domain.fixed_features else max(1, math.ceil(change * domain.dim * step**2 / 2))
            for j, change in enumerate(changes.tolist())
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
        """As ``PointSearch.maximise``, over D_t; starts and seed are ignored."""
        self.check(domain)
        each = torch.arange(replicates, device=domain.bounds.device)
        best_points, best_values = [], []
        with torch.no_grad():
            for part in self.points(domain).split(_AT_ONCE):
                points = domain.fix(part.unsqueeze(1).repeat(1, replicates, 1))
                values, at = self.score(acquisition, points, time=time).max(0)
                best_points.append(points[at, each])
                best_values.append(values)
        values, part_of = torch.stack(best_values).max(0)
        return torch.stack(best_points)[part_of, each], values


class LoweredEnds(AcquisitionFunction):
    """a(x, t) - c mean_j (2 z_j - 1)^2, with z the point x scaled from the box to the unit cube.

    The ends of a box are expected to be worse than its middle, because a range is usually chosen to contain the best
    point. An upper confidence bound alone starts at the 2^d corners, where uncertainty is largest. Siivola et al. 2018
    and Oh, Gavves & Welling 2018 describe the problem; the quadratic prior mean is our simpler remedy.

    Args:
        acquisition: a, over [x, time].
        bounds: (2, d), the box.
        loss: c >= 0, in the units of a: the loss expected at a corner.

    Called with the same X as a.
    """

    def __init__(self, acquisition: AcquisitionFunction, bounds: Tensor, loss: float) -> None:
        super().__init__(model=acquisition.model)
        self.acquisition, self.loss = acquisition, loss
        low, high = bounds
        self._middle = (low + high) / 2
        self._half = torch.where(high > low, (high - low) / 2, 1.0)

    def forward(self, X: Tensor) -> Tensor:
        offset = (X[..., 0, :-1] - self._middle) / self._half
        return self.acquisition(X) - self.loss * offset.square().mean(-1)
