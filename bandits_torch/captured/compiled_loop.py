"""The loop over replicates and steps that numba compiles. Its letters are those of ``CovarianceForm``."""

# mypy: ignore-errors
from __future__ import annotations

import math

import numpy as np
from numba import njit

from bandits_torch.models.arms.posterior_of_counts import FRAIL, REMOVED

_TINY = np.finfo(np.float64).eps
_LEAST_VARIANCE = 1e-12  # under a bound, as BoTorch's analytic acquisitions have it


@njit(cache=True, nogil=True, error_model="numpy")
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
    k, S = noise.shape
    N = mean.shape[1]
    row, unit, variance, draw = np.empty(N), np.empty(N), np.empty(N), np.empty(N)
    for s in range(S):
        m, c, prior, own = mean[s], C[s], K[s % K.shape[0]], prior_mean[s]
        lam = noise_variance[s]
        for n in range(N):
            variance[n] = c[n, n]
        for j in range(k):
            p, e = 1.0, 0.0
            if drifts:
                at = min(s, kept.shape[1] - 1)
                a = kept[j, at, 0]
                p, e = a * a, gained[j, at, 0]
                for n in range(N):
                    m[n] *= a
                    variance[n] = p * variance[n] + e * prior[n, n]
            if draws:
                _product(normal[j, s], root[s], draw)
            w = A[j, s] + math.sqrt(P[j, s] * gain[s] + Q[j, s])
            i, most, best = 0, -np.inf, largest[s]
            if improves and math.isnan(best):
                best = (m + own).max()
            for n in range(N):
                if masked and not available[min(j, len(available) - 1), min(s, available.shape[1] - 1), n]:
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
            # a reward of arm i
            if draws:
                _turn(root[s], i, 1.0, lam, unit, draw)
            for n in range(N):
                row[n] = p * c[i, n] + e * prior[i, n]
            row[i] = variance[i]
            total = variance[i] + lam
            left, scale = lam / total, 1.0 / math.sqrt(total)
            z = _move(c, prior, m, variance, row, unit, i, y - own[i], scale, left, 1.0, p, e)
            surprise[s] += z * z
            gain[s] -= 0.5 * math.log(left)
            if slides:
                i, y = leaving_arm[j, s], leaving[j, s]
                if draws:
                    _turn(root[s], i, -1.0, lam, unit, draw)
                row[:] = c[i]
                rest = max(lam - variance[i], _TINY * lam)
                left, scale = lam / rest, 1.0 / math.sqrt(rest)
                z = _move(c, prior, m, variance, row, unit, i, y, scale, left, -1.0, 1.0, 0.0)
                surprise[s] -= z * z
                removed[s] += z * z
                if rest < FRAIL * lam or removed[s] > REMOVED * (1.0 + surprise[s]):
                    frail[s] = True
                gain[s] -= 0.5 * math.log(left)


@njit(cache=True, nogil=True, error_model="numpy")
def _move(c, prior, m, variance, row, unit, i, residual, scale, left, sign, p, e):
    """C <- p C + e K - sign u u^T with u = row * scale, and so for mean and variances; the innovation."""
    N = len(m)
    z = (residual - m[i]) * scale
    for n in range(N):
        unit[n] = row[n] * scale
    for n in range(N):
        m[n] += sign * unit[n] * z
        variance[n] -= sign * unit[n] * unit[n]
    variance[i] = row[i] * left
    for r in range(N):
        u = sign * unit[r]
        if e == 0.0 and p == 1.0:
            for n in range(N):
                c[r, n] -= u * unit[n]
        else:
            for n in range(N):
                c[r, n] = p * c[r, n] + e * prior[r, n] - u * unit[n]
    for n in range(N):
        x = row[n] * left
        c[i, n] = x
        c[n, i] = x
    for n in range(N):
        c[n, n] = variance[n]
    return z


@njit(cache=True, nogil=True, error_model="numpy")
def _log_improvement(u):
    """ln(phi(u) + u Phi(u)); far below 0 by its asymptotic series, whose last term is below 1e-12."""
    if u > -30.0:
        return math.log(
            math.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) + 0.5 * u * math.erfc(-u / math.sqrt(2))
        )
    r, term, total = 1.0 / (u * u), 1.0, 1.0
    for k in range(1, 7):
        term *= -(2 * k + 1) * r
        total += term
    return -0.5 * u * u - 0.5 * math.log(2 * math.pi) - 2 * math.log(-u) + math.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def _product(z, F, out):
    """z^T F."""
    out[:] = 0.0
    for r in range(len(z)):
        for n in range(len(z)):
            out[n] += z[r] * F[r, n]


@njit(cache=True, nogil=True, error_model="numpy")
def _turn(F, i, sign, lam, f, product):
    """The root after an observation (sign 1) or a removal (-1) of arm i: F -= f (f^T F) / (s + sqrt(lambda s))."""
    N = len(f)
    s = lam
    for n in range(N):
        f[n] = F[n, i]
        s += sign * f[n] * f[n]
    s = max(s, _TINY * lam)
    _product(f, F, product)
    scale = sign / (s + math.sqrt(lam * s))
    for r in range(N):
        x = scale * f[r]
        for n in range(N):
            F[r, n] -= x * product[n]
