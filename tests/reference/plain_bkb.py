"""Coins and guessed norms of Calandriello et al. (2019), from the paper; BKB itself: ``numpy_bkb``."""

import numpy as np


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
