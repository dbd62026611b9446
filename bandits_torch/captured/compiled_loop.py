"""The loop over replicates and steps that numba compiles. It uses the symbols of ``CovarianceForm``."""

# mypy: ignore-errors
from __future__ import annotations

import math

import numpy as np
from numba import njit

from bandits_torch.models.arms.covariance_form import FOLD
from bandits_torch.models.arms.posterior_of_counts import LEAST_LEFT, REMOVED

TINY = np.finfo(np.float64).eps
_LEAST_VARIANCE = 1e-12  # of an improvement, as BoTorch's analytic acquisitions have it
_LEAST_UNDER_A_BOUND = np.finfo(np.float64).tiny  # as ``UpperConfidenceBound`` has it
_TOGETHER = 64  # rows of C that are folded together, so that they stay in the cache
compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})


@compiled
def play(state, told, world, widths, moves, has, margin, largest, out):
    """Play k steps of every replicate, and leave its state as plain steps would, with all rows folded.

    State: mean and variance (S, N), C_0 and the root F of C, F^T F = C, (S, N, N), a^2 and e (S, 1), gain, surprise,
    removed, suspect (S,). Settings: K (q, N, N), prior_mean (S, N), noise_variance (S,). Problem: expected rewards (1
    or k, 1 or S, N), noise (k, S), masks (1 or k, 1 or S, N). Widths: A + sqrt(P gain + Q), (k, S) each. Moves: under
    drift a and e, (k, 1 or S, 1); for Thompson sampling normal numbers (k, S, N); for a window the observations that
    leave, (k, S). Improvements (probability or expectation) are measured by a margin over the largest mean, or with
    ``by_reward`` over the largest reward of an available arm, if there is one; the largest reward of each arm, (S, N),
    is kept up to date. Outputs: arms, rewards, expected rewards, widths, (k, S).

    C is a^2 C_0 - W^T D W + e K. For Thompson sampling F is F_0 - G^T W, with the root of each row's observation in G.
    """
    mean, variance, C, root, squared, since, gain, surprise, removed, suspect = state
    K, prior_mean, noise_variance = told
    expected, noise, available = world
    A, P, Q = widths
    kept, gained, normal, leaving_arm, leaving = moves
    drifts, slides, draws, improves, by_most, by_reward = has
    arms, rewards, means, used = out
    (k, S), N = noise.shape, mean.shape[1]
    waiting = FOLD * (1 + slides)
    W, G, written, D = (
        np.empty((waiting, N)),
        np.empty((waiting, N)),
        np.empty((waiting, N)),
        np.empty(waiting),
    )
    written_arm, slot = np.empty(waiting, np.int64), np.full(N, -1)  # of rows of C that are kept up to date
    row, draw, drawn = np.empty(N), np.empty(N), np.empty((0, N))
    for s in range(S):
        m, v, c, F = mean[s], variance[s], C[s], root[s % len(root)]
        prior, own, lam = K[s % len(K)], prior_mean[s], noise_variance[s]
        prior_variance = np.diag(prior)
        filled, count = 0, 0
        least = _LEAST_VARIANCE if improves else _LEAST_UNDER_A_BOUND
        for j in range(k):
            if drifts:
                a, e = kept[j, s % kept.shape[1], 0], gained[j, s % kept.shape[1], 0]
                m *= a
                v[:] = a * a * v + e * prior_variance
                D[:filled] *= a * a
                squared[s], since[s] = a * a * squared[s], a * a * since[s] + e
            if draws:
                if not filled:
                    drawn, begun = np.dot(np.ascontiguousarray(normal[j : j + waiting, s]), F), j
                draw[:] = drawn[j - begun]
                add(draw, -np.dot(G[:filled], normal[j, s]), W)
            w = A[j, s] + math.sqrt(P[j, s] * gain[s] + Q[j, s])
            may = available[j % len(available), s % available.shape[1]]
            i, most, best = 0, -np.inf, -np.inf
            if by_reward:
                best = largest[s][may].max()
            if improves and best == -np.inf:
                best = (m + own)[may].max()
            for n in range(N):
                if not may[n]:
                    continue
                spread = draw[n] if draws else math.sqrt(max(v[n], least))
                index = m[n] + own[n] + w * spread
                if improves:
                    index = (m[n] + own[n] - (best + margin)) / spread
                    index = _log_improvement(index) + math.log(spread) if by_most else index
                if index > most:
                    i, most = n, index
            mu = expected[j % len(expected), s % expected.shape[1], i]
            y = mu + noise[j, s]
            arms[j, s], rewards[j, s], means[j, s], used[j, s] = i, y, mu, w
            if by_reward:
                largest[s, i] = max(largest[s, i], y)
            y -= own[i]
            for move in range(1 + slides):  # the reward; one that leaves
                sign = 1.0 - 2.0 * move
                if move:
                    i, y = leaving_arm[j, s], leaving[j, s]
                if slot[i] >= 0:
                    row[:] = written[slot[i]]
                else:
                    row[:] = squared[s, 0] * c[i] + since[s, 0] * prior[i]
                    add(row, -D[:filled] * W[:filled, i], W)
                row[i] = v[i]
                total = max(lam + sign * v[i], TINY * lam)
                left, deviation = lam / total, math.sqrt(total)
                if draws:
                    G[filled] = F[:, i]
                    add(G[filled], -W[:filled, i], G)
                    G[filled] *= sign / (deviation + math.sqrt(lam))
                unit, z = W[filled], (y - m[i]) / deviation
                for n in range(N):
                    unit[n] = row[n] / deviation
                    m[n] += sign * z * unit[n]
                    v[n] -= sign * unit[n] * unit[n]
                v[i] = row[i] * left
                D[filled], filled = sign, filled + 1
                if not drifts:
                    for q in range(count):
                        x = sign * unit[written_arm[q]]
                        for n in range(N):
                            written[q, n] -= x * unit[n]
                    if slot[i] < 0:
                        slot[i], written_arm[count], count = count, i, count + 1
                    written[slot[i]] = row * left
                surprise[s] += sign * z * z
                gain[s] -= 0.5 * math.log(left)
                if move:
                    removed[s] += z * z
                    suspect[s] |= total < LEAST_LEFT * lam or removed[s] > REMOVED * (1.0 + surprise[s])
            if filled == waiting or j == k - 1:
                weighted = np.ascontiguousarray((D[:filled].reshape(-1, 1) * W[:filled]).T)
                for r in range(0, N, _TOGETHER):
                    rows = slice(r, r + _TOGETHER)
                    c[rows] = (
                        squared[s] * c[rows] + since[s] * prior[rows] - np.dot(weighted[rows], W[:filled])
                    )
                if draws:
                    F -= np.dot(G[:filled].T, W[:filled])
                for q in range(count):
                    c[written_arm[q]] = written[q]
                    c[:, written_arm[q]] = written[q]
                for n in range(N):
                    c[n, n] = v[n]
                slot[:], filled, count, squared[s], since[s] = -1, 0, 0, 1.0, 0.0


@compiled
def add(out, x, rows):
    """``out`` plus x^T ``rows``, of the first len(x) rows, four at a time."""
    whole = len(x) // 4 * 4
    for r in range(0, whole, 4):
        a, b, c, d = x[r], x[r + 1], x[r + 2], x[r + 3]
        for n in range(len(out)):
            out[n] += a * rows[r, n] + b * rows[r + 1, n] + c * rows[r + 2, n] + d * rows[r + 3, n]
    for r in range(whole, len(x)):
        for n in range(len(out)):
            out[n] += x[r] * rows[r, n]


@compiled
def _log_improvement(u):
    """ln(phi(u) + u Phi(u)); far below 0 by its asymptotic series, whose last term is below 1e-12."""
    if u > -30.0:
        return math.log(
            math.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) + 0.5 * u * math.erfc(-u / math.sqrt(2))
        )
    term, total = 1.0, 1.0
    for k in range(1, 7):
        term *= -(2 * k + 1) / (u * u)
        total += term
    return -0.5 * u * u - 0.5 * math.log(2 * math.pi) - 2 * math.log(-u) + math.log(total)
