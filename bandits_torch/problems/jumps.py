"""Finds jumps of arms' mean rewards in a record, distinct from drift and noise: when, which arms, how significant."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import rel_entr
from scipy.stats import chi2

from bandits_torch.problems.smoothing import mean_of_held

# Variances of the drift in a gap, over the variance of the noise.
RATIOS = np.array([0.0, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0])
MOST = 6  # jumps returned
_LOG_LEVEL = np.log(0.01)  # logarithm of the largest p-value returned
_BINS = 1500  # in longer records neighbouring rows are averaged to at most this many
_DIFFUSE = 1e7  # variance of an unknown level
_FEWEST = 40  # rows
_EDGE = 5  # rewards that an arm must have on either side of a jump
_SHARES = ((0.8, 1.28), (0.95, 1.96))  # shares of distances, and their quantiles in normal noise
_BEYOND = 3.0  # robust deviations from the neighbours
# The noise's variance over time: degree of its logarithm, steps of its fit, largest square of a difference in
# variances; rows whose mean, and share of the mean over time, it does not fall below.
_DEGREE, _STEPS, _MOST_SQUARE, _NEAR, _LEAST = 3, 30, 9.0, 21, 0.01
_DROP = 4.6  # in twice the log-likelihood: 90 % quantile of the chi-square distribution with two degrees of freedom
# If a smaller share of an arm's rewards differs from their median, a jump must also show in the rate of such rewards.
_RARE = 0.2


@dataclass(frozen=True)
class Jump:
    """A jump of the level of some arms, between two rows.

    Attributes:
        before, after: rows, counted from 0, between which it most likely lies: neighbours, or, if m rows are averaged
            (records of more than 1500 rows), the first and last of 2 m rows.
        first, last: rows between which it lies with a probability of about 90 %.
        arms: indices of the arms whose jump is significant alone; empty if only all arms together show it.
        p_value: bound on the probability that a record of this length that only drifts shows a jump as clear anywhere.
    """

    before: int
    after: int
    first: int
    last: int
    arms: tuple[int, ...]
    p_value: float


@dataclass(frozen=True)
class Levels:
    """The result of ``find_jumps``.

    Attributes:
        jumps: in order of time.
        drift: (N,) variance of the change of an arm's level in a median gap, in squared units of reward.
        noise: (N,) variance of the noise of a row.
        p_drift: p-value of the hypothesis that no level drifts between jumps.
        drifts: (N,) whether an arm's drift is significant alone.
        outliers: share of outliers among the rewards of the last 1500 rows: .001 for normal noise, .01 and more for
            noise with heavy tails, 0 for ``bounded`` rewards.
    """

    jumps: tuple[Jump, ...]
    drift: np.ndarray
    noise: np.ndarray
    p_drift: float
    drifts: np.ndarray
    outliers: float


def find_jumps(rewards: np.ndarray, times: np.ndarray, *, bounded: bool = False) -> Levels | None:
    """Jumps of arms' levels, found one by one, the clearest first; None for fewer than 40 rows.

    The local level model: y_t = f_t + e_t, f_t = f_s + d_t, Var d_t = q (t - s). Let r_t be the innovations of the
    Kalman filter, accumulated backwards, and N_t their variance. A step of the level before row t reduces the sum of
    squares by r_t^2 / N_t (Harvey & Koopman 1992; de Jong & Penzer 1998), which gives the generalised likelihood ratio.
    Both hypotheses have their own q (from a grid) and noise variance, so a record that drifts shows a jump only if it
    exceeds the drift. The variance of the noise may change with time. The ratios are summed over the arms and compared
    with a chi-square distribution whose degrees of freedom allow for correlated arms (Satterthwaite 1946). The largest
    ratio of a single arm is also tested. p-values are multiplied by the number of gaps between rows, and by four for
    two tests that each choose q again. The level after a jump is unknown again, and the search continues.

    Heavy-tailed noise must not count as jumps. So rewards are first clipped at three robust deviations from the medians
    of five rows on either side (the filter of Hampel 1974, with a median for each side, which keeps jumps).

    Args:
        rewards: (T, N), NaN where missing, without cycles.
        times: (T,) increasing.
        bounded: whether rewards have no outliers, such as 0/1, and are not clipped.

    Returns at most six jumps, with p-values up to 1 %. Records of more than 1500 rows are averaged over neighbouring
    rows. Cost: O(T N) for each jump, T at most 1500.
    """
    T, N = rewards.shape
    if T < _FEWEST:
        return None
    outliers, last = 0.0, rewards[-_BINS:, (~np.isnan(rewards[-_BINS:])).any(0)]
    if last.size and not bounded:
        outliers = float((np.abs(last - _clipped(last)) > 0).sum() / (~np.isnan(last)).sum())
    size = -(-T // _BINS)
    rows = np.minimum(np.arange(0, T, size)[:, None] + np.arange(size), T - 1)  # bins x size
    usual = np.nan_to_num(pd.DataFrame(rewards[::size]).median().to_numpy())
    seen = np.add.reduceat(~np.isnan(rewards), rows[:, 0])  # bins x N
    others = seen - np.add.reduceat(rewards == usual, rows[:, 0])
    rare = others.sum(0) < _RARE * seen.sum(0)
    held, sums = seen > 0, np.add.reduceat(np.nan_to_num(rewards), rows[:, 0])
    rewards, times = np.where(held, sums / np.maximum(seen, 1), np.nan), times[rows].mean(1)
    means = np.nan_to_num(mean_of_held(rewards))
    spread = np.sqrt(np.nan_to_num(mean_of_held(np.square(rewards - means))))
    kept = np.flatnonzero((spread > 1e-12 * np.abs(means)) & (held.sum(0) >= _FEWEST // 2))
    if not len(kept):
        return Levels((), np.zeros(N), np.zeros(N), 1.0, np.zeros(N, dtype=bool), outliers)
    y = (rewards[:, kept] - means[kept]) / spread[kept]
    y = y if bounded else _clipped(y)
    noisier = np.ones_like(y)
    if not bounded:  # the variance of rare rewards follows their level
        noisier[:, ~rare[kept]] = _relative_variance(y[:, ~rare[kept]])
    gaps = np.diff(times) / np.median(np.diff(times))
    fresh = np.zeros((len(y) - 1, len(kept)), dtype=bool)
    found: list[Jump] = []
    places: list[int] = []
    while True:
        fit, ratios = _likelihood_ratios(y, gaps, fresh, noisier)
        if len(found) == MOST:
            break
        for k in np.flatnonzero(rare[kept]):
            most = ratios_of_shares(others[:, kept[k]], seen[:, kept[k]], fresh[:, k])
            ratios[:, k] = np.minimum(ratios[:, k], most)
        if (jump := _clearest(ratios, fit.residuals)) is None:
            break
        t, arms, low, high, p, all_arms = jump
        merged = next((at for at in places if abs(at - t) < _EDGE), None)
        if merged is not None:  # further arms jump there
            if fresh[merged].all():
                break
            fresh[merged] = True
            continue
        places.append(t)
        fresh[t, slice(None) if all_arms else arms] = True
        numbers = tuple(int(kept[n]) for n in arms)
        before, first = int(rows[t][0]), int(rows[low][0])
        after, end = int(rows[t + 1][-1]), int(rows[high + 1][-1])
        found.append(Jump(before, after, first, end, numbers, p))
    drift, noise, drifts = np.zeros(N), np.zeros(N), np.zeros(N, dtype=bool)
    drift[kept], noise[kept] = fit.drift * spread[kept] ** 2 / size, fit.noise * spread[kept] ** 2 * size
    drifts[kept] = fit.p_alone * len(kept) < np.exp(_LOG_LEVEL)
    jumps = tuple(sorted(found, key=lambda one: one.before))
    return Levels(jumps, drift, noise, fit.p_drift, drifts, outliers)


def _clipped(y: np.ndarray) -> np.ndarray:
    """Rewards (T, N) with outliers clipped at three robust deviations from the medians of five rows on either side.

    The robust deviation is the larger of two: the 80 and 95 % quantiles of an arm's distances from the mean of the two
    medians, divided by 1.28 and 1.96.
    """
    frame = pd.DataFrame(y)
    sides = frame.rolling(_EDGE, min_periods=1)
    before = sides.median().shift().to_numpy()
    after = frame[::-1].rolling(_EDGE, min_periods=1).median().shift()[::-1].to_numpy()
    low, high = np.fmin(before, after), np.fmax(before, after)
    alone = np.isnan(low)
    low[alone] = high[alone] = y[alone]
    distances = np.abs(y - (low + high) / 2)
    scale = np.max([np.nanquantile(distances, share, axis=0) / normal for share, normal in _SHARES], axis=0)
    reach = np.where(scale > 0, _BEYOND * scale, np.inf)
    return np.clip(y, low - reach, high + reach)


def _relative_variance(y: np.ndarray) -> np.ndarray:
    """The variance of the noise of each reward (T, N), over its mean over time: 1, or, if the BIC (Schwarz 1978)
    prefers it, the exponential of a cubic in time, and at least the local variance.

    Gamma regression of the squared differences between neighbouring rewards, which have correlations of 1/4.
    """
    variance = np.ones_like(y)
    for n in range(y.shape[1]):
        held = np.flatnonzero(~np.isnan(y[:, n]))
        squares = np.square(np.diff(y[held, n]))
        count, scores = len(squares), []
        if not squares.any():
            continue
        squares /= squares.mean()
        shape = np.linalg.qr(np.vander(np.linspace(-1, 1, count), _DEGREE + 1, increasing=True))[0]
        for design in (shape, shape[:, :1]):
            level = np.zeros(count)
            for _ in range(_STEPS):
                ratio = np.minimum(squares * np.exp(-level), _MOST_SQUARE)  # a jump is no noise
                level += design @ (design.T @ (ratio - 1))
            scores.append((level.sum() + ratio.sum(), level, ratio))
        (cubic, level, ratio), (flat, _, _) = scores
        if flat - cubic > 0.75 * ratio.var() * _DEGREE * np.log(count):
            near = pd.Series(squares).rolling(_NEAR, min_periods=1, center=True).mean()
            fitted = np.maximum(np.maximum(np.exp(level), near), _LEAST)  # a cubic misses steps
            variance[held, n] = np.interp(np.arange(len(held)), np.arange(count) + 0.5, fitted)
            variance[held, n] /= variance[held, n].mean()
    return variance


class _Fit(NamedTuple):
    """The local level model without another jump: variances of drift and noise, (N,); p-values of drift, of all arms
    together and of each alone, (N,); and residuals (T - 1, N), standard normal without jumps."""

    drift: np.ndarray
    noise: np.ndarray
    p_drift: float
    p_alone: np.ndarray
    residuals: np.ndarray


def _likelihood_ratios(
    y: np.ndarray, gaps: np.ndarray, fresh: np.ndarray, noisier: np.ndarray
) -> tuple[_Fit, np.ndarray]:
    """The fit without another jump; and twice the log-likelihood ratio of a jump after each row, (T - 1, N)."""
    T, N = y.shape
    G = len(RATIOS)
    held = ~np.isnan(y)
    values = np.where(held, y, 0.0)
    mean, spread = np.zeros((G, N)), np.full((G, N), _DIFFUSE)
    v, F, K = np.zeros((T, G, N)), np.ones((T, G, N)), np.zeros((T, G, N))
    ratio = RATIOS[:, None]
    for t in range(T):
        F[t] = spread + noisier[t]
        v[t] = held[t] * (values[t] - mean)
        K[t] = held[t] * (spread / F[t])
        mean = mean + K[t] * v[t]
        spread = spread * (1 - K[t])
        if t < T - 1:
            spread = spread + ratio * gaps[t] + _DIFFUSE * fresh[t]
    known = held[:, None] & (F < 0.01 * _DIFFUSE)  # the first reward of a level only sets it
    count = known.sum(0)[0].clip(1)
    squares = (known * v * v / F).sum(0)  # G x N
    log_det = (known * np.log(F)).sum(0)
    r, n = np.zeros((G, N)), np.zeros((G, N))
    step, weight = np.zeros((T - 1, G, N)), np.zeros((T - 1, G, N))
    for t in range(T - 1, 0, -1):
        r = held[t][None] * v[t] / F[t] + (1 - K[t]) * r
        n = held[t][None] / F[t] + (1 - K[t]) ** 2 * n
        step[t - 1], weight[t - 1] = r, n
    enough = _two_sided(held, fresh)
    explained = np.where(weight > 1e-6, step * step / np.maximum(weight, 1e-300), 0.0) * enough[:, None]
    left = np.maximum(squares - explained, 1e-12 * np.maximum(squares, 1e-300))
    with np.errstate(divide="ignore"):
        without = -(count * np.log(np.maximum(squares, 1e-300) / count) + log_det)  # twice the log-likelihood
        beside = -(count * np.log(left / count) + log_det)
    best = without.argmax(0)
    at = (best, np.arange(N))
    scale = np.maximum(squares[at] / count, 1e-300)
    over = np.maximum(beside.max(1) - without[at], 0.0)
    still = without.sum(1)
    gained = float(still.max() - still[0])  # one ratio for all arms
    steps, weights = step[:, best, np.arange(N)], weight[:, best, np.arange(N)]
    residuals = steps / np.sqrt(np.maximum(weights, 1e-12) * scale)
    p_drift = 0.5 * float(chi2.sf(gained / _inflation(residuals), 1)) if gained > 0 else 1.0
    alone = np.where(best > 0, 0.5 * chi2.sf(without[at] - without[0], 1), 1.0)
    return _Fit(RATIOS[best] * scale, scale, p_drift, alone, residuals * enough), over


def ratios_of_shares(others: np.ndarray, seen: np.ndarray, fresh: np.ndarray | tuple[()] = ()) -> np.ndarray:
    """Twice the binomial log-likelihood ratio (T - 1,) of a jump, after each row, of the share ``others`` / ``seen``,
    (T,) each; between known jumps ``fresh`` (T - 1,)."""
    ratios = np.zeros(len(seen) - 1)
    for start, end in itertools.pairwise([0, *(np.flatnonzero(fresh) + 1), len(seen)]):
        k, m = others[start:end].cumsum(), seen[start:end].cumsum()
        k_after, m_after = k[-1] - k, m[-1] - m
        counts, of = (k, m - k, k_after, m_after - k_after), (m, m, m_after, m_after)
        likelihood = rel_entr(counts, np.maximum(of, 1)).sum(0)
        ratios[start : end - 1] = 2 * (likelihood - likelihood[-1])[:-1]
    return ratios


def _inflation(residuals: np.ndarray) -> float:
    """The sum of squared correlations between arms, over their number; 1 for uncorrelated arms."""
    varies = residuals.std(0) > 1e-9
    if varies.sum() < 2:
        return 1.0
    correlation = np.corrcoef(residuals[:, varies].T)
    noise = (correlation.size - len(correlation)) / max(1, len(residuals) // _EDGE)  # under independence
    return float(max(1.0, (np.square(correlation).sum() - noise) / len(correlation)))


def _two_sided(held: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Whether a jump after row t can be seen, (T - 1, N): five rewards on either side, up to the next known jump."""
    count = held.cumsum(0)
    last, count = count[-1], count[:-1]
    at_last_jump = np.maximum.accumulate(np.where(fresh, count, 0))
    at_last_jump = np.concatenate([np.zeros_like(count[:1]), at_last_jump[:-1]])  # before row t
    at_next_jump = np.minimum.accumulate(np.where(fresh, count, last)[::-1])[::-1]
    return (count - at_last_jump >= _EDGE) & (at_next_jump - count >= _EDGE)


def _clearest(
    ratios: np.ndarray, residuals: np.ndarray
) -> tuple[int, list[int], int, int, float, bool] | None:
    """Row before the clearest jump, its arms, first and last row of its interval, its p-value, and whether all arms
    together show it. None if no jump is significant."""
    T, N = ratios.shape
    factor = _inflation(residuals)
    together = chi2.logsf(ratios.sum(1) / factor, N / factor)
    alone = chi2.logsf(ratios.max(1), 1) + np.log(N)
    log_p = np.minimum(together, alone) + np.log(4 * T)
    t = int(log_p.argmin())
    if log_p[t] > _LOG_LEVEL:
        return None
    arms = [n for n in range(N) if chi2.logsf(ratios[t, n], 1) + np.log(T) < _LOG_LEVEL]
    score = ratios[:, arms].sum(1) / (factor if len(arms) > 1 else 1.0) if arms else ratios.sum(1) / factor
    t = int(score[max(0, t - 2) : t + 3].argmax()) + max(0, t - 2)
    far = np.flatnonzero(score < score[t] - _DROP)
    low, high = int(far[far < t].max(initial=-1)) + 1, int(far[far > t].min(initial=T)) - 1
    is_of_all = not arms or bool(together[t] + np.log(4 * T) <= _LOG_LEVEL)
    return t, arms, low, high, float(np.exp(min(0.0, log_p[t]))), is_of_all
