"""Gains of a population by loops over rows, from the formulas in the docstrings alone."""

import math
from statistics import NormalDist

import numpy as np
from scipy.special import gammaln


def normal_scores(time, gain, near=1.5, tail=0.02):
    """The normal quantile of a gain's rank among those that began within ``near`` of it."""
    found = []
    for t, g in zip(time, gain, strict=True):
        peers = [other for then, other in zip(time, gain, strict=True) if abs(then - t) <= near]
        below = sum(other < g for other in peers) + 0.5 * sum(other == g for other in peers)
        found.append(NormalDist().inv_cdf(min(max(below / len(peers), tail), 1 - tail)))
    return np.array(found)


def kernel(a, s, b, t, lengthscale, rate, timescale):
    """(1 + Matern 5/2) times forgetting or Matern 3/2 over time."""
    r = math.sqrt(5 * sum(((u - v) / ell) ** 2 for u, v, ell in zip(a, b, lengthscale, strict=True)))
    gap = abs(s - t)
    if math.isinf(timescale):
        over_time = (1 - rate) ** (gap / 2)
    else:
        over_time = (1 + math.sqrt(3) * gap / timescale) * math.exp(-math.sqrt(3) * gap / timescale)
    return (1 + (1 + r + r * r / 3) * math.exp(-r)) * over_time


def posterior(X, time, y, x, now, theta, pending=()):
    """Mean, variance in the unit learned and log evidence, with its constant, of one process; its noise too."""
    *lengthscale, noise, rate, timescale = theta
    shape = lengthscale, rate, timescale
    rows = list(zip(X, time, strict=True))
    A = np.array([[kernel(a, s, b, t, *shape) for b, t in rows] for a, s in rows]) + noise * np.eye(len(y))
    k = np.array([kernel(a, s, x, now, *shape) for a, s in rows])
    square = float(y @ np.linalg.solve(A, y))
    n = len(y)
    evidence = (
        gammaln(1 + n / 2)
        - 0.5 * np.linalg.slogdet(A)[1]
        - n / 2 * math.log(2 * math.pi)
        - (1 + n / 2) * math.log(1 + square / 2)
    )
    mean = float(k @ np.linalg.solve(A, y))
    known = [*rows, *pending]
    B = np.array([[kernel(a, s, b, t, *shape) for b, t in known] for a, s in known]) + noise * np.eye(
        len(known)
    )
    c = np.array([kernel(a, s, x, now, *shape) for a, s in known])
    variance = 2.0 - float(c @ np.linalg.solve(B, c))
    return mean, (2 + square) / (2 + n) * variance, evidence
