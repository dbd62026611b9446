"""The design problems, written as in the paper with p x p matrices and handed to a general solver."""

import numpy as np
from scipy.optimize import minimize


def objective(phi, gaps, ridge, weight, P):
    """sum P gap - w log det(sum P phi phi^T + r I)."""
    S = ridge * np.eye(phi.shape[1])
    for probability, row in zip(P, phi, strict=True):
        S += probability * np.outer(row, row)
    return gaps @ P - weight * np.linalg.slogdet(S)[1]


def minimiser(phi, gaps, ridge, weight, allowed):
    """The distribution on the allowed arms that SLSQP finds."""
    arms = np.flatnonzero(allowed)

    def scattered(q):
        P = np.zeros(len(phi))
        P[arms] = q
        return P

    solved = minimize(
        lambda q: objective(phi, gaps, ridge, weight, scattered(q)),
        np.full(len(arms), 1 / len(arms)),
        bounds=[(0, 1)] * len(arms),
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return scattered(solved.x)


def leverages(phi, ridge, P):
    """phi(x)^T S^{-1} phi(x), one solve per arm."""
    S = ridge * np.eye(phi.shape[1]) + sum(p * np.outer(row, row) for p, row in zip(P, phi, strict=True))
    return np.array([row @ np.linalg.solve(S, row) for row in phi])
