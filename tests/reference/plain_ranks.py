"""Ranks and their bootstrap, one number at a time: the obvious way."""

import random


def rank(values, i):
    """1 + how many are less + half of how many others tie."""
    less = sum(v < values[i] for v in values)
    ties = sum(v == values[i] for v in values) - 1
    return 1 + less + ties / 2


def mean_ranks(cube):
    """cube[e][p] is a list over replicates, as long as e likes; the mean over e of the rank of p's mean."""
    each = []
    for environment in cube:
        means = [sum(row) / len(row) for row in environment]
        each.append([rank(means, p) for p in range(len(means))])
    return [sum(column) / len(column) for column in zip(*each, strict=True)]


def rank_intervals(cube, resamples, seed=0):
    """95 % percentile intervals, environments resampled and within them replicates, the same for all policies."""
    draw = random.Random(seed)
    samples = []
    for _ in range(resamples):
        sample = []
        for environment in draw.choices(cube, k=len(cube)):
            replicates = draw.choices(range(len(environment[0])), k=len(environment[0]))
            sample.append([[row[r] for r in replicates] for row in environment])
        samples.append(mean_ranks(sample))
    intervals = []
    for column in zip(*samples, strict=True):
        ordered = sorted(column)
        intervals.append((ordered[int(0.025 * resamples)], ordered[int(0.975 * resamples)]))
    return intervals
