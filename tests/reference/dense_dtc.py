"""BKB's posterior from its formulas (Calandriello et al. 2019, section 3.1), one row per pull."""

import torch


def dtc(K, pulled, rewards, dictionary, noise_variance):
    """Mean and covariance (1/lambda taken out) of all N arms.

    K: N x N; pulled, rewards: one entry per observation; dictionary: arms of S.
    """
    values, vectors = torch.linalg.eigh(K[dictionary][:, dictionary])
    kept = values > 1e-13 * values[-1]
    z = (vectors[:, kept] * values[kept].rsqrt()) @ vectors[:, kept].T @ K[dictionary]  # m x N
    Z = z[:, pulled].T
    V = Z.T @ Z + noise_variance * torch.eye(len(dictionary), dtype=K.dtype)
    mean = z.T @ torch.linalg.solve(V, Z.T @ torch.as_tensor(rewards, dtype=K.dtype))
    return mean, K - z.T @ (Z.T @ Z) @ torch.linalg.solve(V, z)
