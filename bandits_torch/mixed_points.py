"""Named settings as points of the unit cube: ranges, logarithmic ranges, discrete steps and unordered choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor
from torch.nn.functional import one_hot

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.policies.policy import Observation, Pending, Policy
from bandits_torch.policies.wrapping import StandardisedPolicy

_Values = Mapping[str, float]  # by the name of the setting
_CLIMBS = 20  # largest number of moves to a neighbour


@dataclass(frozen=True)
class Axis:
    """One setting: a column of the unit cube, or a column for each of its choices.

    Attributes:
        low, high: ends of the range, low < high.
        log: whether the column is linear in the logarithm, for low > 0.
        step: distance of neighbouring values low, low + step, ..., high; None: all numbers. Without ``log`` each value
            has an equal share of the column.
        choices: number of unordered values 0, 1, ... instead of a range, with a column for each (one-hot).
    """

    low: float = 0.0
    high: float = 1.0
    log: bool = False
    step: float | None = None
    choices: int = 0

    def __post_init__(self) -> None:
        if self.choices:
            return
        fits = math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high
        validation.require(fits, "low, high", (self.low, self.high), "finite, increasing")
        validation.require(not self.log or self.low > 0, "low", self.low, "> 0 for a logarithm")
        if self.step is not None:
            validation.positive("step", self.step)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.choices or 1

    @property
    def discrete(self) -> bool:
        """Whether the setting has finitely many values."""
        return self.choices > 0 or self.step is not None

    @property
    def ends(self) -> tuple[float, float]:
        """The numbers at 0 and 1 of the column, half a step beyond the range; with ``log`` their logarithms."""
        half = 0.5 * (self.step or 0.0)
        low, high = self.low - half, self.high + half
        if not self.log:
            return low, high
        return math.log(low if low > 0 else 0.5 * self.low), math.log(high)

    def to_unit(self, x: Tensor) -> Tensor:
        """Numbers of the range as places in the column."""
        low, high = self.ends
        return ((x.log() if self.log else x) - low) / (high - low)

    def from_unit(self, u: Tensor) -> Tensor:
        """The values nearest to places in the column."""
        low, high = self.ends
        x = low + u * (high - low)
        return self.nearest(x.exp() if self.log else x)

    def nearest(self, x: Tensor) -> Tensor:
        """The values nearest to numbers."""
        if self.step is not None:
            x = self.low + ((x - self.low) / self.step).round() * self.step
        return x.clamp(self.low, self.high)

    def has(self, value: float) -> bool:
        """Whether a number has a place in the columns: it is finite, and above 0 for a logarithm."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def encode(self, value: float) -> Tensor:
        """The columns (columns,) of a value; zeros for an unknown choice."""
        if self.choices:
            return (torch.arange(self.choices) == value).double()
        return self.to_unit(torch.tensor([value], dtype=torch.float64))

    def decode(self, u: Tensor) -> float:
        """The value at columns (columns,)."""
        return float(u.argmax()) if self.choices else float(self.from_unit(u))

    def snap(self, U: Tensor) -> Tensor:
        """The columns ``... x columns`` of the nearest values."""
        if self.choices:
            return one_hot(U.argmax(-1), self.choices).to(U)
        return U if self.step is None else self.to_unit(self.from_unit(U))

    def inward(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Ends (S, columns) of the part of the columns whose nearest values lie between ``low`` and ``high``."""
        if self.step is None:
            return low, high
        first, last = self.ends
        least, most = (first + u.clamp(0.0, 1.0) * (last - first) for u in (low, high))
        if self.log:
            least, most = least.exp(), most.exp()
        tight, near = 1e-6, 0.4 * self.step
        least = self.low + ((least - self.low) / self.step - tight).ceil() * self.step - near
        most = self.low + ((most - self.low) / self.step + tight).floor() * self.step + near
        return self.to_unit(least.clamp_min(0.5 * self.low) if self.log else least), self.to_unit(most)

    def moves(self, U: Tensor) -> list[Tensor]:
        """The columns (S, columns) after each move: a step down or up, but not beyond the ends, or to each choice."""
        if self.choices:
            return [unit.expand_as(U) for unit in torch.eye(self.choices).to(U)]
        if self.step is None:
            return []
        x = self.from_unit(U)
        return [self.to_unit((x + sign * self.step).clamp(self.low, self.high)) for sign in (-1, 1)]


class Space:
    """Named settings, side by side in the unit cube.

    Args:
        axes: by name, in order; at least one.

    Raises ValueError if there is none.
    """

    def __init__(self, axes: Mapping[str, Axis]) -> None:
        validation.require(len(axes) > 0, "axes", axes, "at least one")
        self.axes = dict(axes)
        ends = torch.tensor([axis.columns for axis in self.axes.values()]).cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        self.columns = {name: slice(a, b) for name, a, b in zip(self.axes, starts, ends, strict=True)}
        self.dim = ends[-1]

    @property
    def discrete(self) -> list[str]:
        """Names of the discrete axes."""
        return [name for name, axis in self.axes.items() if axis.discrete]

    @property
    def rounds_to(self) -> dict[str, Axis] | None:
        """The axes to whose values points are rounded; None if none is discrete."""
        return self.axes if self.discrete else None

    def domain(
        self,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        fixed: Mapping[str, float] | None = None,
    ) -> Domain:
        """The unit cube as a ``Domain``, with narrower ``ranges`` and ``fixed`` values by name."""
        bounds = torch.stack([torch.zeros(self.dim), torch.ones(self.dim)]).double()
        for name, (low, high) in (ranges or {}).items():
            axis, place = self.axes[name], self.columns[name]
            near = 0.49 * (axis.step or 0.0)  # half a step may be rounded to a value outside the range
            least = max(low - near, 0.5 * low) if axis.log else low - near
            ends = axis.to_unit(torch.tensor([least, high + near], dtype=torch.float64)).clamp(0.0, 1.0)
            if low > axis.low:
                bounds[0, place] = ends[0]
            if high < axis.high:
                bounds[1, place] = ends[1]
        features: dict[int, float] = {}
        for name, given in (fixed or {}).items():
            at = range(self.dim)[self.columns[name]]
            features |= dict(zip(at, self.axes[name].encode(given).tolist(), strict=True))
        return Domain(bounds, fixed_features=features)

    def encode(self, values: Mapping[str, float]) -> Tensor:
        """The point (d,) of values by name.

        A missing value, and one without a place (``Axis.has``), lies in the middle of its range or of all choices.
        """
        parts = []
        for name, axis in self.axes.items():
            if axis.has(values.get(name, math.nan)):
                parts.append(axis.encode(values[name]))
            else:
                parts.append(torch.full((axis.columns,), 1 / axis.choices if axis.choices else 0.5).double())
        return torch.cat(parts)

    def decode(self, point: Tensor) -> dict[str, float]:
        """The values of a point (d,) by name."""
        return {name: axis.decode(point[self.columns[name]]) for name, axis in self.axes.items()}

    def snap(self, X: Tensor) -> Tensor:
        """The nearest points ``... x d`` at which all settings have values."""
        return torch.cat([axis.snap(X[..., self.columns[name]]) for name, axis in self.axes.items()], -1)

    def inward(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Ends (S, d) of the box whose nearest values lie between ``low`` and ``high``."""
        places = zip(self.axes.values(), self.columns.values(), strict=True)
        ends = zip(*(axis.inward(low[..., at], high[..., at]) for axis, at in places), strict=True)
        least, most = (torch.cat(one, -1) for one in ends)
        return least, most

    def neighbours(self, X: Tensor) -> Tensor:
        """Points (m, S, d) that differ from X (S, d) by one step or by the choice of one setting."""
        found = []
        for name, axis in self.axes.items():
            for moved in axis.moves(X[..., self.columns[name]]):
                other = X.clone()
                other[..., self.columns[name]] = moved
                found.append(other)
        return torch.stack(found)


@dataclass(frozen=True)
class MixedSearch(PointSearch):
    """``PointSearch`` over the points of a ``Space`` at which all settings have values.

    The optimum over the whole cube and the raw samples are rounded to values. From the best of them, up to 20 moves of
    one step or one choice lead to better points. Then the continuous columns are searched with the others fixed.

    Attributes:
        space: the space of the points.

    Cost: two searches (under constraints one more for each replicate after the first), and an evaluation of every
    neighbour for each move.
    """

    space: Space = field(default_factory=lambda: Space({"x": Axis()}))

    @property
    def rounds_to(self) -> dict[str, Axis] | None:
        """See ``Space``."""
        return self.space.rounds_to

    def values(self, X: Tensor) -> Tensor:
        """See ``Space.snap``."""
        return self.space.snap(X)

    def inward(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Space.inward``."""
        return self.space.inward(low, high)

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
        """See ``PointSearch``; all settings have values at the points."""
        about: dict[str, Any] = {"replicates": replicates, "time": time}
        points, values = super().maximise(acquisition, domain, **about, starts=starts, seed=seed)
        discrete = self.space.discrete
        if not discrete:
            return points, values

        def best(X: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                found = self.score(acquisition, X, time=time).nan_to_num(nan=-torch.inf)
            values, first = torch.where(domain.contains(X), found, -torch.inf).max(0)
            return X[first, torch.arange(replicates, device=X.device)], values

        raw = domain.samples(self.raw_samples, seed, replicates)
        points, values = best(domain.fix(self.space.snap(torch.cat([points.unsqueeze(0), raw]))))
        for _ in range(_CLIMBS):
            moved, better = best(domain.fix(torch.cat([points.unsqueeze(0), self.space.neighbours(points)])))
            if not bool((better > values).any()):
                break
            points, values = moved, better
        columns = [k for name in discrete for k in range(self.space.dim)[self.space.columns[name]]]
        if len({*columns, *domain.fixed_features}) == self.space.dim:
            return points, values
        search, about = super().maximise, about | {"starts": points.unsqueeze(1), "seed": seed}

        def with_fixed(given: dict[int, Any]) -> tuple[Tensor, Tensor]:
            fixed = {**domain.fixed_features, **given}
            return search(acquisition, Domain(domain.bounds, domain.inequality_constraints, fixed), **about)

        if replicates > 1 and not domain.inequality_constraints:
            return with_fixed({k: points[:, k] for k in columns})
        # Under constraints all replicates must have the same fixed values: search with those of each in turn.
        each = [with_fixed({k: float(point[k]) for k in columns}) for point in points]
        every = range(replicates)
        return torch.stack([each[s][0][s] for s in every]), torch.stack([each[s][1][s] for s in every])


class SpacePolicy:
    """A policy over a space, made by ``build(domain, search=..., seed=...)``, that learns and chooses values by name.

    Args:
        initial: number of Sobol points played first; None: 2 (d + 1).
        standardise: whether the policy learns standardised rewards (``StandardisedPolicy``).

    Raises ValueError if ``build`` does not return a ``Policy``, or one of several replicates, over arms or another
    space, one whose points must not be rounded, and one that learns only points which it chose itself.
    """

    def __init__(
        self, space: Space, build: Callable[..., Policy], initial: int | None, seed: int, standardise: bool
    ) -> None:
        initial = 2 * (space.dim + 1) if initial is None else initial
        policy = build(space.domain(), search=MixedSearch(initial=initial, space=space), seed=seed)
        validation.instance("policy", policy, Policy, "a function that returns a Policy")
        fits = policy.replicates == 1 and policy.dim == space.dim
        expected = f"of one replicate over points of {space.dim} dimension(s)"
        validation.require(fits, "policy", policy, expected)
        policy.check_rounding(space.rounds_to)
        others = not getattr(policy.innermost, "needed", ())  # names in ``Choice.why`` that ``learn`` reads
        validation.require(others, "policy", policy, "one that learns points which it did not choose")
        self.space = space
        self.policy: Policy = StandardisedPolicy(policy) if standardise else policy

    def learn(self, time: float, values: _Values, reward: float) -> None:
        """Learn the reward of values; see ``Space.encode`` for those that are missing."""
        point = self.space.encode(values).unsqueeze(0)
        self.policy.learn(Observation(time, point, torch.tensor([reward], dtype=torch.float64)))

    def choose(
        self, time: float, pending: Iterable[_Values], fixed: _Values, ranges: Mapping[str, Any] | None = None
    ) -> _Values:
        """The next values, with some ``fixed`` and some in narrower ``ranges``, while others are ``pending``."""
        if fixed.keys() == self.space.axes.keys():  # nothing is left to choose
            return fixed
        waiting = [Pending(time, self.space.encode(values).unsqueeze(0)) for values in pending]
        (choice,) = self.policy.choose_many(time, 1, self.space.domain(ranges, fixed), waiting)
        return self.space.decode(choice.arm[0])
