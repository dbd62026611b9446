"""The probability of being best, and quantiles of a mixture, from their definitions."""

import numpy as np
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm


def probability_best(weights, means, covariances):
    """P(f_i > f_j for all j) of each i, under a mixture of normal laws of weights (P,): by scipy's normal orthant."""
    K = means.shape[-1]
    found = np.zeros(K)
    for i in range(K):
        others = [j for j in range(K) if j != i]
        D = np.zeros((K - 1, K))  # rows f_j - f_i
        D[:, i] = -1
        D[range(K - 1), others] = 1
        for weight, mean, covariance in zip(weights, means, covariances, strict=True):
            law = multivariate_normal(D @ mean, D @ covariance @ D.T, allow_singular=True)
            found[i] += weight * law.cdf(np.zeros(K - 1))
    return found


def quantile(share, weights, means, variances):
    """Where the distribution function of a mixture of normal laws is ``share``."""
    deviations = np.sqrt(variances)
    reach = 40 * deviations.max() + np.ptp(means)
    below = lambda x: weights @ norm.cdf((x - means) / deviations) - share  # noqa: E731
    return brentq(below, means.min() - reach, means.max() + reach, xtol=1e-12)
