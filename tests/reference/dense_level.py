"""Arms' parts and a common level, by the textbook: all rewards at once, conditioned on in one solve."""

import math

import numpy as np


def posterior(K, noise, eps, v, timescale, arms, times, rewards, time):
    """Mean (N + 1,) and covariance (N + 1, N + 1) at ``time`` of (f_1, ..., f_N, l), given the rewards of ``arms`` at
    ``times``: y = f(arm, t) + l(t) + noise (Rasmussen & Williams 2006, equations 2.23 and 2.24)."""

    def over_arms(gap):
        return (1 - eps) ** (abs(gap) / 2)

    def level(gap):
        r = math.sqrt(3) * abs(gap) / timescale
        return v * (1 + r) * math.exp(-r)

    N, T = len(K), len(arms)
    prior = np.zeros((N + 1, N + 1))
    prior[:N, :N], prior[N, N] = K, v
    if not T:
        return np.zeros(N + 1), prior
    among, across = np.empty((T, T)), np.empty((N + 1, T))
    for j in range(T):
        for k in range(T):
            gap = times[j] - times[k]
            among[j, k] = K[arms[j], arms[k]] * over_arms(gap) + level(gap)
        across[:N, j] = K[:, arms[j]] * over_arms(time - times[j])
        across[N, j] = level(time - times[j])
    gain = np.linalg.solve(among + noise * np.eye(T), across.T).T
    return gain @ np.asarray(rewards), prior - gain @ across.T
