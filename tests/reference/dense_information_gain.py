"""Information gain from dense determinants, and its maximum by trying everything."""

from itertools import combinations_with_replacement

import torch
from torch import Tensor


def gain_of(covariance: Tensor, noise_variance: float, arms: tuple[int, ...]) -> float:
    """1/2 log det(I + K_A / lambda) of the arms A, in which an arm may occur several times."""
    K = covariance[list(arms)][:, list(arms)]
    return (
        0.5 * torch.logdet(torch.eye(len(arms), dtype=K.dtype) + K / noise_variance).item() if arms else 0.0
    )


def greedy_gain(covariance: Tensor, noise_variance: float, points: int) -> float:
    """Gain of ``points`` picks, each the arm that adds most; every candidate set is scored afresh."""
    chosen: tuple[int, ...] = ()
    for _ in range(points):
        candidates = [(*chosen, i) for i in range(len(covariance))]
        chosen = max(candidates, key=lambda arms: gain_of(covariance, noise_variance, arms))
    return gain_of(covariance, noise_variance, chosen)


def largest_gain(covariance: Tensor, noise_variance: float, points: int) -> float:
    """gamma_n: the best of all multisets of ``points`` arms."""
    sets = combinations_with_replacement(range(len(covariance)), points)
    return max(gain_of(covariance, noise_variance, arms) for arms in sets)
