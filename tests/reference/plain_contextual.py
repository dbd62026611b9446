"""CGP-UCB as in Krause & Ong (2011), Algorithm 1: one replicate, one dense Gaussian process made anew at every step."""

import math

import numpy as np


def se(lengthscale):
    """exp(-|a - b|^2 / (2 l^2))."""
    return lambda a, b: math.exp(-sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / (2 * lengthscale**2))


def forgetting(rate):
    """(1 - eps)^(|t - s| / 2)."""
    return lambda t, s: (1 - rate) ** (abs(t - s) / 2)


COMBINED = {
    "product": lambda k, h: k * h,
    "sum": lambda k, h: k + h,
    "additive": lambda k, h: (1 + k) * (1 + h) - 1,
}


class PlainCGPUCB:
    """Everything it has seen, and the formulas of Rasmussen & Williams (2006), equations 2.25-2.26.

    ``arm_kernel``, ``context_kernel``: functions of two lists of numbers; ``over_time``: of two times.
    ``width``: a function of the step. ``window``: how many observations count, the last in order of arrival.
    """

    def __init__(
        self, arm_kernel, context_kernel, noise_variance, *, combine="product", over_time=None, width, mean=0.0,
        window=None,
    ):  # fmt: skip
        self.k, self.h, self.noise = arm_kernel, context_kernel, noise_variance
        self.combine, self.over_time = COMBINED[combine], over_time or (lambda t, s: 1.0)
        self.width, self.mean, self.window = width, mean, window
        self.seen, self.count = [], 0

    def covariance(self, one, other):
        (x, z, t), (a, b, s) = one, other
        return self.combine(self.k(x, a), self.h(z, b)) * self.over_time(t, s)

    def posterior(self, features, context, time):
        """Means and standard deviations of arms with these features in this context."""
        seen = self.seen if self.window is None else self.seen[-self.window :]
        points, rewards = [p for p, _ in seen], np.array([y for _, y in seen])
        new = [(list(x), list(context), time) for x in features]
        prior = np.array([self.covariance(p, p) for p in new])
        if not points:
            return np.full(len(new), self.mean), np.sqrt(prior)
        K = np.array([[self.covariance(p, q) for q in points] for p in points])
        cross = np.array([[self.covariance(p, q) for q in points] for p in new])
        solved = np.linalg.solve(K + self.noise * np.eye(len(points)), cross.T)
        mean = self.mean + (rewards - self.mean) @ solved
        return mean, np.sqrt(np.maximum(prior - (cross * solved.T).sum(-1), 0))

    def index(self, features, context, time):
        mean, deviation = self.posterior(features, context, time)
        return mean + self.width(self.count + 1) * deviation

    def learn(self, features, context, time, reward):
        self.seen.append(((list(features), list(context), time), reward))
        self.count += 1
