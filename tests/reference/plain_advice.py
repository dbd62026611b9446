"""Confidence in the best of several policies, from its definition: every pattern of signs, one number at a time."""

import itertools
import math
import statistics


def t_of(values):
    """Mean over its standard error; 0 where all values are 0, without bound where they are equal."""
    if not any(values):
        return 0.0
    spread = statistics.stdev(values)
    return math.inf * statistics.fmean(values) if spread == 0 else statistics.fmean(values) / spread


def corrected(values):
    """``t_of`` with Hall's correction for skewness."""
    w, K = t_of(values), len(values)
    if not math.isfinite(w) or w == 0:
        return w
    mean, spread = statistics.fmean(values), statistics.pstdev(values)
    g = statistics.fmean(((v - mean) / spread) ** 3 for v in values)
    return w + g * w**2 / 3 + g**2 * w**3 / 27 + g / (6 * K)


def confidence(table):
    """``table[j]``: regret of policy j on each unit; the policy of the least mean against every other."""
    leader = min(table, key=statistics.fmean)
    others = [c for c in table if c is not leader]
    return 1 - max(_doubt(c, leader, table) for c in others)


def _doubt(c, leader, table):
    rivals = [j for j in table if j is not c]
    lead = [x - y for x, y in zip(c, leader, strict=True)]
    ahead, alone = t_of(lead), corrected(lead)
    as_far = as_far_alone = total = 0
    for signs in itertools.product((1, -1), repeat=len(c)):
        flipped = [[s * (x - y) for s, x, y in zip(signs, c, j, strict=True)] for j in rivals]
        as_far += max(t_of(d) for d in flipped) >= ahead - 1e-9 * abs(ahead)
        as_far_alone += t_of([s * x for s, x in zip(signs, lead, strict=True)]) >= alone - 1e-9 * abs(alone)
        total += 1
    return max(as_far, as_far_alone) / total


def p_of_mean(values):
    """Share of all patterns of signs whose sum is as far from 0 as that of the values."""
    sums = [
        sum(s * v for s, v in zip(signs, values, strict=True))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    return statistics.fmean(abs(one) >= abs(sums[0]) - 1e-12 for one in sums)
