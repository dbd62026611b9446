"""Gaussian process regression in extended precision (64 bits of mantissa), to measure answers of float64 against.

At a noise variance of 1e-8 of the prior's, a dense solve in float64 is itself off by 1e-7 and more: it cannot judge.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.longdouble]

IS_PRECISE = float(np.finfo(np.longdouble).eps) < 1e-18  # not on Windows, nor on ARM


class Answers(NamedTuple):
    mean: Array
    covariance: Array
    gain: float
    log_likelihood: float


def precise(value: Any) -> Array:
    return np.asarray(value, dtype=np.longdouble)


def cholesky(A: Array) -> Array:
    """Lower factor of a positive definite matrix, column by column."""
    L = A.copy()
    for j in range(len(A)):
        L[j, j] = np.sqrt(L[j, j] - L[j, :j] @ L[j, :j])
        L[j + 1 :, j] = (L[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
        L[j, j + 1 :] = 0
    return L


def solve_lower(L: Array, right: Array) -> Array:
    """L^{-1} right, row by row."""
    x = right.copy()
    for i in range(len(L)):
        x[i] = (x[i] - L[i, :i] @ x[:i]) / L[i, i]
    return x


def gp(
    K: Array,
    arm: Sequence[int],
    residual: Sequence[float],
    noise: float,
    past: Array | None = None,
    cross: Array | None = None,
    now: Array | None = None,
    own_noise: Sequence[float] | None = None,
) -> Answers:
    """Posterior of all arms (Rasmussen & Williams 2006, equations 2.25, 2.26, 2.30), the prior's mean left out.

    K: (N, N) over arms. past (n, n), cross (n,), now (): time kernel among the observations, between them and now, and
    of now with itself; 1 when left out. own_noise (n,): in place of ``noise``.
    """
    n, a = len(arm), np.asarray(arm, dtype=int)
    lam = precise([noise] * n if own_noise is None else own_noise)
    prior = K * (precise(1.0) if now is None else now)
    if not n:
        return Answers(np.zeros(len(K), dtype=np.longdouble), prior, 0.0, 0.0)
    A = K[np.ix_(a, a)] * (precise(1.0) if past is None else past) + np.diag(lam)
    L = cholesky(A)
    with_all = K[a] * (precise(1.0) if cross is None else cross[:, None])
    solved = solve_lower(L, np.concatenate([precise(residual)[:, None], with_all], 1))
    z, V = solved[:, 0], solved[:, 1:]
    log_diagonal = np.log(np.diagonal(L)).sum()
    likelihood = -0.5 * z @ z - log_diagonal - 0.5 * n * np.log(2 * precise(math.pi))
    gain = log_diagonal - 0.5 * np.log(lam).sum()
    return Answers(V.T @ z, prior - V.T @ V, float(gain), float(likelihood))


def dtc(
    K: Array, arm: Sequence[int], residual: Sequence[float], dictionary: Sequence[int], noise: float
) -> Answers:
    """BKB's posterior (Calandriello et al. 2019, section 3.1), lambda taken out of the variance; no likelihood."""
    S, a, lam = np.asarray(dictionary, dtype=int), np.asarray(arm, dtype=int), precise(noise)
    if not len(S):
        return Answers(np.zeros(len(K), dtype=np.longdouble), K, 0.0, math.nan)
    z = solve_lower(cholesky(K[np.ix_(S, S)]), K[S])
    Z = z[:, a]
    V = Z @ Z.T + lam * np.eye(len(S), dtype=np.longdouble)
    L = cholesky(V)
    u, v = solve_lower(L, (Z @ precise(residual))[:, None])[:, 0], solve_lower(L, z)
    gain = np.log(np.diagonal(L)).sum() - 0.5 * len(S) * np.log(lam)
    return Answers(v.T @ u, K - z.T @ z + lam * (v.T @ v), float(gain), math.nan)


def weighted(K: Array, arm: Sequence[int], reward: Sequence[float], discount: float, noise: float) -> Answers:
    """Weighted regression and its sandwich variance (Deng, Zhou, Ghosh, Gupta & Shroff 2022), by arms."""
    n, lam, a = len(arm), precise(noise), np.asarray(arm, dtype=int)
    if not n:
        return Answers(np.zeros(len(K), dtype=np.longdouble), K, 0.0, math.nan)
    w = precise(discount) ** np.arange(n - 1, -1, -1)
    root = np.sqrt(w)
    L = cholesky(root[:, None] * K[np.ix_(a, a)] * root + lam * np.eye(n, dtype=np.longdouble))
    solved = solve_lower(L, np.concatenate([(root * precise(reward))[:, None], root[:, None] * K[a]], 1))
    z, V = solved[:, 0], solved[:, 1:]
    C = K - V.T @ V
    # lambda phi V^-1 V~ V^-1 phi = C V~ C / lambda in features; V~ = V - sum_s w_s (1 - w_s) phi phi^T
    lost = C[:, a] * (w * (1 - w)) @ C[a] / lam
    square = cholesky(w[:, None] * K[np.ix_(a, a)] * w + lam * np.eye(n, dtype=np.longdouble))
    gain = np.log(np.diagonal(square)).sum() - 0.5 * n * np.log(lam)
    return Answers(V.T @ z, C - lost, float(gain), math.nan)
