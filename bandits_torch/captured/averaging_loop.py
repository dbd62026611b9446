"""The loop over replicates and steps of ``auto`` that numba compiles. Its letters are those of ``RecursiveMembers``."""

# mypy: ignore-errors
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bandits_torch.models.arms.members import PENDING
from bandits_torch.policies.averaging import TIE
from bandits_torch.policies.learned_units import LEAST
from bandits_torch.policies.looking_again import ALIKE, LATEST, SETTLED, SOONEST
from bandits_torch.policies.reward_range import EARLY, FIRST, LATE


class Part(NamedTuple):
    """What members of one kind are told and hold, P of s numbers an arm; frames (k, P, s, s), at every step."""

    K: np.ndarray
    likeness: np.ndarray
    kernel: np.ndarray
    prior_mean: np.ndarray
    mean: np.ndarray
    reduction: np.ndarray
    rows: np.ndarray
    pending: np.ndarray
    frames: np.ndarray


class Held(NamedTuple):
    """What the policy holds beside, a row for each replicate: of (S, P), (S,) and (S, N)."""

    log_weight: np.ndarray
    score: np.ndarray
    count: np.ndarray
    squares: np.ndarray
    largest: np.ndarray
    log_loss: np.ndarray
    resets: np.ndarray
    low: np.ndarray
    high: np.ndarray
    below: np.ndarray
    above: np.ndarray
    known: np.ndarray
    latest: np.ndarray
    borne_out: np.ndarray
    arm: np.ndarray
    doubted: np.ndarray
    unseen: np.ndarray
    pulled: np.ndarray


class Told(NamedTuple):
    """What does not change: of members (P,), noise (S, P), origin and unit of rewards (S,), and numbers."""

    log_prior: np.ndarray
    strength: np.ndarray
    framed: np.ndarray
    rate: np.ndarray
    rates: np.ndarray
    which_rate: np.ndarray
    noise: np.ndarray
    origin: np.ndarray
    unit: np.ndarray
    expected: float
    memory: float
    tail: float
    clip: float
    share: float
    behind: float
    fading: float
    at_once: float
    plausible: float
    try_all: bool


class Asked(NamedTuple):
    """What is asked of the steps, (k,) each."""

    width: np.ndarray
    check: np.ndarray
    few: np.ndarray
    tau: np.ndarray


TRACE = (
    "effective_rate",
    "effective_members",
    "noise_scale",
    "scale",
    "resets",
    "doubted",
    "longest_unseen",
)
_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def play(parts, held, told, asked, turn, expected, noise, available, masked, arms, rewards, means, trace):
    """Play k steps of every replicate, and leave its state as they would.

    expected rewards (1 or k, 1 or S, N), noise (k, S), masks (1 or k, 1 or S, N). Written: arms, rewards, means
    (expected rewards), (k, S) each, and the trace (7, k, S).
    """
    k, S = noise.shape
    P, N = held.log_weight.shape[1], held.unseen.shape[1]
    mu, va = np.empty((P, N)), np.empty((P, N))
    w, unit, offset, scale = np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    every = np.ones(N, dtype=np.bool_)
    all_framed, some_framed = told.framed.all(), told.framed.any()
    due, learned = np.zeros(P, dtype=np.bool_), np.empty(P)
    for s in range(S):
        for p in range(P):
            apart = told.framed[p] and not all_framed
            unit[p], offset[p] = (told.unit[s], told.origin[s]) if apart else (1.0, 0.0)
        own = told.unit[s] if all_framed else 1.0
        for j in range(k):
            first = 0
            for part in parts:
                _moments(part, j, s, mu[first:], va[first:])
                first += len(part.kernel)
            for p in range(P):
                w[p] = math.exp(held.log_weight[s, p])
                scale[p] = _scale(told.strength[p], held.count[s, p], held.squares[s, p], held.largest[s, p])
            ok = every
            if masked:
                ok = available[j if available.shape[0] > 1 else 0, s if available.shape[1] > 1 else 0]
            i = _pick(held, told, asked, s, j, ok, w, unit, offset, scale, mu, va)
            mean = expected[j if expected.shape[0] > 1 else 0, s if expected.shape[1] > 1 else 0, i]
            y = mean + noise[j, s]
            arms[j, s], rewards[j, s], means[j, s] = i, y, mean
            believed = _believe(held, told.expected, s, y, i)
            due[:] = False
            if believed:
                log_unit = math.log(own) if all_framed else 0.0
                _weigh(held, told, s, i, y, unit, offset, scale, mu, va, all_framed, log_unit, learned, due)
                held.pulled[s, i] = True
                _examine(parts, held, s, i, w)
            first = 0
            for part in parts:
                _learn(part, told, s, j, i, (turn + j) % PENDING, believed, learned, due, mu, va, first)
                first += len(part.kernel)
            noise_scale, size, rate, entropy = 0.0, 0.0, 0.0, 0.0
            for p in range(P):
                f = w[p] * scale[p] * unit[p] * unit[p]
                noise_scale += f * told.noise[s, p]
                size += f
                rate += w[p] * told.rate[p]
                entropy -= w[p] * held.log_weight[s, p] if w[p] > 0 else 0.0
            trace[0, j, s], trace[1, j, s] = rate, math.exp(entropy)
            trace[2, j, s], trace[3, j, s] = math.sqrt(noise_scale) * own, math.sqrt(size) * own
            trace[4, j, s], trace[5, j, s] = held.resets[s], held.doubted[s]
            trace[6, j, s] = held.unseen[s].max()


@_compiled
def _moments(part, j, s, mu, va):
    """Mean and variance of every arm under the members of a part, by their frames at step j."""
    states, N = part.mean.shape[2:]
    tiny = np.finfo(np.float64).eps
    for p in range(len(part.kernel)):
        g, prior = part.frames[j, p, 0], part.K[part.kernel[p]]
        m, d, out, spread, own = part.mean[s, p], part.reduction[s, p], mu[p], va[p], part.prior_mean[p]
        if states == 1:
            x, xx = g[0], g[0] * g[0]
            for n in range(N):
                out[n] = own[n] + m[0, n] * x
                spread[n] = max(prior[n, n] - d[0, n] * xx, tiny * prior[n, n])
        else:
            x, z = g[0], g[1]
            xx, xz, zz = x * x, 2 * x * z, z * z
            for n in range(N):
                out[n] = own[n] + m[0, n] * x + m[1, n] * z
                v = prior[n, n] - d[0, n] * xx - d[1, n] * xz - d[2, n] * zz
                spread[n] = max(v, tiny * prior[n, n])


@_compiled
def _scale(strength, count, squares, largest):
    """Of ``MemberScale``."""
    weight = strength + count
    return max((strength + squares) / max(weight, 1.0), LEAST * largest) if weight > 0 else 1.0


@_compiled
def _pick(held, told, asked, s, j, ok, w, unit, offset, scale, mu, va):
    """The arm to play."""
    P, N = mu.shape
    m, v, index = np.zeros(N), np.zeros(N), np.empty(N)
    for p in range(P):
        a, b, c = w[p] * unit[p], w[p] * offset[p], mu[p]
        for n in range(N):
            m[n] += a * c[n] + b
    for p in range(P):
        o, u, f, weight, a, b = offset[p], unit[p], scale[p] * unit[p] * unit[p], w[p], mu[p], va[p]
        for n in range(N):
            off = o + u * a[n] - m[n]
            v[n] += weight * (f * b[n] + off * off)
    width = asked.width[j]
    for n in range(N):
        index[n] = m[n] + width * math.sqrt(v[n])
    if asked.check[j]:
        index[:] = -np.inf
        evidence = held.log_weight[s] - told.log_prior
        least = evidence.max() - told.plausible
        for p in range(P):
            if not evidence[p] < least:
                root = math.sqrt(scale[p]) * unit[p]
                for n in range(N):
                    bound = offset[p] + unit[p] * mu[p, n] + width * root * math.sqrt(va[p, n])
                    index[n] = max(index[n], bound)
    if told.try_all and held.pulled[s].sum() < asked.few[j]:
        fresh = ~held.pulled[s] & ok
        if fresh.any():
            index[:] = fresh
    _look_again(held.unseen[s], told, w, m, asked.tau[j], ok, index)
    i = held.arm[s]
    if held.latest[s] == 1 and ok[i]:
        index[:] = 0.0
        index[i] = 1.0
    largest = -np.inf
    for n in range(N):
        if ok[n]:
            largest = max(largest, index[n])
    near = largest - TIE * abs(largest - index.mean())
    for n in range(N):
        if ok[n] and index[n] >= near:
            return n
    return np.argmax(ok)


@_compiled
def _look_again(unseen, told, w, m, tau, ok, index):
    """How much each arm is overdue in place of the index, if any is due (``LookingAgain``)."""
    N = len(m)
    best, usual, few, any_due = -np.inf, 0.0, 0, False
    for n in range(N):
        if ok[n]:
            best = max(best, m[n])
    for n in range(N):
        if ok[n]:
            usual, few = usual + max(best - m[n], 0.0), few + 1
    usual /= few
    ratio = np.zeros(N)
    for n in range(N):
        if ok[n]:
            gap = math.sqrt(max(best - m[n], 0.0) / usual) if usual > 0 else 1.0
            ratio[n] = unseen[n] / (tau * min(max(gap, SOONEST), LATEST))
            any_due |= ratio[n] >= 1.0
    if not any_due:
        return
    any_due, share = False, np.zeros(len(told.rates))
    for p in range(len(w)):
        share[told.which_rate[p]] += w[p]
    for n in range(N):
        kept = 0.0
        for q in range(len(share)):
            kept += share[q] * math.exp(unseen[n] * math.log1p(-told.rates[q]))
        ratio[n] = ratio[n] if kept >= SETTLED else 0.0
        any_due |= ratio[n] >= 1.0
    if any_due:
        index[:] = ratio


@_compiled
def _believe(held, least, s, y, i):
    """Whether a reward is believed; the range takes it in (``RewardRange``)."""
    widths = max(EARLY * (FIRST / held.known[s]) ** 2, LATE)
    high, above, too_high, upper = _end(y, held.low[s], held.high[s], held.above[s], widths, least)
    low, below, too_low, lower = _end(-y, -high, -held.low[s], -held.below[s], widths, least)
    held.high[s], held.above[s], held.low[s], held.below[s] = high, above, -low, -below
    doubted = too_high or too_low
    held.known[s] += not doubted
    right_after = upper and held.latest[s] == 1 or lower and held.latest[s] == -1
    held.borne_out[s] = right_after and not doubted
    held.latest[s] = 1 if too_high else -1 if too_low else 0
    if too_high:
        held.arm[s] = i
    held.doubted[s] += too_high + too_low
    return not doubted


@_compiled
def _end(y, low, high, above, widths, least):
    """``RewardRange`` of the upper end."""
    width = max(high - low, least)
    second = width > 0 and y - high > widths * width and np.isfinite(above)
    if second:
        high = min(above, y)
    width = max(high - low, least)
    doubted = width > 0 and y - high > widths * width
    if second and above <= y:
        above = np.inf
    return (high, y, True, second) if doubted else (max(high, y), above, False, second)


@_compiled
def _weigh(held, told, s, i, y, unit, offset, scale, mu, va, all_framed, log_unit, learned, due):
    """Scales, weights and scores learn the reward (``MemberScale``, ``FixedShare``); which members are due for a reset,
    and what of its surprise each is to learn."""
    P = len(unit)
    density, surprise = np.empty(P), np.empty(P)
    constant, known = 0.0, -1.0
    some_known = told.strength.max() > 0
    for p in range(P):
        seen = (y - told.origin[s]) / told.unit[s] if told.framed[p] else y
        e, variance = seen - mu[p, i], va[p, i] + told.noise[s, p]
        surprise[p] = e
        strength = told.strength[p]
        weight, spread = strength + held.count[s, p], scale[p] * variance
        if weight == 0:
            broad = 10.0 * math.sqrt(variance) / unit[p]
            flat = -math.log(math.pi * broad) - 2 * math.log(math.hypot(e / broad, 1.0))
            density[p], clipped = (flat if some_known else 0.0), e
        else:
            dof = min(max(weight, 1.0), told.tail)
            if dof != known:
                constant, known = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2), dof
            width = math.sqrt(dof * spread)
            density[p] = constant - 0.5 * math.log(dof * math.pi * spread)
            density[p] -= (dof + 1) * math.log(math.hypot(e / width, 1.0))
            bound = told.clip * (1 + 5 / max(weight, 1e-6)) * math.sqrt(spread)
            clipped = min(max(e, -bound), bound)
        density[p] -= math.log(unit[p])
        squared = clipped * clipped / variance
        if weight != 0 or e != 0:
            held.count[s, p] = told.memory * held.count[s, p] + 1
            held.squares[s, p] = told.memory * held.squares[s, p] + squared
        held.largest[s, p] = max(held.largest[s, p], squared)
        learned[p] = e if held.borne_out[s] else clipped
        scale[p] = _scale(strength, held.count[s, p], held.squares[s, p], held.largest[s, p])
    weights, score = held.log_weight[s], held.score[s]
    total = _normalise(weights, density)
    held.log_loss[s] += log_unit - total
    if told.share > 0:
        kept, spread = math.log1p(-told.share), math.log(told.share)
        for p in range(P):
            a, b = weights[p] + kept, told.log_prior[p] + spread
            weights[p] = max(a, b) + math.log1p(math.exp(-abs(a - b)))
    _normalise(weights, np.zeros(P))
    least, best = density.max() - told.at_once, -np.inf
    for p in range(P):
        score[p] = told.fading * score[p] + max(density[p], least)
        best = max(best, score[p])
    for p in range(P):
        if best - score[p] > told.behind:
            due[p], score[p], learned[p] = True, best, surprise[p]
            held.resets[s] += 1


@_compiled
def _normalise(weights, more):
    """``weights + more`` less the ln of what they add up to, which is returned."""
    for p in range(len(weights)):
        weights[p] += more[p]
    largest, total = weights.max(), 0.0
    for p in range(len(weights)):
        total += math.exp(weights[p] - largest)
    total = largest + math.log(total)
    for p in range(len(weights)):
        weights[p] -= total
    return total


@_compiled
def _examine(parts, held, s, i, w):
    """The weights of now, and the clocks of arms (``LookingAgain``)."""
    unseen = held.unseen[s]
    for p in range(len(w)):
        w[p] = math.exp(held.log_weight[s, p])
    alike, first = np.zeros(len(unseen)), 0
    for part in parts:
        share = np.zeros(len(part.K))
        for p in range(len(part.kernel)):
            share[part.kernel[p]] += w[first + p]
        for g in range(len(share)):
            row = part.likeness[g, i]
            for n in range(len(unseen)):
                alike[n] += share[g] * row[n]
        first += len(part.kernel)
    for n in range(len(unseen)):
        unseen[n] = 0.0 if alike[n] >= ALIKE or n == i else unseen[n] + 1.0


@_compiled
def _learn(part, told, s, j, i, turn, believed, learned, due, mu, va, first):
    """Members learn a reward of arm i, or are reset and learn it; some fold."""
    P, states, N = len(part.kernel), part.mean.shape[2], part.mean.shape[3]
    share = -(-P // PENDING)
    folds = (turn + 1) % PENDING * share
    column = np.empty(states * N)
    for p in range(P):
        at, k = first + p, part.kernel[p]
        G, prior, R = part.frames[j, p], part.K[k, i], part.rows[p, s]
        m, d, W = part.mean[s, p], part.reduction[s, p], part.pending[p, s].reshape(PENDING, states * N)
        if due[at]:
            learned[at] += mu[at, i] - part.prior_mean[p, i]
            mu[at, i], va[at, i] = part.prior_mean[p, i], prior[i]
            R[:], W[:], m[:], d[:] = 0.0, 0.0, 0.0, 0.0
        W[turn] = 0.0
        if believed:
            scale = 1.0 / math.sqrt(va[at, i] + told.noise[s, at])
            innovation = learned[at] * scale
            column[:] = 0.0
            for b in range(states):
                _add(column, R[b * N + i], G[0, b])
            for t in range(PENDING):
                x = 0.0
                for b in range(states):
                    x += W[t, b * N + i] * G[0, b]
                if x != 0.0:
                    _add(column, W[t], x)
            new = W[turn]
            for a in range(states):
                if states == 1:
                    start = 1.0 / G[0, 0]
                else:
                    start = (G[1, 1] if a == 0 else -G[1, 0]) / (G[0, 0] * G[1, 1] - G[0, 1] * G[1, 0])
                ma, o = m[a], a * N
                for n in range(N):
                    x = (prior[n] * start - column[o + n]) * scale
                    new[o + n] = x
                    ma[n] += x * innovation
            b = 0
            for a in range(states):
                for c in range(a, states):
                    to, x, z = d[b], new[a * N : (a + 1) * N], new[c * N : (c + 1) * N]
                    for n in range(N):
                        to[n] += x[n] * z[n]
                    b += 1
        if folds <= p < folds + share:
            _fold(R, W, m, d, G)
            W[:] = 0.0


@_compiled
def _add(column, row, x):
    for n in range(len(column)):
        column[n] += x * row[n]


@_compiled
def _fold(R, W, m, d, G):
    """R becomes G (R + W^T W) G^T, and mean and reduction are those of G."""
    states, N = m.shape
    if states == 1:
        g, gg = G[0, 0], G[0, 0] * G[0, 0]
        for n in range(N):
            m[0, n] *= g
            d[0, n] *= gg
        for t in range(PENDING):
            for n in range(N):
                W[t, n] *= g
        for r in range(N):
            for n in range(N):
                R[r, n] *= gg
    else:
        a, b, c, e = G[0, 0], G[0, 1], G[1, 0], G[1, 1]
        for n in range(N):
            m[0, n], m[1, n] = a * m[0, n] + b * m[1, n], c * m[0, n] + e * m[1, n]
            x, y, z = d[0, n], d[1, n], d[2, n]
            d[0, n] = a * a * x + 2 * a * b * y + b * b * z
            d[1, n] = a * c * x + (a * e + b * c) * y + b * e * z
            d[2, n] = c * c * x + 2 * c * e * y + e * e * z
        for t in range(PENDING):
            for n in range(N):
                x, y = W[t, n], W[t, N + n]
                W[t, n], W[t, N + n] = a * x + b * y, c * x + e * y
        for r in range(N):
            for n in range(N):
                u, v, x, y = R[r, n], R[r, N + n], R[N + r, n], R[N + r, N + n]
                top, top2, low, low2 = a * u + b * x, a * v + b * y, c * u + e * x, c * v + e * y
                R[r, n], R[r, N + n] = a * top + b * top2, c * top + e * top2
                R[N + r, n], R[N + r, N + n] = a * low + b * low2, c * low + e * low2
    for r in range(states * N):
        out = R[r]
        for t in range(0, PENDING, 4):
            x, y, z, w = W[t, r], W[t + 1, r], W[t + 2, r], W[t + 3, r]
            for n in range(states * N):
                out[n] += x * W[t, n] + y * W[t + 1, n] + z * W[t + 2, n] + w * W[t + 3, n]
