"""BKB written plainly in NumPy: Figure 1 of Calandriello et al. (2019), with the counters of their section 3.2."""

import numpy as np
from scipy.linalg import solve_triangular


class NumpyBKB:
    """One replicate; the arms pulled stand once, with a count and a sum of rewards, not once for each pull.

    Args:
        points: of the arms, (N, d).
        kernel: gives the covariance of points (n, d) and (l, d), (n, l).
        noise_variance, oversampling: lambda, qbar.
        width: gives beta~ / sqrt(lambda) from the effective dimension and the step.
        root: ``"printed"``: z = (K_S^{1/2})^+ k_S, by eigenvalues; ``"cholesky"``: a rotation of it, L^{-1} k_S, which
            keeps more digits where K_S is nearly singular.
    """

    def __init__(self, points, kernel, noise_variance, oversampling, width, root="printed"):
        self.root = root
        self.points, self.kernel, self.lam, self.qbar = points, kernel, noise_variance, oversampling
        self.width = width
        self.pulled, self.place = [], {}  # arms in the order of their first pulls
        self.count, self.total = np.zeros(0), np.zeros(0)
        self.dictionary = []
        self._prior = np.array([kernel(x[None], x[None])[0, 0] for x in points])
        self.mean, self.variance = np.zeros(len(points)), self._prior

    def choose(self):
        """V = Z^T Z + lambda I, and the arm of the largest index."""
        inducing = self.points[self.dictionary]
        K, cross = self.kernel(inducing, inducing), self.kernel(inducing, self.points)
        if self.root == "printed":
            values, vectors = np.linalg.eigh(K)
            kept = values > 1e-12 * values[-1]
            z = (vectors[:, kept] / np.sqrt(values[kept])).T @ cross
        else:
            lower = np.linalg.cholesky(K + 1e-13 * np.eye(len(K)))
            z = solve_triangular(lower, cross, lower=True, check_finite=False)
        Z = z[:, self.pulled]
        A = (Z * self.count) @ Z.T
        inverse = np.linalg.inv(A + self.lam * np.eye(len(A)))
        self.mean = (inverse @ (Z @ self.total)) @ z
        self.variance = np.maximum(self._prior - (z * ((inverse @ A) @ z)).sum(0), 0.0)
        dimension = self.count @ self.variance[self.pulled] / self.lam
        width = self.width(dimension, int(self.count.sum()) + 1)
        return int((self.mean + width * np.sqrt(self.variance)).argmax())

    def learn(self, arm, reward, coins):
        """A fresh dictionary, by the variances of before; ``coins`` gives a uniform number for each arm pulled."""
        if arm not in self.place:
            self.place[arm] = len(self.pulled)
            self.pulled.append(arm)
            self.count, self.total = np.append(self.count, 0.0), np.append(self.total, 0.0)
        self.count[self.place[arm]] += 1
        self.total[self.place[arm]] += reward
        once = np.minimum(1.0, self.qbar * self.variance[self.pulled] / self.lam)
        enters = coins(len(self.pulled)) < 1 - (1 - once) ** self.count
        self.dictionary = [x for x, wins in zip(self.pulled, enters, strict=True) if wins] or [arm]


def squared_exponential(lengthscale):
    """k(x, y) = exp(-|x - y|^2 / (2 lengthscale^2))."""

    def covariance(x, y):
        squared = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
        return np.exp(-np.maximum(squared, 0.0) / (2 * lengthscale**2))

    return covariance
