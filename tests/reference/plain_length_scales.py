"""A-GP-UCB and LB-GP-UCB for one run, every length-scale refitted from all rewards at every step."""

import math

import numpy as np

from tests.reference.dense_arm_gp import DenseArmGP


class Members:
    """Squared exponential kernels of several length-scales over arms (N, d), and all pulls so far."""

    def __init__(self, arms, lengthscales, noise, B, R, delta):
        squared = ((arms[:, None] - arms[None]) ** 2).sum(-1)
        self.dense = [DenseArmGP((-squared / (2 * length**2)).exp(), noise) for length in lengthscales]
        self.noise, self.B, self.R, self.delta = noise, B, R, delta

    def posterior(self, p):
        """Mean, deviation and IGP-UCB's width of member p."""
        mean, covariance, gain, _ = self.dense[p].answers()
        excess = math.sqrt(2 * gain + 2 * math.log(1 / self.delta))
        width = self.B[p] + self.R / math.sqrt(self.noise) * excess
        return mean.numpy(), covariance.diagonal().clamp_min(0).sqrt().numpy(), width

    def best(self, p, available):
        """Arm, and width times deviation there."""
        mean, deviation, width = self.posterior(p)
        index = np.where(available, mean + width * deviation, -np.inf)
        arm = int(index.argmax())
        return arm, width * deviation[arm]

    def tell(self, arm, reward):
        for dense in self.dense:
            dense.observe(arm, reward)


def shrinking(members, factors, shrink, t):
    """The member of A-GP-UCB at step t: the first whose factor is not below g(t)."""
    g = max(1.0, t**shrink)
    for p, factor in enumerate(factors):
        if factor >= g - 1e-9:
            return p
    return len(factors) - 1


class Balancing:
    """The records of LB-GP-UCB."""

    def __init__(self, factors, shrink, lengthscale, dim, B, R, delta):
        self.factors, self.shrink, self.lengthscale, self.dim = factors, shrink, lengthscale, dim
        self.B, self.R, self.delta = B, R, delta
        self.dropped = set()
        self.rewards = {p: [] for p in range(len(factors))}
        self.bounds = {p: [] for p in range(len(factors))}

    def playing(self, t):
        g = max(1.0, t**self.shrink)
        return [p for p, factor in enumerate(self.factors) if factor <= g + 1e-9 and p not in self.dropped]

    def follow(self, t):
        def suspected(p):
            n = len(self.rewards[p]) + 1
            theta = self.lengthscale / self.factors[p]
            gamma = theta**-self.dim * math.log(n + 1) ** (self.dim + 1)
            return math.sqrt(n * gamma) * (math.sqrt(gamma) + self.B)

        return min(self.playing(t), key=suspected)

    def judge(self, t, p, reward, bound):
        playing = self.playing(t)
        self.rewards[p].append(reward)
        self.bounds[p].append(bound)
        if not all(self.rewards[q] for q in playing):
            return
        xi = 2 * self.R**2 * math.log(2 * len(self.factors) * math.pi**2 * t**2 / (3 * self.delta))
        mean = {q: sum(self.rewards[q]) / len(self.rewards[q]) for q in playing}
        noise = {q: math.sqrt(xi / len(self.rewards[q])) for q in playing}
        best = max(mean[q] - noise[q] for q in playing)
        for q in playing:
            slack = 2 * sum(self.bounds[q]) / len(self.bounds[q])
            if mean[q] + noise[q] + slack < best:
                self.dropped.add(q)
