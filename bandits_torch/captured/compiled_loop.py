"""The loop over replicates and steps that numba compiles. Its letters are those of ``CovarianceForm``."""

# mypy: ignore-errors
from __future__ import annotations

import math

import numpy as np
from numba import njit

from bandits_torch.models.arms.posterior_of_counts import FRAIL, REMOVED

_TINY = np.finfo(np.float64).eps
_LEAST_VARIANCE = 1e-12  # under a bound, as BoTorch's analytic acquisitions have it
_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def play(state, told, world, widths, moves, root, given, written, improves, margin, largest, of_rewards):
    """Play k steps of every replicate, and leave its state as they would.

    State: mean (S, N), C (S, N, N), gain, surprise, removed, frail (S,). Told: K (q, N, N), prior_mean (S, N),
    noise_variance (S,); expected rewards (1 or k, 1 or S, N), noise (k, S), masks (1 or k, 1 or S, N); widths
    A + sqrt(P gain + Q), (k, S) each; where it drifts a and e, (k, 1 or S, 1); where it slides what leaves, (k, S);
    where it draws normal numbers (k, S, N) and the root F (S, N, N), F^T F = C, which is state too; where it improves
    (1: with the largest probability, 2: by most) by a margin, the largest reward, (S,), NaN: on the largest mean.
    Written: arms, rewards, means (expected rewards), widths, (k, S) each.
    """
    mean, C, gain, surprise, removed, frail = state
    K, prior_mean, noise_variance = told
    expected, noise, available = world
    A, P, Q = widths
    kept, gained, leaving_arm, leaving, normal = moves
    drifts, masked, slides, draws = given
    arms, rewards, means, used = written
    (k, S), N = noise.shape, mean.shape[1]
    row, unit, draw = np.empty(N), np.empty(N), np.empty(N)
    for s in range(S):
        m, c, prior, own, lam = mean[s], C[s], K[s % K.shape[0]], prior_mean[s], noise_variance[s]
        variance = np.diag(c).copy()
        for j in range(k):
            p, e = 1.0, 0.0
            if drifts:
                a = kept[j, min(s, kept.shape[1] - 1), 0]
                p, e = a * a, gained[j, min(s, kept.shape[1] - 1), 0]
                m *= a
                variance[:] = p * variance + e * np.diag(prior)
            if draws:
                _product(normal[j, s], root[s], draw)
            w = A[j, s] + math.sqrt(P[j, s] * gain[s] + Q[j, s])
            i, most, best = 0, -np.inf, largest[s]
            if masked:
                open_to = available[min(j, len(available) - 1), min(s, available.shape[1] - 1)]
            if improves and math.isnan(best):
                best = -np.inf
                for n in range(N):
                    if not masked or open_to[n]:
                        best = max(best, m[n] + own[n])
            for n in range(N):
                if masked and not open_to[n]:
                    continue
                spread = draw[n] if draws else math.sqrt(max(variance[n], _LEAST_VARIANCE))
                index = m[n] + own[n] + w * spread
                if improves:
                    index = (m[n] + own[n] - (best + margin)) / spread
                    index = index if improves == 1 else _log_improvement(index) + math.log(spread)
                if index > most:
                    i, most = n, index
            mu = expected[min(j, len(expected) - 1), min(s, expected.shape[1] - 1), i]
            y = mu + noise[j, s]
            arms[j, s], rewards[j, s], means[j, s], used[j, s] = i, y, mu, w
            if of_rewards:
                largest[s] = y if math.isnan(largest[s]) else max(largest[s], y)
            y -= own[i]
            for move in range(1 + slides):  # the reward; one that leaves
                sign = 1.0 - 2.0 * move
                if sign < 0:
                    i, y, p, e = leaving_arm[j, s], leaving[j, s], 1.0, 0.0
                if draws:
                    _turn(root[s], i, sign, lam, unit, draw)
                row[:] = p * c[i] + e * prior[i]
                row[i] = variance[i]
                total = max(lam + sign * variance[i], _TINY * lam)
                unit[:] = row / math.sqrt(total)
                z = (y - m[i]) / math.sqrt(total)
                m += sign * z * unit
                variance -= sign * unit * unit
                variance[i] = row[i] * lam / total
                _move(c, prior, variance, row, unit, i, lam / total, sign, p, e)
                surprise[s] += sign * z * z
                gain[s] -= 0.5 * math.log(lam / total)
                if sign < 0:
                    removed[s] += z * z
                    frail[s] |= total < FRAIL * lam or removed[s] > REMOVED * (1.0 + surprise[s])


@_compiled
def _move(c, prior, variance, row, unit, i, left, sign, p, e):
    """C <- p C + e K - sign u u^T, whose row i is ``row`` times ``left``."""
    N = len(row)
    for r in range(N):
        u = sign * unit[r]
        if e == 0.0 and p == 1.0:
            for n in range(N):
                c[r, n] -= u * unit[n]
        else:
            for n in range(N):
                c[r, n] = p * c[r, n] + e * prior[r, n] - u * unit[n]
    for n in range(N):
        c[i, n] = c[n, i] = row[n] * left
    for n in range(N):
        c[n, n] = variance[n]


@_compiled
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


@_compiled
def _product(z, F, out):
    """z^T F."""
    out[:] = 0.0
    for r in range(len(z)):
        for n in range(len(z)):
            out[n] += z[r] * F[r, n]


@_compiled
def _turn(F, i, sign, lam, f, product):
    """The root after an observation (sign 1) or a removal (-1) of arm i: F -= f (f^T F) / (s + sqrt(lambda s))."""
    f[:] = F[:, i]
    s = max(lam + sign * (f * f).sum(), _TINY * lam)
    _product(f, F, product)
    scale = sign / (s + math.sqrt(lam * s))
    for r in range(len(f)):
        for n in range(len(f)):
            F[r, n] -= scale * f[r] * product[n]
