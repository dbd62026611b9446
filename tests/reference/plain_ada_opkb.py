"""ADA-OPKB as one would write it from the paper: one replicate, every R^_t kept, no sums, no snapshots."""

import numpy as np


def gaps(estimates):
    mean = np.mean(estimates, axis=0)
    return mean.max() - mean


class PlainAdaOPKB:
    """Algorithm 3 for features phi (N, p); arms and the replay schedule are told, not drawn.

    ``strategy(block, gaps)`` returns P^(j), so that the convex programs are not solved twice.
    """

    def __init__(self, phi, schedule, pi, strategy, replays):
        self.phi, self.schedule, self.pi = phi, schedule, pi
        self.strategy, self.replays = strategy, replays
        self.restarts = 0
        self.begin()

    def begin(self):
        self.estimates, self.P, self.blocks, self.j = [], [self.pi], [], 0
        self.S = [(0, 0, self.schedule.base)]

    def playing(self):
        t = len(self.estimates)
        return min(m for m, start, end in self.S if start <= t < end)

    def learn(self, arm, reward):
        P = self.P[self.playing()]
        S = self.phi.T @ np.diag(P) @ self.phi + self.schedule.ridge * np.eye(self.phi.shape[1])
        self.estimates.append(self.phi @ np.linalg.solve(S, self.phi[arm]) * reward)
        t = len(self.estimates)
        if self.changed(t):
            self.restarts += 1
            self.begin()
        elif t == self.schedule.base * (2 ** (self.j + 1) - 1):
            self.blocks.append(t)
            self.j += 1
            self.P.append(self.strategy(self.j, gaps(self.estimates)))
            self.S = [(self.j, t, t + self.schedule.base * 2**self.j), *self.replays(t, self.j)]

    def changed(self, t):
        for m, start, end in self.S:
            if end != t:
                continue
            now = gaps(self.estimates[start:end])
            for k, length in enumerate(self.blocks):
                then = gaps(self.estimates[:length])
                threshold = self.schedule.threshold(min(m, k))
                if (now - 4 * then > threshold).any() or (then - 4 * now > threshold).any():
                    return True
        return False
