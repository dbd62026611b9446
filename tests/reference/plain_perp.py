"""R-PERP for one run: plans, permutations and elimination, each posterior from a dense solve."""

from __future__ import annotations

import math

import numpy as np


def posterior(K, noise, arms, rewards):
    if not arms:
        return np.zeros(len(K)), np.sqrt(np.diag(K))
    among, cross = K[np.ix_(arms, arms)] + noise * np.eye(len(arms)), K[:, arms]
    mean = cross @ np.linalg.solve(among, np.array(rewards))
    variance = np.diag(K) - np.einsum("ij,ji->i", cross, np.linalg.solve(among, cross.T))
    return mean, np.sqrt(np.maximum(variance, 0))


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
        chosen = []
        for _ in range(self.size):
            deviation = posterior(self.K, self.noise, chosen, [0.0] * len(chosen))[1]
            chosen.append(max(sorted(self.left), key=lambda x: (round(deviation[x], 9), -x)))
        numbers = self.uniform(self.size)
        self.queue = [chosen[j] for j in np.argsort(numbers, kind="stable")]
        self.arms, self.rewards = [], []

    def choose(self, available):
        for arm in self.queue:
            if available[arm]:
                return arm
        deviation = posterior(self.K, self.noise, self.arms, self.rewards)[1]
        allowed = [x for x in range(len(self.K)) if available[x]]
        some = [x for x in allowed if x in self.left] or allowed
        return max(some, key=lambda x: (round(deviation[x], 9), -x))

    def learn(self, arm, reward):
        if arm in self.queue:
            self.queue.remove(arm)
        self.arms.append(arm)
        self.rewards.append(reward)
        self.steps += 1
        if len(self.arms) < self.size:
            return
        mean, deviation = posterior(self.K, self.noise, self.arms, self.rewards)
        best = max(mean[x] - self.width * deviation[x] for x in self.left)
        self.left = {x for x in self.left if mean[x] + self.width * deviation[x] >= best}
        if self.steps == self.interval:
            self.restart()
        else:
            self.plan()
