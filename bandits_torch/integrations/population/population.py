"""A population that trains: what its members gained, where each is, and what one should try next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.integrations.population.gains import levelled, mixture_of_gains
from bandits_torch.integrations.population.ranges import Space

_MOST = 100  # gains remembered
_FEWEST = 2  # from so many on there is a model
_SAMPLES = 128  # candidates all over the cube
_TRIED = 32  # latest hyperparameters that were tried, each a candidate beside a neighbour
_NEIGHBOURHOODS = (
    0.1,
    0.05,
    0.02,
)  # of the cube's side: neighbours of what was tried, then of the best, closer
_BEST, _AROUND = 4, 8  # so many best candidates, so many neighbours of each
_ENDS = 1.0  # what the ends of all ranges are expected to lose, in deviations of the gains of a time


class Stretch(NamedTuple):
    """Training from a time on.

    Attributes:
        columns: hyperparameters, in the unit cube of a ``Space``.
        time: when it begins.
        score: of the member then.
    """

    columns: list[float]
    time: float
    score: float


class Population:
    """Members that train side by side: hyperparameters for one that takes over the weights of another.

    A member's gain is its change of score per unit of time since it last reported. Gains are Gaussian processes over
    hyperparameters, score and time (``mixture_of_gains``), and what is proposed maximises

        m0(x) + m(x) + width sqrt(v(x)),    m0(x) = -mean of (2 x_j - 1)^2 over the ranges of numbers,

    at the score and time of the member whose weights are taken over; v counts the stretches that others are training
    now as if their gains were known (Desautels, Krause & Burdick 2014, GP-BUCB). m0 is the prior mean: who gives a
    range expects the best within it, and without it an upper bound begins at the ends, of which least is known.
    Candidates are Sobol points, what was tried, and neighbours of the best, all moved to where values are, so integers
    and categories are never relaxed.
    Until two gains are known, proposals are Sobol points.

    Args:
        space: of the hyperparameters.
        interval: > 0, unit of time in which a gain is expected to change; about the time between reports.
        width: >= 0.
        seed: of Sobol points and neighbours.

    Attributes:
        gains: stretches with their gains, oldest first, at most 100; minus infinity where the score was no number.
        now: the stretch that each member is training, by name.

    Larger scores are better. Source: Parker-Holder, Nguyen & Roberts 2020 (PB2), with another model, acquisition and
    target. No theorem bounds its regret. Cost of a proposal: O(n^3) in the gains held, tens of milliseconds.

    Raises ValueError for another space, an ``interval`` that is not positive and a negative ``width``.
    """

    def __init__(self, space: Space, interval: float, *, width: float = 1.0, seed: int = 0) -> None:
        validation.instance("space", space, Space, "a Space")
        self.space, self.interval = space, validation.positive("interval", interval)
        self.width, self.seed = validation.non_negative("width", width), validation.natural("seed", seed)
        self.gains: list[tuple[Stretch, float]] = []
        self.now: dict[str, Stretch] = {}
        self._drawn = 0

    def opening(self, like: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Values for a member that begins, far from those of others: the next Sobol point."""
        self._drawn += 1
        return self.space.decode(self.space.sample(self._drawn, self.seed)[-1], like or {})

    def meet(self, member: str, values: Mapping[str, Any], time: float, score: float) -> None:
        """A member's first report, from which its first gain counts; later ones change nothing."""
        if member not in self.now and math.isfinite(score):
            self.now[member] = Stretch(self.space.encode(values), float(time), float(score))

    def report(self, member: str, values: Mapping[str, Any], time: float, score: float) -> None:
        """A member reached a score after training with these values, and goes on with them from here."""
        columns, before = self.space.encode(values), self.now.pop(member, None)
        if before is not None and time > before.time:
            rate = (score - before.score) / (time - before.time) if math.isfinite(score) else -math.inf
            self.gains.append((before._replace(columns=columns), rate))
            del self.gains[:-_MOST]
        self.meet(member, values, time, score)

    def move(self, member: str, source: str, values: Mapping[str, Any]) -> None:
        """A member goes on from where ``source`` is, with values of its own."""
        self.leave(member)
        if source in self.now:
            self.now[member] = self.now[source]._replace(columns=self.space.encode(values))

    def leave(self, member: str) -> None:
        """A member trains no more, or begins anew."""
        self.now.pop(member, None)

    def propose(self, member: str, source: str, like: Mapping[str, Any]) -> dict[str, Any]:
        """Values for a member that goes on from where ``source`` is, each of the type of that in ``like``."""
        at = self.now.get(source)
        if at is None or len(self.gains) < _FEWEST:
            return self.opening(like)
        self._drawn += 1
        others = [stretch for name, stretch in self.now.items() if name != member]
        view = _View(self, at, others)
        seed = (1_000_003 * self.seed + self._drawn) % 2**31
        generator = torch.Generator().manual_seed(seed)
        apart = dict.fromkeys(tuple(s.columns) for s, _ in reversed(self.gains))
        tried = torch.tensor(list(apart)[:_TRIED], dtype=torch.float64)
        wide, *closer = _NEIGHBOURHOODS
        X = torch.cat([self.space.sample(_SAMPLES, seed), tried, _beside(tried, wide, generator)])
        X, values = view.scored(X, like)
        for distance in closer:
            best = X[values.topk(_BEST).indices]
            around = _beside(best.repeat(_AROUND, 1), distance, generator)
            X, values = view.scored(torch.cat([best, around]), like)
        return self.space.decode(X[values.argmax()], like)

    def state_dict(self) -> dict[str, Any]:
        """Gains, places and counters, of plain numbers."""
        gains = [[*stretch, rate] for stretch, rate in self.gains]
        now = {name: list(stretch) for name, stretch in self.now.items()}
        return {"gains": gains, "now": now, "drawn": self._drawn, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the one that gave ``state`` stood, over the same space; ValueError for columns of another."""
        gains = [(Stretch(*row[:3]), float(row[3])) for row in state["gains"]]
        now = {name: Stretch(*row) for name, row in state["now"].items()}
        for stretch in [*(s for s, _ in gains), *now.values()]:
            D = len(stretch.columns)
            validation.require(self.space.dim == D, "state", D, f"of {self.space.dim} columns, as the space")
        self.gains, self.now, self._drawn = gains, now, validation.natural("drawn", state["drawn"])
        self.seed = validation.natural("seed", state["seed"])


class _View:
    """The acquisition function of one proposal."""

    def __init__(self, population: Population, at: Stretch, others: list[Stretch]) -> None:
        self.space, interval = population.space, population.interval
        held = [stretch for stretch, _ in population.gains]
        scores = torch.tensor([stretch.score for stretch in held]).double()
        self._low, high = scores.quantile(scores.new_tensor([0.05, 0.95]))
        self._side = high - self._low if high > self._low else scores.new_ones(())
        gain = torch.tensor([rate for _, rate in population.gains]).double()
        inputs = self._inputs(held, interval)
        time = inputs[:, -1]
        pending = self._inputs(others, interval).unsqueeze(0) if others else None
        off_middle = self.space.off_middle(inputs)  # the cube's columns come first in these
        target = levelled(time, gain) + _ENDS * off_middle
        model = mixture_of_gains(inputs[:, :-1], time, target, pending, seed=population.seed)
        self._acquisition = UpperConfidenceBound(model, population.width)
        self._here = self._inputs([at], interval)[:, -2:]

    def _inputs(self, stretches: list[Stretch], interval: float) -> Tensor:
        """[features, score on the scale of those held, time in intervals], (n, d + 1)."""
        X = self.space.features(torch.tensor([s.columns for s in stretches]).double())
        score = torch.tensor([s.score for s in stretches]).double()
        score = ((score - self._low) / self._side).clamp(-0.5, 1.5)
        time = torch.tensor([s.time for s in stretches], dtype=torch.float64) / interval
        return torch.cat([X, torch.stack([score, time], -1)], -1)

    @torch.no_grad()
    def scored(self, X: Tensor, like: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Points (n, D) moved to where values are, and the acquisition function there, (n,)."""
        X = self.space.snap(X, like)
        inputs = torch.cat([self.space.features(X), self._here.expand(len(X), 2)], -1)
        return X, self._acquisition(inputs[:, None, None]).reshape(-1) - _ENDS * self.space.off_middle(X)


def _beside(X: Tensor, distance: float, generator: torch.Generator) -> Tensor:
    """Neighbours of points (n, D), one each, in the cube."""
    return (X + distance * torch.randn(X.shape, generator=generator, dtype=X.dtype)).clamp(0.0, 1.0)
