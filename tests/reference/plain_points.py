"""Averaging over Gaussian processes on points and time for one replicate, as on a blackboard: one number at a time."""

import math

import torch

from tests.reference.plain_range import Doubting


def matern52(r):
    r = math.sqrt(5) * r
    return (1 + r + r * r / 3) * math.exp(-r)


class Process:
    """A Gaussian process with an unknown mean: length-scales, noise variance, and its correlation over time."""

    def __init__(self, lengthscale, noise, rate=0.0, timescale=math.inf):
        self.lengthscale, self.noise, self.rate, self.timescale = list(lengthscale), noise, rate, timescale

    def correlation(self, gap):
        if math.isinf(self.timescale):
            return (1 - self.rate) ** (abs(gap) / 2)
        r = math.sqrt(3) * abs(gap) / self.timescale
        return (1 + r) * math.exp(-r)

    def effective_rate(self):
        """The rate; of a smooth kernel over time, whose integral is 2 timescale / sqrt(3), that of equal integral."""
        return self.rate if math.isinf(self.timescale) else 1 - math.exp(-math.sqrt(3) / self.timescale)

    def covariance(self, a, b):
        """Of two (point, time)."""
        (x, s), (y, t) = a, b
        r = math.sqrt(sum(((u - v) / scale) ** 2 for u, v, scale in zip(x, y, self.lengthscale, strict=True)))
        return (1 + matern52(r)) * self.correlation(s - t)

    def matrix(self, places):
        K = [[self.covariance(a, b) for b in places] for a in places]
        return torch.tensor(K, dtype=torch.float64) + self.noise * torch.eye(len(places), dtype=torch.float64)

    def moments(self, places, targets, new):
        """Mean and variance at ``new`` given targets at places, by a dense solve."""
        if not places:
            return 0.0, 2.0
        k = torch.tensor([self.covariance(a, new) for a in places], dtype=torch.float64)
        solved = torch.linalg.solve(
            self.matrix(places), torch.stack([torch.tensor(targets, dtype=torch.float64), k], -1)
        )
        return float(k @ solved[:, 0]), self.covariance(new, new) - float(k @ solved[:, 1])

    def information(self, places, i, now):
        """1/2 ln(1 + rho^2 c / lambda) of the observation at the i-th place given the others."""
        others = places[:i] + places[i + 1 :]
        _, c = self.moments(others, [0.0] * len(others), places[i])
        return 0.5 * math.log1p(self.correlation(now - places[i][1]) ** 2 * c / self.noise)


class PlainPointAveraging(Doubting):
    """The rules of ``PointAveraging`` without refinement.

    Args:
        processes: a list of ``Process``, of equal weight.
        rules: share, behind, memory and at_once of the score; forget (of the scale), tail, clip; capacity.
    """

    def __init__(self, processes, **rules):
        self.beginning, self.rules = processes, rules
        self.doubt()
        self.begin()

    def begin(self):
        """Before the first reward."""
        self.processes, P = list(self.beginning), len(self.beginning)
        self.w, self.score = [1 / P] * P, [0.0] * P
        self.n, self.q = [0.0] * P, [0.0] * P
        self.places, self.targets = [], [[] for _ in range(P)]  # a target None: not held
        self.origin, self.largest, self.log_loss = None, 0.0, 0.0
        self.resets = self.anew = 0

    def held(self, p):
        at = [i for i, y in enumerate(self.targets[p]) if y is not None]
        return [self.places[i] for i in at], [self.targets[p][i] for i in at]

    def scale(self, p):
        if self.n[p]:
            return max(self.q[p] / max(self.n[p], 1.0), 1e-12 * self.largest)
        return 4.0 ** math.frexp(self.origin)[1] if self.origin else 1.0  # the unit is a power of two

    def predict(self, x, now):
        """Mean and variance of the mixture at a point."""
        parts = [self.processes[p].moments(*self.held(p), (x, now)) for p in range(len(self.w))]
        m = sum(w * mean for w, (mean, _) in zip(self.w, parts, strict=True))
        v = sum(
            w * (self.scale(p) * variance + (mean - m) ** 2)
            for p, (w, (mean, variance)) in enumerate(zip(self.w, parts, strict=True))
        )
        return m + (self.origin or 0.0), v

    def density(self, p, e, v):
        if self.n[p] == 0:
            return 0.0
        dof = min(max(self.n[p], 1.0), self.rules["tail"])
        t = torch.distributions.StudentT(
            torch.tensor(dof, dtype=torch.float64), 0.0, math.sqrt(self.scale(p) * v)
        )
        return float(t.log_prob(torch.tensor(e, dtype=torch.float64)))

    def take(self, x, y, now, believed):
        """Learn a reward; of one in doubt the place is kept, and no process holds it."""
        targets = self.weigh(x, y, now) if believed else [None] * len(self.w)
        if len(self.places) == self.rules["capacity"]:
            self._drop(now)
        self.places.append((x, now))
        for p, target in enumerate(targets):
            self.targets[p].append(target)

    def weigh(self, x, y, now):
        """Weigh the processes by a reward; what each learns of it."""
        rules, P = self.rules, len(self.w)
        self.origin = y if self.origin is None else self.origin
        e = y - self.origin
        densities, targets, squares = [], [], []
        for p, process in enumerate(self.processes):
            mean, variance = process.moments(*self.held(p), (x, now))
            v = variance + process.noise
            densities.append(self.density(p, e - mean, v))
            n = self.n[p]
            bound = rules["clip"] * (1 + 5 / n) * math.sqrt(self.scale(p) * v) if n else math.inf
            clipped = max(-bound, min(bound, e - mean))
            targets.append(e if self.range.borne_out else mean + clipped)
            squares.append(clipped**2 / v)
        for p in range(P):
            if self.n[p] or squares[p]:
                self.n[p] = rules["forget"] * self.n[p] + 1
                self.q[p] = rules["forget"] * self.q[p] + squares[p]
        self.largest = max(self.largest, *squares)
        mixed = sum(w * math.exp(f) for w, f in zip(self.w, densities, strict=True))
        self.log_loss -= math.log(mixed)
        self.w = [
            (1 - rules["share"]) * w * math.exp(f) / mixed + rules["share"] / P
            for w, f in zip(self.w, densities, strict=True)
        ]
        least = max(densities) - rules["at_once"]
        self.score = [rules["memory"] * c + max(f, least) for c, f in zip(self.score, densities, strict=True)]
        self._replace(targets, e)
        return targets

    def _replace(self, targets, e):
        best_score, leader = max(self.score), max(range(len(self.w)), key=lambda p: self.w[p])
        best, followed = self.processes[leader], targets[leader]
        held = list(self.targets[leader])
        for p, process in enumerate(self.processes):
            if best_score - self.score[p] > self.rules["behind"]:
                self.resets += 1
                anew = process.effective_rate() < best.effective_rate()
                self.anew += anew
                self.score[p], targets[p] = best_score, e if anew else followed
                self.targets[p] = [None] * len(held) if anew else list(held)
                self.processes[p] = Process(best.lengthscale, best.noise, process.rate, process.timescale)
                self.n[p], self.q[p] = self.n[leader], self.q[leader]

    def _drop(self, now):
        n = len(self.places)
        told = []
        for i in range(n - n // 2):
            total = 0.0
            for p, process in enumerate(self.processes):
                if self.targets[p][i] is not None:
                    places, _ = self.held(p)
                    total += self.w[p] * process.information(places, places.index(self.places[i]), now)
            told.append(total)
        i = told.index(min(told))
        for column in (self.places, *self.targets):
            del column[i]
