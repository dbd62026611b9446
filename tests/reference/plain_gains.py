"""Gains of a population by loops over rows, from the formulas in the docstrings alone."""

import math
from statistics import NormalDist

import numpy as np
from scipy.special import gammaln

from tests.reference.plain_points import Process


def normal_scores(time, gain, near=1.5, tail=0.02):
    """The normal quantile of a gain's rank among those that began within ``near`` of it."""
    found = []
    for t, g in zip(time, gain, strict=True):
        peers = [other for then, other in zip(time, gain, strict=True) if abs(then - t) <= near]
        below = sum(other < g for other in peers) + 0.5 * sum(other == g for other in peers)
        found.append(NormalDist().inv_cdf(min(max(below / len(peers), tail), 1 - tail)))
    return np.array(found)


def posterior(X, time, y, x, now, theta, pending=()):
    """Mean, variance in the unit learned and log evidence, with its constant, of one process; its noise too."""
    *lengthscale, noise, rate, timescale = theta
    process, n = Process(lengthscale, noise, rate, timescale), len(y)
    rows = list(zip(X, time, strict=True))
    known = [*rows, *pending]
    A, B = process.matrix(rows).numpy(), process.matrix(known).numpy()
    c = np.array([process.covariance(row, (x, now)) for row in known])
    square = float(y @ np.linalg.solve(A, y))
    evidence = (
        gammaln(1 + n / 2)
        - 0.5 * np.linalg.slogdet(A)[1]
        - n / 2 * math.log(2 * math.pi)
        - (1 + n / 2) * math.log(1 + square / 2)
    )
    mean, variance = float(c[:n] @ np.linalg.solve(A, y)), 2.0 - float(c @ np.linalg.solve(B, c))
    return mean, (2 + square) / (2 + n) * variance, evidence
