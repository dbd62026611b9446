"""Members of a population that train: what each gained, what each is at, and what one should try next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.integrations.population.gains import mixture_of_gains
from bandits_torch.integrations.population.ranges import Space

_MOST = 100


class Stretch(NamedTuple):
    """A member's training from ``time`` on: columns of its hyperparameters, its score then (None: not known)."""

    columns: list[float]
    time: float
    score: float | None


class Population:
    TARGET, WIDTH, CONTEXT = "local", 1.0, True

    def __init__(self, space: Space, interval: float, *, width: float | None = None, seed: int = 0) -> None:
        self.space, self.interval, self.seed = space, float(interval), seed
        self.width = self.WIDTH if width is None else width
        self.gains: list[tuple[Stretch, float]] = []
        self.now: dict[str, Stretch] = {}
        self.proposed = self.opened = 0

    def opening(self):
        self.opened += 1
        return self.space.decode(self._sobol(self.opened), {})

    def begin(self, member):
        self.now.pop(member, None)

    def meet(self, member, values, time, score):
        if member not in self.now and math.isfinite(score):
            self.now[member] = Stretch(self.space.encode(values), time, score)

    def report(self, member: str, values, time: float, score: float) -> None:
        columns, before = self.space.encode(values), self.now.get(member)
        known = math.isfinite(score)
        if before is not None and before.score is not None and time > before.time:
            rate = (score - before.score) / (time - before.time) if known else -math.inf
            self.gains.append((Stretch(columns, before.time, before.score), rate))
            del self.gains[:-_MOST]
        self.now[member] = Stretch(columns, time, score if known else None)

    def move(self, member: str, source: str, values: Mapping[str, Any]) -> None:
        self.now[member] = self.now[source]._replace(columns=self.space.encode(values))

    def leave(self, member: str) -> None:
        self.now.pop(member, None)

    def propose(self, member: str, source: str, like: Mapping[str, Any]) -> dict[str, Any]:
        self.proposed += 1
        at = self.now[source]
        if len(self.gains) < 2 or at.score is None:
            x = self._sobol(self.opened + self.proposed)
        else:
            x = self._best(member, at, like)
        return self.space.decode(x, like)

    def _sobol(self, number) -> Tensor:
        return torch.quasirandom.SobolEngine(self.space.dim, scramble=True, seed=self.seed).draw(number, dtype=torch.float64)[-1]

    def _best(self, member, at, like) -> Tensor:
        D = self.space.dim
        rows = [row for row, _ in self.gains]
        time = torch.tensor([r.time for r in rows]).double() / self.interval
        X = torch.tensor([r.columns for r in rows]).double()
        score = torch.tensor([r.score for r in rows]).double()
        target = self._targets(time)
        others = [s for m, s in self.now.items() if m != member and s.score is not None]
        pending = torch.tensor([[*s.columns, s.score, s.time / self.interval] for s in others]).double()
        now = at.time / self.interval
        if self.CONTEXT:
            low, high = score.quantile(torch.tensor([0.05, 0.95]).double())
            place = lambda s: ((s - low) / (high - low).clamp_min(1e-12)).clamp(-0.5, 1.5)
            X = torch.cat([X, place(score).unsqueeze(-1)], -1)
            here = float(place(torch.tensor(at.score)))
            if len(others):
                pending[:, D] = place(pending[:, D])
        else:
            pending = torch.cat([pending[:, :D], pending[:, D + 1:]], -1) if len(others) else pending
        model = mixture_of_gains(X, time, target, pending.unsqueeze(0) if len(others) else None, self.seed)
        d = X.shape[-1]
        extra = {D: here} if self.CONTEXT else {}
        ucb = UpperConfidenceBound(model, self.width)
        generator = torch.Generator().manual_seed((self.seed * 7919 + self.proposed) % 2**31)
        raw = torch.quasirandom.SobolEngine(D, scramble=True, seed=(self.seed + self.proposed) % 2**31).draw(128, dtype=torch.float64)
        known = X[:, :D].unique(dim=0)[-32:]
        def score_of(cand):
            if self.space.fixed(like):
                cand = self.space.snap(cand, like)
            full = torch.cat([cand, *[cand.new_full((len(cand), 1), v) for v in extra.values()], cand.new_full((len(cand), 1), now)], -1)
            with torch.no_grad():
                return cand, ucb(full.unsqueeze(-2).unsqueeze(-2)).reshape(-1)
        def around(x, s):
            return (x + s * torch.randn(x.shape, generator=generator, dtype=torch.float64)).clamp(0, 1)
        cand, values = score_of(torch.cat([raw, around(known, .1), known]))
        for s in (.05, .02):
            top = cand[values.topk(4).indices]
            cand, values = score_of(torch.cat([top, around(top.repeat(8, 1), s)]))
        return cand[values.argmax()]

    def _targets(self, time: Tensor) -> Tensor:
        y = torch.tensor([g for _, g in self.gains]).double()
        finite = y.isfinite()
        low = y[finite].min() if finite.any() else 0.0
        y = torch.where(finite, y, low)
        if self.TARGET == "raw":
            return ((y - y.mean()) / y.std().clamp_min(1e-12)).clamp(-2, 2)
        near = (time.unsqueeze(-1) - time).abs() <= 1.5
        if self.TARGET == "rank":
            below = ((y.unsqueeze(0) < y.unsqueeze(1)).double() + 0.5 * (y.unsqueeze(0) == y.unsqueeze(1)).double()) * near
            p = below.sum(-1) / near.sum(-1)
            return torch.special.ndtri(p.clamp(0.02, 0.98))
        w = near.double()
        mean = (w * y).sum(-1) / w.sum(-1)
        dev = (w * (y - mean.unsqueeze(-1)).square()).sum(-1) / w.sum(-1)
        z = (y - mean) / dev.sqrt().clamp_min(1e-12)
        return z.clamp(-2, 2)
