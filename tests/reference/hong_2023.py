"""OPKB, ADA-OPKB, OPNN and ADA-OPNN, written from Hong, Li & Tewari (2023) alone: one replicate, everything p x p.

Nothing is taken from the package: schedule, thresholds, probabilities, designs, estimates and gradients are computed
here. Corrections of the print: P^(j) is built from Q^(j) (Algorithms 3 and 7 print Q^(m_t)); E and alpha keep C0
(Algorithm 3 drops it); the features of block 0 have the scale 1/sqrt(m) too (Algorithm 5 prints none).
"""

import math

import numpy as np
import torch

from tests.reference.simple_design import minimiser


class Numbers:
    """Definitions of Algorithm 2, with C0 = 8 T log2 T of appendix D.1."""

    def __init__(self, arms, T, gamma, sigma, delta, c0, c1, c2, c3, c4):
        log_term = math.log(8 * T * math.log2(T) * arms / delta)
        self.gamma, self.sigma, self.T, self.c0, self.c1, self.c2 = gamma, sigma, T, c0, c1, c2
        self.alpha = c4 * sigma / log_term
        self.E = math.ceil(c3 * gamma * log_term)

    def mu(self, j):
        return self.c1 / math.sqrt(2) ** j

    def beta(self, j):
        return self.c2 * self.gamma * math.sqrt(2) ** j


def theory(arms, T, gamma, sigma, delta):
    """The constants of appendix D.1."""
    alpha = sigma / (4 * math.log(8 * T * math.log2(T) * arms / delta))
    c0, c2 = 40 + 16 * math.sqrt(alpha), 1 / (10 + 4 * math.sqrt(alpha))
    return Numbers(arms, T, gamma, sigma, delta, c0, 1 / 2, c2, 4, 1 / 4)


def S(phi, Q, ridge):
    """S_phi(Q, lambda), section 2.1."""
    return phi.T @ np.diag(Q) @ phi + ridge * np.eye(phi.shape[1])


def design(phi, sigma, T, among=None):
    """pi_phi(A), Definition 4.2."""
    among = np.ones(len(phi), dtype=bool) if among is None else among
    return minimiser(phi, np.zeros(len(phi)), sigma / T, 1.0, among)


def gain(phi, sigma, T):
    """gamma_{phi,T} = max_P log det S_phi(T P / sigma, 1), section 2.1; the maximiser is the optimal design."""
    return np.linalg.slogdet(S(phi, T * design(phi, sigma, T) / sigma, 1.0))[1]


def kept(gaps, alpha, beta, gamma):
    """A of Algorithm 1, line 3."""
    return gaps <= 2 * alpha * gamma / beta


def OP(phi, gaps, alpha, beta, gamma, sigma, T):
    """Algorithm 1."""
    P_star = minimiser(phi, gaps, sigma / T, 2 / beta, np.ones(len(phi), dtype=bool))
    return P_star / 2 + design(phi, sigma, T, kept(gaps, alpha, beta, gamma)) / 2


def schedule(t, j, E, uniform):
    """Algorithm 4; ``uniform(m, slot)`` decides whether the slot of index m is scheduled. Intervals [start, end)."""
    scheduled = [(j, t, t + 2**j * E)]
    for tau in range(2**j * E):
        for m in range(j):
            if tau % (2**m * E) == 0 and uniform(m, tau // (2**m * E)) < math.sqrt(2**m) / math.sqrt(2**j):
                scheduled.append((m, t + tau, t + tau + 2**m * E))
    return scheduled


def estimate(phi, sigma, T, history):
    """R^_{phi,I}(x) of Definition 4.1, averaged over a history of (P_t, x_t, y_t)."""
    total = np.zeros(len(phi))
    inverses = {}  # by identity: the few distributions played
    for P, arm, y in history:
        if id(P) not in inverses:
            inverses[id(P)] = np.linalg.inv(S(phi, P, sigma / T))
        total += phi @ (inverses[id(P)] @ phi[arm]) * y
    return total / len(history)


def gap(phi, sigma, T, history):
    """Delta^_{phi,I}(x)."""
    estimates = estimate(phi, sigma, T, history)
    return estimates.max() - estimates


class PlainADA:
    """Algorithm 3, and 7 where ``features`` depend on the history; ``adapts=False``: Algorithms 2 and 5.

    ``features(j, history)`` are phi^(j), (N, p). Arms are told, not drawn; ``uniform(j)`` gives ``schedule``'s.
    ``sets`` keeps A of every block, and what it would be at half the threshold and with the gamma of phi^(0).
    """

    def __init__(self, features, T, sigma, delta, c, uniform, adapts=True):
        self.features, self.T, self.sigma, self.uniform, self.adapts = features, T, sigma, uniform, adapts
        self.first = features(0, [])
        gamma = gain(self.first, sigma, T)
        self.numbers = Numbers(len(self.first), T, gamma, sigma, delta, *c)
        self.restarts, self.statistics, self.sets = 0, [], []
        self.begin()

    def begin(self):
        self.phi, self.j, self.history, self.lengths = self.first, 0, [], []
        self.P = [design(self.first, self.sigma, self.T)]
        self.scheduled = [(0, 0, self.numbers.E)]

    def playing(self):
        t = len(self.history)
        return min(m for m, start, end in self.scheduled if start <= t < end)

    def learn(self, arm, y):
        self.history.append((self.P[self.playing()], arm, y))
        t = len(self.history)
        if self.adapts and self.changed(t):
            self.restarts += 1
            self.begin()
        elif t == self.numbers.E * (2 ** (self.j + 1) - 1):
            self.lengths.append(t)
            self.begin_block(t)

    def begin_block(self, t):
        n, sigma, T = self.numbers, self.sigma, self.T
        self.j += 1
        j = self.j
        self.phi = self.features(j, self.history)
        gaps = gap(self.phi, sigma, T, self.history)
        gamma = gain(self.phi, sigma, T)
        Q = OP(self.phi, gaps, n.alpha, n.beta(j), gamma, sigma, T)
        self.sets.append([kept(gaps, n.alpha, n.beta(j), g) for g in (gamma, gamma / 2, n.gamma)])
        self.P.append((1 - n.mu(j)) * Q + n.mu(j) * design(self.phi, sigma, T))
        self.scheduled = schedule(t, j, n.E, self.uniform(j)) if self.adapts else [(j, t, t + 2**j * n.E)]

    def changed(self, t):
        """Equation 8; keeps both sides over c0 mu for every test made."""
        changed = False
        for m, start, end in self.scheduled:
            if end != t:
                continue
            now = gap(self.phi, self.sigma, self.T, self.history[start:end])
            for k, length in enumerate(self.lengths):
                then = gap(self.phi, self.sigma, self.T, self.history[:length])
                largest = max((now - 4 * then).max(), (then - 4 * now).max())
                unit = self.numbers.c0 * self.numbers.mu(min(m, k))
                self.statistics.append(largest / unit)
                changed = changed or largest > 4 * unit
        return changed


# -- section 5 ---------------------------------------------------------------------------------------------


def network(weights, x):
    """f(x; W) = sqrt(m) W_L relu(W_{L-1} ... relu(W_1 x))."""
    hidden = x
    for W in weights[:-1]:
        hidden = torch.relu(hidden @ W.T)
    return math.sqrt(weights[-1].shape[1]) * (hidden @ weights[-1].T).squeeze(-1)


def gradients(weights, x):
    """g(x; W) by automatic differentiation, one arm at a time, (N, p)."""
    rows = []
    for one in x:
        W = [w.clone().requires_grad_() for w in weights]
        parts = torch.autograd.grad(network(W, one.unsqueeze(0)).sum(), W)
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows)


def train(start, x, history, regulariser, step_size, steps):
    """Algorithm 6."""
    weights = [W.clone() for W in start]
    m = start[-1].shape[1]
    for _ in range(steps):
        W = [w.clone().requires_grad_() for w in weights]
        loss = sum((network(W, x[[arm]])[0] - y) ** 2 / 2 for _, arm, y in history)
        loss = loss + m * regulariser * sum((a - b).square().sum() for a, b in zip(W, start, strict=True)) / 2
        moves = torch.autograd.grad(loss, W)
        weights = [w - step_size * move for w, move in zip(weights, moves, strict=True)]
    return weights


def neural_features(start, x, regulariser, steps, step_size):
    """phi^(j) equivalent to g(.; W^(j)) / sqrt(m); ``step_size(history)`` is eta, which the paper tunes."""
    m = start[-1].shape[1]

    def features(j, history):
        weights = start if j == 0 else train(start, x, history, regulariser, step_size(history), steps)
        return (gradients(weights, x) / math.sqrt(m)).numpy()

    return features
