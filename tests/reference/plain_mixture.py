"""Flynn & Reeb's bounds of one function from n observations, dense: by the definition, and by the dual.

Everything is in the basis of the arms: a function of norm at most B over N arms is f with f^T K^{-1} f <= B^2.
"""

import math

import numpy as np
from scipy.optimize import minimize


def squared_radius(K, arms, y, R, c, delta, events=1):
    """rho^2 of inequality (1): -2 R^2 times the log of the ratio of two Gaussian densities of y, and its threshold."""
    k = K[np.ix_(arms, arms)]
    n = len(arms)
    mixture = np.eye(n) + c * k / R**2
    return (
        y @ np.linalg.solve(mixture, y)
        + R**2 * np.linalg.slogdet(mixture)[1]
        + 2 * R**2 * math.log(events / delta)
    )


def dual_bounds(K, arms, y, R, B, c, delta, ridges, events=1, drift=0.0):
    """Lower and upper bound of every arm: the best over ridges, each by its own dense solve."""
    n = len(arms)
    k, cross = K[np.ix_(arms, arms)], K[:, arms]
    radius = math.sqrt(squared_radius(K, arms, y, R, c, delta, events)) + drift * math.sqrt(n)
    upper = B * np.sqrt(np.diag(K))  # what the norm says alone
    lower = -upper
    for alpha in ridges:
        inverse = np.linalg.inv(k + alpha * np.eye(n))
        mean = cross @ inverse @ y
        sigma = np.sqrt(np.maximum(np.diag(K) - np.einsum("ij,jk,ik->i", cross, inverse, cross), 0))
        reach = np.sqrt(max(radius**2 / alpha + B**2 - y @ inverse @ y, 0)) * sigma
        lower, upper = np.maximum(lower, mean - reach), np.minimum(upper, mean + reach)
    return lower, upper


def largest_value(K, arms, y, B, radius, x):
    """max f(x) over ||f(X) - y|| <= radius and f^T K^{-1} f <= B^2: the primal, by sequential quadratic programming."""
    root = np.linalg.cholesky(K)  # f = root z, ||f||_H = ||z||
    found = []
    for start in (np.zeros(len(K)), np.linalg.lstsq(root[arms], y, rcond=None)[0] * 0.5):
        answer = minimize(
            lambda z: -(root[x] @ z),
            start,
            jac=lambda z: -root[x],
            constraints=[
                {
                    "type": "ineq",
                    "fun": lambda z: radius**2 - np.sum((root[arms] @ z - y) ** 2),
                    "jac": lambda z: -2 * root[arms].T @ (root[arms] @ z - y),
                },
                {"type": "ineq", "fun": lambda z: B**2 - z @ z, "jac": lambda z: -2 * z},
            ],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        if answer.success:
            found.append(-answer.fun)
    return max(found)
