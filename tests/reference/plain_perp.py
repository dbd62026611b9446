"""R-PERP for one run: plans, permutations and elimination, each posterior from a dense solve."""

import math

import numpy as np

from tests.reference.dense_arm_gp import DenseArmGP


def most_uncertain(dense, arms):
    """The first of the arms with the largest deviation."""
    variance = dense.answers().covariance.diagonal().tolist()
    return max(sorted(arms), key=lambda x: (round(math.sqrt(max(variance[x], 0.0)), 9), -x))


class Perp:
    """``uniform(n)`` gives n numbers on [0, 1): their order is the permutation."""

    def __init__(self, K, noise, width, interval, uniform):
        self.K, self.noise, self.width, self.interval, self.uniform = K, noise, width, interval, uniform
        self.restart()

    def restart(self):
        self.left, self.steps, self.size = set(range(len(self.K))), 0, 1
        self.plan()

    def plan(self):
        self.size = min(math.ceil(math.sqrt(self.interval * self.size) - 1e-9), self.interval - self.steps)
        chosen, planned = [], DenseArmGP(self.K, self.noise)
        for _ in range(self.size):
            chosen.append(most_uncertain(planned, self.left))
            planned.observe(chosen[-1], 0.0)
        numbers = self.uniform(self.size)
        self.queue = [chosen[j] for j in np.argsort(numbers, kind="stable")]
        self.dense = DenseArmGP(self.K, self.noise)

    def choose(self, available):
        for arm in self.queue:
            if available[arm]:
                return arm
        allowed = [x for x in range(len(self.K)) if available[x]]
        return most_uncertain(self.dense, [x for x in allowed if x in self.left] or allowed)

    def learn(self, arm, reward):
        if arm in self.queue:
            self.queue.remove(arm)
        self.dense.observe(arm, reward)
        self.steps += 1
        if len(self.dense.held) < self.size:
            return
        mean, covariance = self.dense.joint()
        half = self.width * covariance.diagonal().clamp_min(0).sqrt()
        best = max(mean[x] - half[x] for x in self.left)
        self.left = {x for x in self.left if mean[x] + half[x] >= best}
        if self.steps == self.interval:
            self.restart()
        else:
            self.plan()
