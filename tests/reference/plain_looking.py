"""Looking again, one arm and one member at a time, from the rule's words."""

import math


def squared_correlation(covariance, i, j):
    """Of f_i and f_j, each less the mean of f over all arms, f with this covariance (lists); 0 if it is negative."""
    arms = range(len(covariance))

    def cov(a, b):
        rows = (
            sum(covariance[a][k] for k in arms) / len(arms),
            sum(covariance[b][k] for k in arms) / len(arms),
        )
        whole = sum(covariance[k][m] for k in arms for m in arms) / len(arms) ** 2
        return covariance[a][b] - rows[0] - rows[1] + whole

    return max(cov(i, j), 0.0) ** 2 / (cov(i, i) * cov(j, j))


def clocks(played, weights, covariances):
    """Observations since each arm was examined, after these arms were played under weights of the members (a list for
    each play) with these covariances."""
    unseen = [0] * len(covariances[0])
    for arm, weight in zip(played, weights, strict=True):
        for i in range(len(unseen)):
            alike = sum(w * squared_correlation(K, i, arm) for w, K in zip(weight, covariances, strict=True))
            unseen[i] = 0 if i == arm or alike >= 0.5 else unseen[i] + 1
    return unseen


def settled(clock, weight, rates):
    """Whether the members take for at least half what it was what was examined so many observations ago."""
    return sum(w * (1 - rate) ** clock for w, rate in zip(weight, rates, strict=True)) >= 0.5


def due(unseen, mean, weight, rates, every, t):
    """The available arm that is most overdue, None if none is."""
    gaps = [max(mean) - m for m in mean]
    usual = sum(gaps) / len(gaps)
    over = [
        settled(u, weight, rates)
        * u
        / (every * math.sqrt(t + 300) * min(max(math.sqrt(g / usual), 0.5), 2.0))
        for u, g in zip(unseen, gaps, strict=True)
    ]
    return over.index(max(over)) if max(over) >= 1 else None


def matern(x, z, lengthscale):
    """Matern kernel of smoothness 5/2."""
    r = math.sqrt(5 * sum(((a - b) / scale) ** 2 for a, b, scale in zip(x, z, lengthscale, strict=True)))
    return (1 + r + r * r / 3) * math.exp(-r)


def likeness(x, z, weight, lengthscales):
    """How much a play of x says about z; 1/2 is enough to examine it."""
    return sum(w * matern(x, z, scale) ** 2 for w, scale in zip(weight, lengthscales, strict=True))


def over_time(gap, rate, timescale):
    """Kernel over time: exponential forgetting, or Matern of smoothness 3/2 with a finite time-scale."""
    if timescale < math.inf:
        r = math.sqrt(3) * gap / timescale
        return (1 + r) * math.exp(-r)
    return (1 - rate) ** (gap / 2)


def late(unseen, weight, kernels, every, t):
    """The probes whose clocks have reached the deadline after t observations, and that are settled: the members, with
    these pairs of rate and time-scale, take for at least half what they were what was seen so long ago."""

    def is_settled(clock):
        return sum(w * over_time(clock, *of) ** 2 for w, of in zip(weight, kernels, strict=True)) >= 0.5

    return {i for i, u in enumerate(unseen) if u >= every * math.sqrt(t + 300) and is_settled(u)}


class Places:
    """Observations since each of the probes was examined, since the latest look, and the probes due at once, as points
    of the unit cube are played, under these length-scales and ``kernels`` over time of the members."""

    def __init__(self, probes, lengthscales, kernels, every):
        self.probes, self.lengthscales, self.kernels, self.every = probes, lengthscales, kernels, every
        self.unseen, self.since, self.at_once, self.t = [0] * len(probes), 0, set(), 0

    def play(self, x, weight, outcome):
        """A point, under weights of the members; of its outcome reward, prediction, noise and the largest mean of the
        points held."""
        like = [likeness(x, probe, weight, self.lengthscales) for probe in self.probes]
        tau = self.every * math.sqrt(self.t + 300)
        waiting = late(self.unseen, weight, self.kernels, self.every, self.t)
        self.t += 1
        seen = {i for i, own in enumerate(like) if own >= 0.5}
        self.since = 0 if seen & waiting else self.since + 1
        looked = bool(seen & (waiting | self.at_once))
        self.unseen = [0 if i in seen else u + 1 for i, u in enumerate(self.unseen)]
        self.at_once = self.at_once - seen
        reward, mean, noise, best = outcome
        if looked and reward > best:
            self.at_once = set()
        elif looked and reward - mean >= 3 * noise and reward - mean >= (best - mean) / 4:
            others = sorted(set(range(len(self.probes))) - seen, key=lambda i: -like[i])
            self.at_once |= {i for i in others[:8] if self.unseen[i] > tau / 8}
