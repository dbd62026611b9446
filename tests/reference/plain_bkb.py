"""BKB, Figure 1 of Calandriello et al. (2019), from the paper: dense, one replicate, one row per observation."""

import numpy as np
import torch

from tests.reference.dense_dtc import dtc


class PlainBKB:
    """Covariance K of the arms; ``qbar(t)`` for t observations; ``coin(arm)`` is the uniform number that an arm
    pulled so far gets at this draw.

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
            p = min(1.0, self.qbar(len(observations)) * float(variance[x]))
            if coin(x) < 1 - (1 - p) ** observations.count(x):
                drawn.append(x)
        self.pulled, self.rewards = observations, [*self.rewards, reward]
        self.dictionary = drawn or [arm]


def share_drawn(qbar, leverage, count, generator: np.random.Generator, draws):
    """How often any of ``count`` observations, each with its own Bernoulli(qbar leverage), brings its arm in."""
    return float((generator.random((draws, count)) < qbar * leverage).any(1).mean())


def guessed_norm(K, pulled, rewards, dictionary, noise_variance, first, half_width):
    """The first of ``first``, 2 ``first``, 4 ``first``, ... whose ball meets the confidence set of section 4.

    The set is ||w - w~||_A~ <= sqrt(lambda) half_width(F), A~ = Phi~^T Phi~ + lambda I, in N coordinates of the arms'
    features Phi; the dictionary is the projection P, Phi~ = Phi P. The nearest point of the ball is found by projected
    gradients.
    """
    values, vectors = np.linalg.eigh(np.asarray(K))
    features = vectors * np.sqrt(values.clip(0))
    basis, size, _ = np.linalg.svd(features[dictionary].T, full_matrices=False)
    basis = basis[:, size > 1e-7 * size[0]]
    seen = features[pulled] @ basis @ basis.T
    A = seen.T @ seen + noise_variance * np.eye(len(values))
    center = np.linalg.solve(A, seen.T @ np.asarray(rewards))
    guess, step = first, 1 / np.linalg.eigvalsh(A)[-1]
    while True:
        w = np.zeros_like(center)
        for _ in range(20_000):
            w = w - step * (A @ (w - center))
            w *= min(1.0, guess / np.linalg.norm(w))
        distance = np.sqrt((w - center) @ A @ (w - center) / noise_variance)
        if distance <= half_width(guess):
            return guess, distance
        guess *= 2
