"""Looking again, one arm and one member at a time, from the rule's words."""

import math


def squared_correlation(covariance, i, j):
    """Of f_i and f_j, each less the mean of f over all arms, f with this covariance (a list of lists)."""
    arms = range(len(covariance))

    def cov(a, b):
        rows = (
            sum(covariance[a][k] for k in arms) / len(arms),
            sum(covariance[b][k] for k in arms) / len(arms),
        )
        whole = sum(covariance[k][m] for k in arms for m in arms) / len(arms) ** 2
        return covariance[a][b] - rows[0] - rows[1] + whole

    return cov(i, j) ** 2 / (cov(i, i) * cov(j, j))


def clocks(played, weights, covariances):
    """Observations since each arm was examined, after these arms were played under weights of the members (a list for
    each play) with these covariances."""
    unseen = [0] * len(covariances[0])
    for arm, weight in zip(played, weights, strict=True):
        for i in range(len(unseen)):
            alike = sum(w * squared_correlation(K, i, arm) for w, K in zip(weight, covariances, strict=True))
            unseen[i] = 0 if i == arm or alike >= 0.5 else unseen[i] + 1
    return unseen


def due(unseen, mean, every, t):
    """The available arm that is most overdue, None if none is."""
    gaps = [max(mean) - m for m in mean]
    usual = sum(gaps) / len(gaps)
    over = [
        u / (every * math.sqrt(t) * min(max(math.sqrt(g / usual), 0.5), 2.0))
        for u, g in zip(unseen, gaps, strict=True)
    ]
    return over.index(max(over)) if max(over) >= 1 else None
