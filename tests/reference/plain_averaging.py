"""Model averaging for one replicate as on a blackboard: dense refits, one member and one number at a time."""

import math
import statistics
from typing import NamedTuple

import torch

from tests.reference.dense_priors import DensePrior
from tests.reference.plain_range import Doubting


class Member(NamedTuple):
    """A prior, its weight, and what it knows of the rewards' unit (strength, infinity: all) and origin."""

    prior: DensePrior
    weight: float
    strength: float
    learns_offset: bool


class PlainAveraging(Doubting):
    """The rules of ``FixedShare``, ``MemberScale``, ``RewardRange`` and ``ModelAveraging``, word for word.

    Args:
        members: a list of ``Member``.
        rules: share, behind, memory of the score; forget (of the scale), tail, clip; width, wide, plausible.
    """

    def __init__(self, members, **rules):
        self.members, self.rules = members, rules
        told = [m.prior for m in members if m.strength > 0]
        means = [float(mean) for prior in told for mean in prior.mean]
        variances = [float(v) for prior in told for v in prior.covariance.diagonal()]
        self.doubt(max(means) - min(means) + math.sqrt(max(variances)) if told else 0.0)
        self.begin()

    def begin(self):
        """Before the first reward."""
        members = self.members
        total = sum(m.weight for m in members)
        self.pi = [m.weight / total for m in members]
        self.w = list(self.pi)
        self.data = [[] for _ in members]  # (arm, what was learned there, time) since the last reset
        self.last = {}  # by member, what its moments were last asked for, and they
        self.score, self.n, self.q = ([0.0] * len(members) for _ in range(3))
        self.count, self.next_check = 0, 8
        self.believed = []  # rewards
        self.largest, self.first = [0.0] * len(members), []
        self.origin, self.unit, self.resets, self.log_loss = None, None, 0, 0.0

    def moments(self, p, now):
        """The member's own mean and variance of every arm, in units of its covariance and about its origin."""
        asked = now, tuple(self.data[p])
        if p not in self.last or self.last[p][0] != asked:  # the same is asked by choosing and by learning
            arms, targets, times = ([row[i] for row in self.data[p]] for i in range(3))
            mean, variance, _ = self.members[p].prior.fit(arms, targets, times, now)
            self.last[p] = asked, (mean, variance)
        return self.last[p][1]

    def offset(self, p):
        return self.origin if self.members[p].learns_offset and self.origin is not None else 0.0

    def scale(self, p):
        nu = self.members[p].strength
        if math.isinf(nu):
            return 1.0
        if nu + self.n[p] == 0:
            return 1.0
        return max((nu + self.q[p]) / max(nu + self.n[p], 1.0), 1e-12 * self.largest[p])

    def predict(self, now):
        """Mean and variance of the mixture, (N,) each."""
        parts = [self.moments(p, now) for p in range(len(self.members))]
        means = [mean + self.offset(p) for p, (mean, _) in enumerate(parts)]
        m = sum(w * mean for w, mean in zip(self.w, means, strict=True))
        v = sum(w * (self.scale(p) * parts[p][1] + (means[p] - m) ** 2) for p, w in enumerate(self.w))
        return m, v

    def index(self, now):
        """What the arm to play has the most of, (N,)."""
        if self.again is not None:
            return torch.eye(len(self.members[0].prior.mean)).double()[self.again]
        if self.count == self.next_check:
            return self.optimistic(now)
        m, v = self.predict(now)
        return m + self.width() * v.sqrt()

    def width(self):
        """Every tenth bound is at least ``wide``."""
        tenth = self.count > 0 and self.count % 10 == 0
        return max(self.rules["width"], self.rules["wide"]) if tenth else self.rules["width"]

    def optimistic(self, now):
        """The largest bound of each arm under any member within ``plausible`` nats of the best by evidence."""
        evidence = [math.log(w / pi) for w, pi in zip(self.w, self.pi, strict=True)]
        bounds = []
        for p in range(len(self.members)):
            if evidence[p] >= max(evidence) - self.rules["plausible"]:
                mean, variance = self.moments(p, now)
                deviation = (self.scale(p) * variance).sqrt()
                bounds.append(mean + self.offset(p) + self.width() * deviation)
        return torch.stack(bounds).amax(0)

    def density(self, p, e, v):
        nu = self.members[p].strength + self.n[p]
        if nu == 0:
            some_known = any(m.strength > 0 for m in self.members)
            width = 10 * math.sqrt(v)
            return -math.log(math.pi * width * (1 + (e / width) ** 2)) if some_known else 0.0
        dof = min(max(nu, 1.0), self.rules["tail"])
        t = torch.distributions.StudentT(
            torch.tensor(dof, dtype=torch.float64), 0.0, math.sqrt(self.scale(p) * v)
        )
        return float(t.log_prob(torch.tensor(e, dtype=torch.float64)))

    def take(self, arm, y, now, believed):
        if self.count == self.next_check:
            self.next_check += min(max(8, self.count // 2), 100)
        self.count += 1
        if believed:
            self.weigh(arm, y, now)
        if self.count == 5:
            self.settle()

    def weigh(self, arm, y, now):
        """Learn a reward that is believed."""
        self.believed.append(y)
        if self.origin is None:
            self.origin = y
        share, P, grows = self.rules["share"], len(self.members), self.meet(abs(y - self.origin))
        values = len(set(self.believed))
        of_two = values == 2 < len(self.believed)
        densities = [self.teach(p, arm, y - self.offset(p), now, of_two) for p in range(P)]
        mixed = sum(w * math.exp(f) for w, f in zip(self.w, densities, strict=True))
        self.log_loss -= math.log(mixed)
        posterior = [w * math.exp(f) / mixed for w, f in zip(self.w, densities, strict=True)]
        self.w = [(1 - share) * w + share * pi for w, pi in zip(posterior, self.pi, strict=True)]
        self.score = [self.rules["memory"] * c + f for c, f in zip(self.score, densities, strict=True)]
        best = max(self.score)
        for p in range(P):
            settling = self.count <= 5 and self.members[p].learns_offset
            if grows and self.members[p].learns_offset and not settling:
                self.data[p] = [(arm, y - self.offset(p), now)]
            if best - self.score[p] > self.rules["behind"] and not settling:
                self.score[p] = best
                self.resets += 1
                self.data[p] = [(arm, y - self.offset(p), now)]
        self.first.append((arm, y, now))

    def meet(self, size):
        """Whether all differences before one of this size were those of rounding; then no scale is known."""
        grows = self.unit is not None and size > 1e6 * self.unit
        if grows or (self.unit is None and size > 0):
            self.unit = power_of_two(size)
        for p, member in enumerate(self.members):
            if grows and member.learns_offset:
                self.n[p], self.q[p], self.largest[p] = 0.0, 0.0, 0.0
        return grows

    def teach(self, p, arm, y, now, of_two=False):
        """Let one member learn a reward counted from its origin; the ln density it gave it. ``of_two``: the rewards so
        far have two values."""
        mean, variance = self.moments(p, now)
        v = float(variance[arm]) + self.members[p].prior.noise_variance
        e = y - float(mean[arm])
        density = self.density(p, e, v)
        nu = self.members[p].strength + self.n[p]
        bound = self.rules["clip"] * (1 + 5 / nu) * math.sqrt(self.scale(p) * v) if nu > 0 else math.inf
        bound = math.inf if of_two else bound
        learned, forget = max(-bound, min(bound, e)), 0.998 if of_two else self.rules["forget"]
        self.data[p].append((arm, float(mean[arm]) + (e if self.range.borne_out else learned), now))
        if nu > 0 or learned != 0:
            self.n[p] = forget * self.n[p] + 1
            self.q[p] = forget * self.q[p] + learned**2 / v
        self.largest[p] = max(self.largest[p], learned**2 / v)
        return density

    def settle(self):
        """The origin becomes the median of the first five (those believed), and who counts from it learns them again,
        none too far."""
        rewards = [y for _, y, _ in self.first]
        self.origin = statistics.median_low(rewards)
        away = [y - self.origin for y in rewards]
        equal = max(map(abs, away)) / 1e6
        usual = statistics.median_low(map(abs, away))
        bound = 8 * usual if usual > equal else math.inf
        away = [0.0 if abs(e) < equal else max(-bound, min(bound, e)) for e in away]
        farthest = max(map(abs, away))
        self.unit = power_of_two(farthest) if farthest > 0 else self.unit
        for p, member in enumerate(self.members):
            if member.learns_offset:
                self.data[p], self.n[p], self.q[p], self.largest[p] = [], 0.0, 0.0, 0.0
                for (arm, _, now), e in zip(self.first, away, strict=True):
                    self.teach(p, arm, e, now)


def power_of_two(size):
    """The least above."""
    return 2.0 ** math.frexp(size)[1]
