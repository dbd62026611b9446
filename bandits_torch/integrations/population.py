"""Hyperparameter schedules for a population of training runs, independent of the tool that runs it.

The gains of the members are modelled as Gaussian processes over hyperparameters and time, which propose new values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.mixed_points import Axis, Space
from bandits_torch.models.points.member_posterior import MemberMixture, covariance, noisy
from bandits_torch.models.points.point_members import PointMembers


@dataclass(frozen=True)
class Range(Axis):
    """An axis whose column is 0 at ``low`` and 1 at ``high``. With a step, its values are the multiples of the step.

    Attributes:
        both: whether a model sees a logarithmic range also on a linear scale, and learns which scale matters.
    """

    both: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the range, on the scale of the column."""
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    def nearest(self, x: Tensor) -> Tensor:
        """The nearest values of the range."""
        if self.step is not None:
            least, most = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
            x = (x / self.step).round().clamp(least, most) * self.step
        return x.clamp(self.low, self.high)

    def linear(self, u: Tensor) -> Tensor:
        """Positions in [0, 1] on the linear scale, from positions on the logarithmic scale."""
        ratio = math.log(self.high / self.low)
        return torch.expm1(ratio * u) / math.expm1(ratio)

    def logarithmic(self, v: Tensor) -> Tensor:
        """The inverse of ``linear``."""
        ratio = math.log(self.high / self.low)
        return torch.log1p(v * math.expm1(ratio)) / ratio


class Ranges(Space):
    """A space of ``Range`` axes in D columns.

    Args:
        axes: by name, in order; at least one.
    """

    def __init__(self, axes: Mapping[str, Range]) -> None:
        super().__init__(axes)
        self._numbers = [self.columns[name].start for name, axis in axes.items() if not axis.choices]
        self._both = [(self.columns[name], axis) for name, axis in axes.items() if axis.both]

    def features(self, X: Tensor) -> Tensor:
        """Inputs of a model at points (n, D): their columns, and a linear one for each range on both scales."""
        return torch.cat([X, *(axis.linear(X[:, at]) for at, axis in self._both)], -1)

    def off_middle(self, X: Tensor) -> Tensor:
        """Squared distance of points (n, D) from the middle of the numeric ranges, (n,): the mean of (2 x_j - 1)^2.

        It is 0 in the middle of all ranges, 1 at the ends of all, and 0 if there are only categories.
        """
        if not self._numbers:
            return X.new_zeros(len(X))
        return (2 * X[:, self._numbers] - 1).square().mean(-1)

    def sample(self, n: int, seed: int) -> Tensor:
        """n scrambled Sobol points (n, D); in ranges on both scales every second is uniform on the linear scale."""
        X = SobolEngine(self.dim, scramble=True, seed=seed).draw(n, dtype=torch.float64)
        for at, axis in self._both:
            X[1::2, at] = axis.logarithmic(X[1::2, at])
        return X


_DRAWN = 32  # priors that are compared
_KEPT = 6  # priors that predict
_SHAPE = 1.0  # of the inverse gamma prior of a process's squared unit; targets have variance about 1
_NEAR = 1.5  # intervals: gains are compared if their times differ by no more
_TAIL = 0.02  # least distance of a relative rank from 0 and 1
_MOST = 100  # gains held
_FEWEST = 2  # gains that a model needs
_SAMPLES = 128  # candidates spread over the cube
_TRIED = 32  # latest hyperparameters that are candidates, each with a neighbour
# Distances of neighbours, in sides of the cube: first from tried values, then from the best candidates.
_NEIGHBOURHOODS = (0.1, 0.05, 0.02)
_BEST, _AROUND = 4, 8  # best candidates, and neighbours of each
_ENDS = 1.0  # expected loss at the ends of all ranges, in standard deviations of the gains at one time


class Stretch(NamedTuple):
    """A period of training with the same hyperparameters.

    Attributes:
        columns: hyperparameters, in the unit cube of ``Ranges``.
        time: its start.
        score: the member's score at the start.
    """

    columns: list[float]
    time: float
    score: float


class Population:
    """Members that train in parallel, and hyperparameters for a member that takes over the weights of another.

    A member's gain is its change of score per unit of time since its last report. Gains are modelled as Gaussian
    processes over hyperparameters, score and time (``mixture_of_gains``), and a proposal maximises

        m0(x) + m(x) + width sqrt(v(x)),    m0(x) = -mean of (2 x_j - 1)^2 over the numeric ranges,

    at the score and time of the member whose weights are taken over. v counts the current stretches of other members
    as if their gains were known (Desautels, Krause & Burdick 2014, GP-BUCB). m0 is the prior mean: the best value
    usually lies inside its range, but without m0 an upper bound begins at the ends, where uncertainty is largest.
    Candidates are Sobol points, values tried before and their neighbours, and then neighbours of the best. All are
    rounded to values, so integers and categories are never relaxed. Until two gains are known, and for a ``source``
    that has not reported, proposals are Sobol points.

    Args:
        space: the ranges of the hyperparameters. Values are numbers; the value of a category is its position.
        interval: > 0, the time in which gains are expected to change, about the time between reports.
        width: >= 0, multiplies the standard deviation.
        seed: seed of Sobol points and neighbours.

    Attributes:
        gains: the latest 100 stretches with their gains, oldest first; minus infinity if the score was not finite.
        now: the current stretch of each member, by name.

    Larger scores are better. Source: Parker-Holder, Nguyen & Roberts 2020 (PB2), with another model, acquisition and
    target. No theorem bounds its regret. Cost of a proposal: O(n^3) in the gains held, tens of milliseconds.

    Raises ValueError for any other space, an ``interval`` that is not positive and a negative ``width``.
    """

    def __init__(self, space: Ranges, interval: float, *, width: float = 1.0, seed: int = 0) -> None:
        validation.instance("space", space, Ranges, "Ranges")
        self.space, self.interval = space, validation.positive("interval", interval)
        self.width, self.seed = validation.non_negative("width", width), validation.natural("seed", seed)
        self.gains: list[tuple[Stretch, float]] = []
        self.now: dict[str, Stretch] = {}
        self._drawn = 0

    def opening(self, space: Ranges | None = None) -> dict[str, float]:
        """Values for a new member: the next Sobol point, far from earlier ones. ``space`` as for ``propose``."""
        self._drawn += 1
        return (space or self.space).decode(self.space.sample(self._drawn, self.seed)[-1])

    def meet(self, member: str, values: Mapping[str, float], time: float, score: float) -> None:
        """A member's first report, which starts its first stretch; later calls change nothing."""
        if member not in self.now and math.isfinite(score):
            self.now[member] = Stretch(self.space.encode(values).tolist(), float(time), float(score))

    def report(self, member: str, values: Mapping[str, float], time: float, score: float) -> None:
        """A member reached a score after training with these values, and continues with them."""
        columns, before = self.space.encode(values).tolist(), self.now.pop(member, None)
        if before is not None and time > before.time:
            rate = (score - before.score) / (time - before.time) if math.isfinite(score) else -math.inf
            self.gains.append((before._replace(columns=columns), rate))
            del self.gains[:-_MOST]
        self.meet(member, values, time, score)

    def move(self, member: str, source: str, values: Mapping[str, float]) -> None:
        """A member continues from the weights of ``source``, with its own ``values``."""
        self.leave(member)
        if source in self.now:
            self.now[member] = self.now[source]._replace(columns=self.space.encode(values).tolist())

    def leave(self, member: str) -> None:
        """A member stops training, or begins again."""
        self.now.pop(member, None)

    def propose(self, member: str, source: str, space: Ranges | None = None) -> dict[str, float]:
        """Values for a member that continues from the weights of ``source``.

        ``space``: the ranges of these values, those of the population except for their steps (None: the same).
        """
        space, at = space or self.space, self.now.get(source)
        if at is None or len(self.gains) < _FEWEST:
            return self.opening(space)
        self._drawn += 1
        others = [stretch for name, stretch in self.now.items() if name != member]
        scored = _acquisition(self, space, at, others)
        seed = (1_000_003 * self.seed + self._drawn) % 2**31
        generator = torch.Generator().manual_seed(seed)
        apart = dict.fromkeys(tuple(s.columns) for s, _ in reversed(self.gains))
        tried = torch.tensor(list(apart)[:_TRIED], dtype=torch.float64)
        wide, *closer = _NEIGHBOURHOODS
        X = torch.cat([space.sample(_SAMPLES, seed), tried, _neighbours(tried, wide, generator)])
        X, values = scored(X)
        for distance in closer:
            best = X[values.topk(_BEST).indices]
            around = _neighbours(best.repeat(_AROUND, 1), distance, generator)
            X, values = scored(torch.cat([best, around]))
        return space.decode(X[values.argmax()])

    def state_dict(self) -> dict[str, Any]:
        """Gains, current stretches, the number of points drawn and the seed, as plain numbers."""
        gains = [[*stretch, rate] for stretch, rate in self.gains]
        now = {name: list(stretch) for name, stretch in self.now.items()}
        return {"gains": gains, "now": now, "drawn": self._drawn, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``, over the same space. Raises ValueError for columns of another space."""
        gains = [(Stretch(*row[:3]), float(row[3])) for row in state["gains"]]
        now = {name: Stretch(*row) for name, row in state["now"].items()}
        for stretch in [*(s for s, _ in gains), *now.values()]:
            D = len(stretch.columns)
            validation.require(self.space.dim == D, "state", D, f"of {self.space.dim} columns, as the space")
        self.gains, self.now, self._drawn = gains, now, validation.natural("drawn", state["drawn"])
        self.seed = validation.natural("seed", state["seed"])


def _acquisition(
    population: Population, space: Ranges, at: Stretch, others: list[Stretch]
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """A function that rounds points (n, D) to values, and returns these with their acquisition values (n,)."""
    held = [stretch for stretch, _ in population.gains]
    scores = torch.tensor([stretch.score for stretch in held], dtype=torch.float64)
    low, high = scores.quantile(scores.new_tensor([0.05, 0.95]))
    side = high - low if high > low else scores.new_ones(())

    def inputs_of(stretches: list[Stretch]) -> Tensor:
        """[features, score relative to those held, time in intervals], (n, d + 1)."""
        X = space.features(torch.tensor([s.columns for s in stretches], dtype=torch.float64))
        score = torch.tensor([s.score for s in stretches], dtype=torch.float64)
        score = ((score - low) / side).clamp(-0.5, 1.5)
        time = torch.tensor([s.time for s in stretches], dtype=torch.float64) / population.interval
        return torch.cat([X, torch.stack([score, time], -1)], -1)

    gain = torch.tensor(
        [rate for _, rate in population.gains]
    ).double()  # float32 makes ties of rounding errors
    inputs = inputs_of(held)
    time = inputs[:, -1]
    pending = inputs_of(others).unsqueeze(0) if others else None
    target = levelled(time, gain) + _ENDS * space.off_middle(inputs)  # the columns of the cube come first
    model = mixture_of_gains(inputs[:, :-1], time, target, pending, seed=population.seed)
    bound = UpperConfidenceBound(model, population.width)
    here = inputs_of([at])[:, -2:]

    @torch.no_grad()
    def scored(X: Tensor) -> tuple[Tensor, Tensor]:
        X = space.snap(X)
        points = torch.cat([space.features(X), here.expand(len(X), 2)], -1)
        return X, bound(points[:, None, None]).reshape(-1) - _ENDS * space.off_middle(X)

    return scored


def _neighbours(X: Tensor, distance: float, generator: torch.Generator) -> Tensor:
    """A neighbour of each point (n, D), in the cube."""
    return (X + distance * torch.randn(X.shape, generator=generator, dtype=X.dtype)).clamp(0.0, 1.0)


def levelled(time: Tensor, gain: Tensor) -> Tensor:
    """Normal scores of gains among the gains of about the same time, (n,): the normal quantile of a gain's relative
    rank among the gains whose stretches began at most 1.5 intervals before or after its own.

    Gains shrink by orders of magnitude as training converges, but only their order at the same time matters.

    Args:
        time: (n,) in intervals.
        gain: (n,); minus infinity for a failed run.
    """
    near = ((time.unsqueeze(-1) - time).abs() <= _NEAR).double()
    less = (gain < gain.unsqueeze(-1)).double() + 0.5 * (gain == gain.unsqueeze(-1)).double()
    return torch.special.ndtri(((near * less).sum(-1) / near.sum(-1)).clamp(_TAIL, 1 - _TAIL))


def mixture_of_gains(
    X: Tensor, time: Tensor, target: Tensor, pending: Tensor | None = None, *, seed: int = 0
) -> MemberMixture:
    """Gaussian processes given n targets, with hyperparameters drawn from a prior and weighted by their evidence.

    A Sobol sequence draws a length-scale for each column, the noise, and the rate of change. The squared unit s of a
    process has an inverse gamma prior (a, a), which is conjugate. So with A = K + lambda I in this unit

        ln p(y) = -1/2 ln det A - (a + n/2) ln(a + 1/2 y^T A^{-1} y) + constant,
        1 / E[1/s | y] = (2a + y^T A^{-1} y) / (2a + n),  which is used as s.

    The six processes with the largest evidence predict together, weighted by it.

    Args:
        X: (n, d) in the unit cube; some columns may exceed it slightly.
        time: (n,), in intervals.
        target: (n,), of mean about 0 and variance about 1.
        pending: (1, k, d + 1), [x, time] of stretches whose gain is not known yet, which lower the variance.
        seed: seed of the sequence.

    Cost: O(P n^3), P = 32 priors.
    """
    n, d = X.shape
    theta = _draws(d, seed)
    drawn = _empty(X, theta)
    over_time = drawn.over_time((time.unsqueeze(-1) - time).expand(1, 1, n, n))
    held = torch.ones(1, len(theta), n, dtype=torch.bool)
    A = noisy(covariance(X, X, drawn.lengthscale) * over_time, held, drawn.noise_variance).squeeze(0)
    L = torch.linalg.cholesky(A)
    z = torch.linalg.solve_triangular(L, target.expand(len(theta), n).unsqueeze(-1), upper=False)
    half_log_det, squares = L.diagonal(dim1=-2, dim2=-1).log().sum(-1), z.square().sum((-2, -1))
    evidence = -half_log_det - (_SHAPE + 0.5 * n) * (_SHAPE + 0.5 * squares).log()
    best = evidence.topk(_KEPT).indices
    members = _empty(X, theta[best])
    members.inputs, members.times = X.unsqueeze(0), time.unsqueeze(0)
    members.targets = target.expand(1, _KEPT, n)
    members.held = torch.ones_like(members.targets, dtype=torch.bool)
    members.rebuild()
    weights = evidence[best].softmax(-1).unsqueeze(0)
    scale = ((2 * _SHAPE + squares[best]) / (2 * _SHAPE + n)).unsqueeze(0)
    zero = scale.new_zeros(1)
    return MemberMixture(members, weights, scale, zero, zero + 1.0, pending)


def _draws(d: int, seed: int) -> Tensor:
    """Hyperparameters drawn from their prior, (P, d + 3): d length-scales, log-normal, and log-uniform noise, in units
    of the function's variance, forgetting rate and timescale. Half of the processes forget, half change smoothly."""
    u = SobolEngine(d + 2, scramble=True, seed=seed).draw(_DRAWN, dtype=torch.float64).clamp(1e-4, 1 - 1e-4)
    lengthscale = 0.5 * math.sqrt(d) * (0.8 * torch.special.ndtri(u[:, :d])).exp()
    noise = 0.02 * 500.0 ** u[:, d]
    smooth = u[:, d + 1] < 0.5
    place = (2 * u[:, d + 1]) % 1.0
    timescale = torch.where(smooth, 3.0 * (100 / 3.0) ** place, math.inf)
    rate = torch.where(smooth, 0.0, 0.003 * (0.5 / 0.003) ** place)
    return torch.cat([lengthscale, torch.stack([noise, rate, timescale], -1)], -1)


def _empty(X: Tensor, theta: Tensor) -> PointMembers:
    """Processes with these hyperparameters, without observations, with room for those of X."""
    n, d = X.shape
    box = torch.stack([X.new_zeros(d), X.new_ones(d)])
    return PointMembers(box, theta[:, :d], *theta[:, d:].T, capacity=max(n, 2))
