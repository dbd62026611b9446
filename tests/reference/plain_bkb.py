"""BKB, Figure 1 of Calandriello et al. (2019), from the paper: dense, one replicate, one row per observation."""

import numpy as np
import torch

from tests.reference.dense_dtc import dtc


class PlainBKB:
    """Covariance K of the arms; ``coin(arm)`` is the uniform number that an arm pulled so far gets at this draw.

    Figure 1 flips a coin for each observation and keeps an arm that any of its n observations brings in, so the arm
    enters with probability 1 - (1 - p)^n; one uniform number decides that. An empty dictionary, which Figure 1 cannot
    go on from, is replaced by the newest arm.
    """

    def __init__(self, K, noise_variance, qbar, width):
        self.K, self.lam, self.qbar, self.width = K, noise_variance, qbar, width
        self.pulled, self.rewards, self.dictionary = [], [], []

    def moments(self):
        """mu~_t, and sigma~_t^2 with its 1/lambda, of all arms."""
        if not self.pulled:
            return torch.zeros(len(self.K), dtype=self.K.dtype), self.K.diagonal() / self.lam
        mean, covariance = dtc(self.K, self.pulled, self.rewards, self.dictionary, self.lam)
        return mean, covariance.diagonal() / self.lam

    def choose(self):
        """The arm of the largest index; ``width`` multiplies the standard deviation in units of reward."""
        mean, variance = self.moments()
        return int((mean + self.width * (self.lam * variance).sqrt()).argmax())

    def learn(self, arm, reward, coin):
        _, variance = self.moments()  # sigma~_t: without the newest observation
        observations = [*self.pulled, arm]
        drawn = []
        for x in dict.fromkeys(observations):
            p = min(1.0, self.qbar * float(variance[x]))
            if coin(x) < 1 - (1 - p) ** observations.count(x):
                drawn.append(x)
        self.pulled, self.rewards = observations, [*self.rewards, reward]
        self.dictionary = drawn or [arm]


def share_drawn(qbar, leverage, count, generator: np.random.Generator, draws):
    """How often any of ``count`` observations, each with its own Bernoulli(qbar leverage), brings its arm in."""
    return float((generator.random((draws, count)) < qbar * leverage).any(1).mean())
