"""The loops over replicates and steps that numba compiles: for index policies, with the symbols of ``CovarianceForm``,
and for ``auto``, with those of ``RecursiveMembers``."""

# mypy: ignore-errors
from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
from numba import njit

from bandits_torch.models.arms.covariance_form import FOLD, LEAST_LEFT, REMOVED
from bandits_torch.models.arms.members import PENDING
from bandits_torch.policies.averaging import ROUNDINGS, TIE
from bandits_torch.policies.learned_units import LEAST, OF_TWO_VALUES
from bandits_torch.policies.looking_again import ALIKE, LATEST, SETTLED, SOONEST
from bandits_torch.policies.reward_range import EARLY, FIRST, LATE

TINY = np.finfo(np.float64).eps
_LEAST_VARIANCE = 1e-12  # for an improvement, as in BoTorch's analytic acquisitions
_LEAST_UNDER_A_BOUND = np.finfo(np.float64).tiny  # as in ``UpperConfidenceBound``
_TOGETHER = 64  # rows of C that are folded together, so that they stay in the cache
compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})


@compiled
def play_index(state, constants, from_problem, widths, moves, has, margin, largest, out):
    """Play k steps of every replicate, and leave its state as plain steps would, with all rows folded.

    * state: mean and variance (S, N), C_0 and the root F of C, F^T F = C, (S, N, N), a^2 and e (S, 1), gain, surprise,
      removed, suspect (S,). constants: K (q, N, N), prior_mean (S, N), noise_variance (S,).
    * from_problem: expected rewards (1 or k, 1 or S, N), noise (k, S), masks (1 or k, 1 or S, N).
    * widths: A, P, Q of A + sqrt(P gain + Q), (k, S) each.
    * moves: under drift a and e, (k, 1 or S, 1); for Thompson sampling normal numbers (k, S, N); for a window the
      observations that leave, (k, S).
    * margin, largest: an improvement (its probability or expectation) is over the largest mean or, with ``by_reward``,
      the largest reward so far of an available arm, if there is one; plus ``margin``. ``largest`` (S, N) is updated.
    * out: arms, rewards, expected rewards, widths, (k, S) each, are written.

    C is a^2 C_0 - W^T D W + e K. For Thompson sampling F is F_0 - G^T W, with the root of each row's observation in G.
    """
    mean, variance, C, root, squared, since, gain, surprise, removed, suspect = state
    K, prior_mean, noise_variance = constants
    expected, noise, available = from_problem
    A, P, Q = widths
    kept, gained, normal, leaving_arm, leaving = moves
    drifts, slides, draws, improves, by_expectation, by_reward = has
    arms, rewards, means, used_width = out
    (k, S), N = noise.shape, mean.shape[1]
    waiting = FOLD * (1 + slides)
    W, G = np.empty((waiting, N)), np.empty((waiting, N))
    written, D = np.empty((waiting, N)), np.empty(waiting)
    written_arm, slot = np.empty(waiting, np.int64), np.full(N, -1)  # of rows of C that are up to date
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
                    drawn, first = np.dot(np.ascontiguousarray(normal[j : j + waiting, s]), F), j
                draw[:] = drawn[j - first]
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
                    index = _log_improvement(index) + math.log(spread) if by_expectation else index
                if index > most:
                    i, most = n, index
            mu = expected[j % len(expected), s % expected.shape[1], i]
            y = mu + noise[j, s]
            arms[j, s], rewards[j, s], means[j, s], used_width[j, s] = i, y, mu, w
            if by_reward:
                largest[s, i] = max(largest[s, i], y)
            y -= own[i]
            for move in range(1 + slides):  # learn the reward, then remove the one that leaves the window
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
    """Add x^T ``rows`` to ``out``, for the first len(x) rows, four at a time."""
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
    """ln(phi(u) + u Phi(u)); for u <= -30 from its asymptotic series, whose last term is below 1e-12."""
    if u > -30.0:
        return math.log(
            math.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) + 0.5 * u * math.erfc(-u / math.sqrt(2))
        )
    term, total = 1.0, 1.0
    for k in range(1, 7):
        term *= -(2 * k + 1) / (u * u)
        total += term
    return -0.5 * u * u - 0.5 * math.log(2 * math.pi) - 2 * math.log(-u) + math.log(total)


LONG_AGO = -2 * PENDING  # before every turn of a block: an arm without columns
TRACE = ("effective_rate", "effective_members", "noise_scale", "scale", "resets", "doubted", "longest_unseen")
Part = namedtuple(  # first: the number of its first member; columns: the buffer of ``_learn``
    "Part", "K alike kernel prior_mean prior_variance mean reduction rows pending frames first columns"
)
Held = namedtuple(  # the other state that observations change, a row for each replicate
    "Held",
    "log_weight score log_loss resets count squares largest unseen pulled first second repeats "
    "low high below above known latest borne_out arm doubted",
)
Told = namedtuple(  # members' (P,), noise (S, P), origin and unit of rewards (S,), and numbers
    "Told",
    "log_prior strength framed rate rates which noise origin unit "
    "expected memory tail clip share behind fading at_once plausible try_all",
)
Asked = namedtuple("Asked", "width check few tau")  # (k,), a number for each step


@compiled
def play_averaging(parts, held, constants, asked, turn, expected, noise, available, arm, reward, mean, trace):
    """Play k steps of every replicate, and leave its state as plain steps would.

    Inputs: frames of a part (k, P, s, s), expected rewards (1 or k, 1 or S, N), noise (k, S), masks (1 or k, 1 or S,
    N). Outputs: arm, reward, mean (its expectation), (k, S) each, and the trace (7, k, S).
    """
    P, N = held.log_weight.shape[1], held.unseen.shape[1]
    mu, va, learned, due = np.empty((P, N)), np.empty((P, N)), np.empty(P), np.empty(P, np.bool_)
    all_framed = constants.framed.all()
    apart = ~constants.framed if all_framed else constants.framed  # in another unit than the mixture
    slot, read = np.empty(N, np.int64), np.empty(N, np.int64)  # an arm's place in ``columns``, and last turn
    for s in range(noise.shape[1]):
        read[:], count = LONG_AGO, 0
        own = constants.unit[s] if all_framed else 1.0
        unit, offset = np.where(apart, constants.unit[s], 1.0), np.where(apart, constants.origin[s], 0.0)
        for j in range(len(noise)):
            for part in parts:
                _moments(part, j, s, mu[part.first :], va[part.first :])
            ok = available[j % len(available), s % available.shape[1]]
            w, scale = np.exp(held.log_weight[s]), _scale(held, constants, s)
            i = _pick(held, constants, asked, s, j, ok, w, unit, offset, scale, mu, va)
            mean[j, s] = expected[j % len(expected), s % expected.shape[1], i]
            y = mean[j, s] + noise[j, s]
            arm[j, s], reward[j, s], due[:] = i, y, False
            believed = _believe(held, constants.expected, s, y, i)
            if believed:
                seen = np.where(constants.framed, (y - constants.origin[s]) / constants.unit[s], y)
                variance = va[:, i] + constants.noise[s]
                two, e = _meet(held, s, y), seen - mu[:, i]
                _weigh(held, constants, s, e, variance, scale, unit, math.log(own), two, learned, due)
                w, scale = np.exp(held.log_weight[s]), _scale(held, constants, s)
                held.pulled[s, i] = True
                if read[i] == LONG_AGO:
                    slot[i], count = count, count + 1
            alike = np.zeros(N)
            for part in parts:
                by_kernel = np.bincount(part.kernel, w[part.first : part.first + len(part.kernel)])
                add(alike, by_kernel, part.alike[:, i])
                _learn(part, constants, s, j, i, turn + j, believed, learned, due, mu, va, slot[i], read[i])
            if believed:
                read[i] = turn + j + 1
                held.unseen[s] = np.where(alike >= ALIKE, 0.0, held.unseen[s] + 1.0)
                held.unseen[s, i] = 0.0
            f = w * scale * unit * unit
            trace[0, j, s] = (w * constants.rate).sum()
            trace[1, j, s] = math.exp(-np.where(w > 0, w * held.log_weight[s], 0.0).sum())
            trace[2, j, s] = math.sqrt((f * constants.noise[s]).sum()) * own
            trace[3, j, s] = math.sqrt(f.sum()) * own
            trace[4, j, s], trace[5, j, s] = held.resets[s], held.doubted[s]
            trace[6, j, s] = held.unseen[s].max()


@compiled
def _add(to, x, row):
    for n in range(len(to)):
        to[n] += x * row[n]


@compiled
def _moments(part, j, s, mu, va):
    """Write mean and variance of every arm at step j under the members of a part."""
    for p in range(len(part.kernel)):
        g, m, d = part.frames[j, p, 0], part.mean[s, p], part.reduction[s, p]
        mean, variance, h = part.prior_mean[p], part.prior_variance[p], g[1] if len(g) == 2 else 0.0
        for n in range(len(mean)):
            mu[p, n] = mean[n] + g[0] * m[0, n] + h * m[-1, n]
            taken = g[0] * g[0] * d[0, n] + h * (2 * g[0] * d[len(d) // 2, n] + h * d[-1, n])
            va[p, n] = max(variance[n] - taken, TINY * variance[n])


@compiled
def _scale(held, constants, s):
    """``MemberScale.scale``."""
    scale = (constants.strength + held.squares[s]) / np.maximum(constants.strength + held.count[s], 1.0)
    return np.maximum(scale, LEAST * held.largest[s])


@compiled
def _pick(held, constants, asked, s, j, ok, w, unit, offset, scale, mu, va):
    """``ModelAveraging.pick``."""
    P, N = mu.shape
    width, unseen, f = asked.width[j], held.unseen[s], scale * unit * unit
    m, v = np.full(N, (w * offset).sum()), np.zeros(N)
    add(m, w * unit, mu)
    for p in range(P):
        for n in range(N):
            off = offset[p] + unit[p] * mu[p, n] - m[n]
            v[n] += w[p] * (f[p] * va[p, n] + off * off)
    index = m + width * np.sqrt(v)
    if asked.check[j]:
        evidence = held.log_weight[s] - constants.log_prior
        index[:] = -np.inf
        for p in np.flatnonzero(evidence >= evidence.max() - constants.plausible):
            index = np.maximum(index, offset[p] + unit[p] * mu[p] + width * np.sqrt(f[p] * va[p]))
    fresh = ~held.pulled[s] & ok
    if constants.try_all and fresh.any() and held.pulled[s].sum() < asked.few[j]:
        index = fresh.astype(np.float64)
    gap = np.where(ok, np.maximum(m[ok].max() - m, 0.0), 0.0)
    usual = gap.sum() / ok.sum()
    share = np.sqrt(gap / usual) if usual > 0 else np.ones(N)
    overdue = np.where(ok, unseen / (asked.tau[j] * np.minimum(np.maximum(share, SOONEST), LATEST)), 0.0)
    if overdue.max() >= 1.0:
        kept, of_rates = np.zeros(N), np.bincount(constants.which, w)
        for q in range(len(constants.rates)):
            kept += of_rates[q] * np.exp(unseen * math.log1p(-constants.rates[q]))
        overdue = np.where(kept >= SETTLED, overdue, 0.0)
        index = overdue if overdue.max() >= 1.0 else index
    if held.latest[s] == 1 and ok[held.arm[s]]:
        index = np.zeros(N)
        index[held.arm[s]] = 1.0
    largest = index[ok].max()
    near = largest - TIE * (largest - index.min()) - ROUNDINGS * TINY * abs(largest)
    return np.argmax(ok & (index >= near))


@compiled
def _believe(held, least, s, y, i):
    """``RewardRange.believe``."""
    widths = max(EARLY * (FIRST / held.known[s]) ** 2, LATE)
    high, above, too_high, upper = _end(y, held.low[s], held.high[s], held.above[s], widths, least)
    low, below, too_low, lower = _end(-y, -high, -held.low[s], -held.below[s], widths, least)
    held.high[s], held.above[s], held.low[s], held.below[s] = high, above, -low, -below
    doubted = too_high or too_low
    held.known[s] += not doubted
    held.borne_out[s] = not doubted and ((upper and held.latest[s] == 1) or (lower and held.latest[s] == -1))
    held.latest[s] = int(too_high) - int(too_low and not too_high)
    held.arm[s] = i if too_high else held.arm[s]
    held.doubted[s] += too_high + too_low
    return not doubted


@compiled
def _end(y, low, high, above, widths, least):
    width = max(high - low, least)
    second = width > 0 and y - high > widths * width and above < np.inf
    high = min(above, y) if second else high
    width = max(high - low, least)
    doubted = width > 0 and y - high > widths * width
    above = y if doubted else np.inf if second and above <= y else above
    return high if doubted else max(high, y), above, doubted, second


@compiled
def _meet(held, s, y):
    """``TwoValues.meet``."""
    again = y == held.first[s] or y == held.second[s]
    if not again and not math.isnan(held.first[s]):
        held.second[s] = y if math.isnan(held.second[s]) else np.inf
    held.first[s] = y if math.isnan(held.first[s]) else held.first[s]
    held.repeats[s] |= again and held.second[s] != np.inf
    return held.repeats[s] and math.isfinite(held.second[s])


@compiled
def _weigh(held, constants, s, e, variance, scale, unit, log_unit, two, learned, due):
    """``ModelAveraging.weigh``, from the members' prediction errors e."""
    weight, spread, density = constants.strength + held.count[s], scale * variance, -np.log(unit)
    for p in range(len(e)):
        dof = min(max(weight[p], 1.0), constants.tail)
        density[p] += math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)
        density[p] -= 0.5 * math.log(dof * math.pi * spread[p])
        density[p] -= (dof + 1) * math.log(math.hypot(e[p] / math.sqrt(dof * spread[p]), 1.0))
    bound = constants.clip * (1 + 5 / np.maximum(weight, 1e-6)) * np.sqrt(spread)
    clipped = e if two else np.minimum(np.maximum(e, -bound), bound)
    squared, memory = clipped * clipped / variance, OF_TWO_VALUES if two else constants.memory
    held.count[s] = memory * held.count[s] + 1
    held.squares[s] = memory * held.squares[s] + squared
    held.largest[s] = np.maximum(held.largest[s], squared)
    joint = held.log_weight[s] + density
    total = _log_sum(joint)
    held.log_loss[s] += log_unit - total
    joint -= total
    if constants.share > 0:
        joint = np.logaddexp(
            joint + math.log1p(-constants.share), constants.log_prior + math.log(constants.share)
        )
    held.log_weight[s] = joint - _log_sum(joint)
    score = constants.fading * held.score[s] + np.maximum(density, density.max() - constants.at_once)
    due[:] = score.max() - score > constants.behind
    held.score[s] = np.where(due, score.max(), score)
    held.resets[s] += due.sum()
    learned[:] = e if held.borne_out[s] else np.where(due, e, clipped)


@compiled
def _log_sum(x):
    return x.max() + math.log(np.exp(x - x.max()).sum())


@compiled
def _learn(part, constants, s, j, i, turn, believed, learned, due, mu, va, slot, read):
    """Members learn a reward of arm i, after a reset if one is due. Members whose turn it is fold.

    ``columns[slot]`` stores the columns of R + W^T W for arm i, (P, states, states N), with the rows of W before the
    turn ``read``. They are computed again if a member has folded since.
    """
    P, states, N = len(part.kernel), part.mean.shape[2], part.mean.shape[3]
    share, start = -(-P // PENDING), np.array([0.0, 0.0])
    for p in range(P):
        at, G, g = part.first + p, part.frames[j, p], part.frames[j, p, 0]
        prior, R = part.K[part.kernel[p], i], part.rows[p, s]
        m, d, W = part.mean[s, p], part.reduction[s, p], part.pending[p, s].reshape(PENDING, states * N)
        if due[at]:
            learned[at] += mu[at, i] - part.prior_mean[p, i]
            va[at, i] = prior[i]
            R[:], W[:], m[:], d[:], part.columns[:, p] = 0.0, 0.0, 0.0, 0.0, 0.0
        new = W[turn % PENDING]
        new[:] = 0.0
        if believed:
            folded, kept = turn - (turn - p // share) % PENDING, part.columns[slot, p]
            start[0] = 1.0 / G[0, 0]  # the first column of the inverse of G
            if states == 2:
                start[:] = np.array([G[1, 1], -G[1, 0]]) / (G[0, 0] * G[1, 1] - G[0, 1] * G[1, 0])
            scale = 1.0 / math.sqrt(va[at, i] + constants.noise[s, at])
            for b in range(states):
                if read <= folded:
                    kept[b] = R[b * N + i]
                for t in range(max(read, folded), turn):
                    _add(kept[b], W[t % PENDING, b * N + i], W[t % PENDING])
            z, g_0, g_1 = learned[at] * scale, g[0], g[1] if states == 2 else 0.0
            for a in range(states):
                for n in range(N):
                    x = scale * (prior[n] * start[a] - g_0 * kept[0, a * N + n] - g_1 * kept[-1, a * N + n])
                    new[a * N + n] = x
                    m[a, n] += z * x
                    d[2 * a, n] += x * x
            if states == 2:
                d[1] += new[:N] * new[N:]
            for b in range(states):
                _add(kept[b], new[b * N + i], new)
        if (turn + 1) % PENDING == p // share:
            _fold(R, W, m, d, G)


@compiled
def _fold(R, W, m, d, G):
    """Replace R by G (R + W^T W) G^T, and update mean and reduction to the present."""
    (states, N), product = m.shape, np.dot(W.T, W)
    faded = G[0, 0] * G[0, 0] if states == 1 else 1.0
    for a in range(len(R)):
        for n in range(len(R)):
            R[a, n] = faded * (R[a, n] + product[a, n])
    if states == 2:
        for a in range(N):
            _mix(G, R[a], R[N + a])
            _mix(G, R[a, :N], R[a, N:])
            _mix(G, R[N + a, :N], R[N + a, N:])
    m[:], W[:] = np.dot(G, m), 0.0
    for a in range(states):
        for c in range(a, states):
            d[a + c] = np.diag(R[a * N : (a + 1) * N, c * N : (c + 1) * N])


@compiled
def _mix(G, x, y):
    """Replace the rows x and y by G times [x, y]."""
    for n in range(len(x)):
        x[n], y[n] = G[0, 0] * x[n] + G[0, 1] * y[n], G[1, 0] * x[n] + G[1, 1] * y[n]
