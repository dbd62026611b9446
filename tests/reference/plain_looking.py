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


def examines(x, z, weight, lengthscales):
    """Whether a play of x examines z."""
    alike = sum(w * matern(x, z, scale) ** 2 for w, scale in zip(weight, lengthscales, strict=True))
    return alike >= 0.5


def places(played, weights, probes, lengthscales, every):
    """Observations since each of the probes was examined, and since the latest look, after points of the unit cube
    were played under weights of the members (a list for each play) with these length-scales."""
    unseen, since = [0] * len(probes), 0
    for t, (x, weight) in enumerate(zip(played, weights, strict=True)):
        seen = [examines(x, probe, weight, lengthscales) for probe in probes]
        tau = every * math.sqrt(t + 300)
        looked = any(s and u >= tau for s, u in zip(seen, unseen, strict=True))
        since = 0 if looked else since + 1
        unseen = [0 if s else u + 1 for s, u in zip(seen, unseen, strict=True)]
    return unseen, since
