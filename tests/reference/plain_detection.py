"""Detection augmented learning for one replicate: the test sums every split anew, the base sees lists."""

import math


class PlainDetection:
    """``base(played)`` chooses by the (arm, reward) learned since the last restart; ``watched`` arms have turns."""

    def __init__(self, base, watched, noise_scale, delta, exploration):
        self.base, self.watched, self.scale = base, watched, noise_scale
        self.delta, self.exploration = delta, exploration
        self.played, self.restarts = [], 0

    def choose(self, available=None):
        alpha = min(1.0, self.exploration * math.sqrt(self.restarts + 1))
        turn = len(self.played) % math.floor(len(self.watched) / alpha)
        if turn < len(self.watched) and (available is None or available[self.watched[turn]]):
            return self.watched[turn]
        return self.base(self.played)

    def learn(self, arm, reward):
        self.played.append((arm, reward))
        own = [x for a, x in self.played if a == arm]
        n, mean = len(own), sum(own) / len(own)
        for s in range(1, n):
            before, after = sum(own[:s]) / s, sum(own[s:]) / (n - s)
            ratio = (s * (before - mean) ** 2 + (n - s) * (after - mean) ** 2) / (2 * self.scale**2)
            if ratio > math.log(n**1.5 / self.delta):
                self.played, self.restarts = [], self.restarts + 1
                return
