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
def play(
    state, waiting, filled, told, world, widths, moves, given, root, units, out, improves, margin, largest
):
    """Play k steps of every replicate, and leave its state as they would.

    State: mean and variance (S, N), C_0 (S, N, N), gain, surprise, removed, frail (S,). Waiting: W (S, 32, N), D, a^2,
    e, and the rows ``written`` with their arms, of which ``filled`` are in use; of no rows where none waits. Told:
    K (q, N, N), prior_mean (S, N), noise_variance (S,). World: expected rewards (1 or k, 1 or S, N), noise (k, S),
    masks (1 or k, 1 or S, N). Widths: A + sqrt(P gain + Q), (k, S) each. Moves: where it drifts a and e (k, 1 or S, 1);
    where it slides what leaves, (k, S); where it draws normal numbers (k, S, N) and the root F (S, N, N), F^T F = C:
    where it does not slide C itself is left as it was, and the rows that leave it are ``units``, (S, k, N); to remove
    an observation takes the figures that rows of C have, and F^T F has not. Where it improves (1: with the largest
    probability, 2: by most) by a margin, on the largest mean. 3 and 4 are 1 and 2, on the largest reward of an
    available arm, if there is one; that of each arm, (S, N), is kept up to date. Out: arms, rewards, expected rewards,
    widths, (k, S).
    """
    mean, variance, C, gain, surprise, removed, frail = state
    rows, weight, squared, since, written, written_arm = waiting
    K, prior_mean, noise_variance = told
    expected, noise, available = world
    A, P, Q = widths
    kept, gained, leaving_arm, leaving, normal = moves
    drifts, masked, slides, draws = given
    arms, rewards, means, used = out
    (k, S), N = noise.shape, mean.shape[1]
    row, unit, draw, by_root = np.empty(N), np.empty(N), np.empty(N), draws and not slides
    for s in range(S):
        m, v, c, prior, own, lam = mean[s], variance[s], C[s], K[s % len(K)], prior_mean[s], noise_variance[s]
        W, D, full = rows[s], weight[s], filled
        if draws:
            _product(normal[0, s], root[s], draw)
        for j in range(k):
            if drifts:
                a, e = kept[j, min(s, kept.shape[1] - 1), 0], gained[j, min(s, kept.shape[1] - 1), 0]
                m *= a
                v[:] = a * a * v + e * np.diag(prior)
                D *= a * a
                squared[s, 0], since[s, 0] = a * a * squared[s, 0], a * a * since[s, 0] + e
            w = A[j, s] + math.sqrt(P[j, s] * gain[s] + Q[j, s])
            i, most, best = 0, -np.inf, -np.inf
            if masked:
                open_to = available[min(j, len(available) - 1), min(s, available.shape[1] - 1)]
            if improves > 2:
                for n in range(N):
                    if not masked or open_to[n]:
                        best = max(best, largest[s, n])
            if improves and best == -np.inf:
                for n in range(N):
                    if not masked or open_to[n]:
                        best = max(best, m[n] + own[n])
            for n in range(N):
                if masked and not open_to[n]:
                    continue
                spread = draw[n] if draws else math.sqrt(max(v[n], _LEAST_VARIANCE))
                index = m[n] + own[n] + w * spread
                if improves:
                    index = (m[n] + own[n] - (best + margin)) / spread
                    index = index if improves % 2 else _log_improvement(index) + math.log(spread)
                if index > most:
                    i, most = n, index
            mu = expected[min(j, len(expected) - 1), min(s, expected.shape[1] - 1), i]
            y = mu + noise[j, s]
            arms[j, s], rewards[j, s], means[j, s], used[j, s] = i, y, mu, w
            if improves > 2:
                largest[s, i] = max(largest[s, i], y)
            y -= own[i]
            for move in range(1 + slides):  # the reward; one that leaves
                sign = 1.0 - 2.0 * move
                if sign < 0:
                    i, y = leaving_arm[j, s], leaving[j, s]
                slot = np.flatnonzero(written_arm[s] == i)
                if draws:
                    f = root[s, :, i].copy()
                    _product(f, root[s], row)
                    _turn(root[s], f, row, sign, lam, normal[min(j + 1, k - 1), s], draw)
                if len(slot):
                    row[:] = written[s, slot[0]]
                elif not by_root:
                    _row(c, prior, squared[s, 0], since[s, 0], W[:full], D, i, row)
                row[i] = v[i]
                total = max(lam + sign * v[i], _TINY * lam)
                left = lam / total
                unit[:] = row / math.sqrt(total)
                z = (y - m[i]) / math.sqrt(total)
                m += sign * z * unit
                v -= sign * unit * unit
                v[i] = row[i] * left
                if by_root:
                    units[s, j] = unit
                elif len(W):
                    for q in range(len(written_arm[s])):
                        written[s, q] -= sign * unit[max(written_arm[s, q], 0)] * unit
                    if len(written_arm[s]):
                        q = slot[0] if len(slot) else full
                        written[s, q], written_arm[s, q] = row * left, i
                    W[full], D[full], full = unit, sign, full + 1
                    if full == len(W):
                        full = 0
                        _fold(c, prior, squared[s, 0], since[s, 0], W, D, written[s], written_arm[s])
                        squared[s, 0], since[s, 0] = 1.0, 0.0
                else:
                    for r in range(N):
                        u = sign * unit[r]
                        for n in range(N):
                            c[r, n] -= u * unit[n]
                    for n in range(N):
                        c[i, n] = c[n, i] = row[n] * left
                surprise[s] += sign * z * z
                gain[s] -= 0.5 * math.log(left)
                if sign < 0:
                    removed[s] += z * z
                    frail[s] |= total < FRAIL * lam or removed[s] > REMOVED * (1.0 + surprise[s])


@_compiled
def _product(z, F, out):
    """z^T F, four rows of F at a time."""
    out[:] = 0.0
    for r in range(0, len(F) - 3, 4):
        for n in range(F.shape[1]):
            out[n] += (
                z[r] * F[r, n] + z[r + 1] * F[r + 1, n] + z[r + 2] * F[r + 2, n] + z[r + 3] * F[r + 3, n]
            )
    for r in range(len(F) - len(F) % 4, len(F)):
        for n in range(F.shape[1]):
            out[n] += z[r] * F[r, n]


@_compiled
def _row(c, prior, squared, since, W, D, i, out):
    """Row i of C = a^2 C_0 - W^T D W + e K."""
    _product(D[: len(W)] * W[:, i], W, out)
    if squared == 1.0 and since == 0.0:
        out[:] = c[i] - out
    else:
        out[:] = squared * c[i] + since * prior[i] - out


@_compiled
def _fold(c, prior, squared, since, W, D, written, written_arm):
    """C_0 becomes C."""
    row = np.empty(len(c))
    for r in range(len(c)):
        _row(c, prior, squared, since, W, D, r, row)
        c[r] = row
    for q in range(len(written_arm)):
        if written_arm[q] >= 0:
            c[written_arm[q]] = written[q]
            c[:, written_arm[q]] = written[q]
    D[:], written_arm[:] = 0.0, -1


@_compiled
def _turn(F, f, product, sign, lam, z, draw):
    """The root after an observation (sign 1) or a removal (-1) of the arm whose column is f, F -= f (f^T F) / (s +
    sqrt(lambda s)), and z^T F for the next draw."""
    s = max(lam + sign * (f * f).sum(), _TINY * lam)
    f *= sign / (s + math.sqrt(lam * s))
    draw[:] = 0.0
    for r in range(len(F)):
        for n in range(len(F)):
            F[r, n] -= f[r] * product[n]
            draw[n] += z[r] * F[r, n]


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
