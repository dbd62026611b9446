"""Smooths a table of rewards: each row is estimated from the others, weighted by their distance in time."""

from __future__ import annotations

import numpy as np

_NEGLIGIBLE = 1e-12


def mean_of_held(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Means along an axis, without missing values (NaN); NaN if all are missing."""
    means = values.mean(axis)
    if not np.isnan(means).any():
        return np.asarray(means)
    held = ~np.isnan(values)
    counts = held.sum(axis)
    return np.where(counts > 0, values.sum(axis, where=held) / np.maximum(counts, 1), np.nan)


def others_smoothed(rewards: np.ndarray, times: np.ndarray, bandwidth: float) -> np.ndarray:
    """An estimate (T, N) of each reward from the other rows: their mean, weighted by exp(-|t - s| / bandwidth).

    It is the plain mean if all weights vanish, and NaN if no other row has a reward of the arm. A row's own rewards are
    not used, so their noise does not matter.

    Args: ``rewards`` (T, N), NaN where missing; ``times`` (T,), increasing; ``bandwidth`` above 0, in units of the
    times, infinity for the plain mean. Cost: O(T N log T), by doubling.
    """
    held = ~np.isnan(rewards)
    ones = held[:, :1] if held.all() else held  # without missing rewards all arms have the same weights
    sums, counts = np.where(held, rewards, 0.0), ones.astype(float)
    near = [_around(sums, times, bandwidth), _around(counts, times, bandwidth)]
    vanish = near[1] <= _NEGLIGIBLE
    if vanish.any():
        plain = [_around(sums, times, np.inf), _around(counts, times, np.inf)]
        near = [np.where(vanish, whole, part) for whole, part in zip(plain, near, strict=True)]
    with np.errstate(invalid="ignore"):
        return np.asarray(near[0] / near[1])


def _around(values: np.ndarray, times: np.ndarray, bandwidth: float) -> np.ndarray:
    """The weighted sum of the other rows' values, at each row."""
    if not np.isfinite(bandwidth):
        return np.asarray(values.sum(0) - values)
    fade = np.exp(-np.diff(times) / bandwidth)
    return _past(values, fade) + _past(values[::-1], fade[::-1])[::-1]


def _past(values: np.ndarray, fade: np.ndarray) -> np.ndarray:
    """F_t = fade_t (F_{t-1} + values_{t-1}) along the first dimension, F_0 = 0."""
    found = np.zeros_like(values)
    found[1:] = fade[:, None] * values[:-1]
    product, step = np.concatenate([[0.0], fade]), 1
    while step < len(product) and product.max() > _NEGLIGIBLE:
        found[step:] += product[step:, None] * found[:-step]
        product[step:] = product[step:] * product[:-step]
        product[:step] = 0.0
        step *= 2
    return found


def best_smoothed(rewards: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The estimated value of the best arm of each row, that arm, and the bandwidth, all from the other rows.

    What all arms of a row have in common is subtracted first: the mean of reward minus the arm's mean. It does not
    affect which arm is best, but would determine the bandwidth. The bandwidths tried are half the median gap, its
    doublings up to half of the record, and infinity. The one with the least mean squared error of the estimates is used
    (leave-one-out cross-validation, Stone 1974).

    The largest of several smoothed values is too large by chance. So the values are shrunk towards their mean by a
    factor: the slope of the regression of rewards on estimates (1: the estimates are right, 0: all is noise).

    Args: ``rewards`` (T, N), NaN where missing, a reward in every row; ``times`` (T,), increasing.

    Returns values (T,), common part included; arms (T,), among those with a reward; the bandwidth in units of the
    times. A row whose arms have no reward in another row has its own mean as value. Cost: O(T N (log T)^2).
    """
    held = ~np.isnan(rewards)
    filled = np.where(held, rewards, 0.0)
    centred = np.where(held, rewards - filled.sum(0) / np.maximum(held.sum(0), 1), 0.0)
    common = centred.sum(1, keepdims=True) / np.maximum(held.sum(1, keepdims=True), 1)
    rest = rewards - common
    tried = [np.inf]
    if len(times) > 2:
        gap, span = float(np.median(np.diff(times))), float(times[-1] - times[0])
        tried += list(gap * 2.0 ** np.arange(-1, max(0, np.floor(np.log2(span / (2 * gap)))) + 1))
    best, least, values = np.inf, np.inf, np.full_like(rest, np.nan)
    for bandwidth in tried:
        estimates = others_smoothed(rest, times, float(bandwidth))
        has_value = ~np.isnan(estimates) & held
        error = float(np.square(np.where(has_value, rest - estimates, 0.0)).sum() / max(1, has_value.sum()))
        if error < least:
            best, least, values = float(bandwidth), error, estimates
    has_value = ~np.isnan(values) & held
    if not has_value.any():
        return filled.sum(1) / held.sum(1), held.argmax(1), best
    estimated, seen = values[has_value], rest[has_value]
    middle, spread = estimated.mean(), estimated.var()
    slope = float(np.mean((estimated - middle) * (seen - middle)) / spread) if spread > 0 else 0.0
    known = np.where(has_value, values, -np.inf)
    arm = np.where(has_value.any(1), known.argmax(1), held.argmax(1))
    worth = middle + min(1.0, max(0.0, slope)) * (known.max(1) - middle) + common[:, 0]
    return np.where(has_value.any(1), worth, filled.sum(1) / held.sum(1)), arm, best
