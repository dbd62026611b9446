"""The classical bandits for one replicate, from the papers' formulas: lists, loops, and all rewards kept.

Rewards lie in [0, 1], or are scaled to it by the range given. Each function takes what was played so far, a list of
(arm, reward), and gives what the next choice rests on.
"""

import math

import numpy as np
from scipy.integrate import trapezoid
from scipy.stats import beta, norm


def of(arm, played):
    return [reward for a, reward in played if a == arm]


def argmax(values):
    return values.index(max(values))


def spread(played):
    rewards = [reward for _, reward in played]
    return max(rewards) - min(rewards)


def ucb1(played, arms):
    """Auer et al. 2002, Figure 1: play each once, then the largest mean + sqrt(2 ln n / n_j)."""
    index = []
    for arm in range(arms):
        own = of(arm, played)
        if not own:
            return arm
        index.append(sum(own) / len(own) + spread(played) * math.sqrt(2 * math.log(len(played)) / len(own)))
    return argmax(index)


def discounted_ucb(played, arms, gamma, xi):
    """Garivier & Moulines 2011, equations of section 3."""
    t = len(played)
    weights = [gamma ** (t - 1 - s) for s in range(t)]
    number = [sum(w for w, (a, _) in zip(weights, played, strict=True) if a == arm) for arm in range(arms)]
    if 0 in number:
        return number.index(0)
    total = sum(number)
    index = []
    for arm in range(arms):
        mean = sum(w * x for w, (a, x) in zip(weights, played, strict=True) if a == arm) / number[arm]
        index.append(mean + 2 * spread(played) * math.sqrt(xi * math.log(max(1, total)) / number[arm]))
    return argmax(index)


def sliding_window_ucb(played, arms, tau, xi):
    """Garivier & Moulines 2011, equations of section 4."""
    recent, index = played[-tau:], []
    for arm in range(arms):
        own = of(arm, recent)
        if not own:
            return arm
        bonus = spread(played) * math.sqrt(xi * math.log(min(len(played), tau)) / len(own))
        index.append(sum(own) / len(own) + bonus)
    return argmax(index)


def kl(p, q):
    q = min(max(q, 1e-15), 1 - 1e-15)
    first = p * math.log(p / q) if p > 0 else 0.0
    return first + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


def largest_q(mean, level):
    """max {q : kl(mean, q) <= level}."""
    low, high = mean, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if kl(mean, middle) <= level else (low, middle)
    return low


class GLRKLUCB:
    """Besson et al. 2022, Algorithm 1, one arm at a time, with the means of every split summed anew."""

    def __init__(self, arms, delta, exploration, restarts):
        self.arms, self.delta, self.exploration, self.restarts = arms, delta, exploration, restarts
        self.rewards = [[] for _ in range(arms)]
        self.forgotten = [0] * arms
        self.time, self.episode = 0, 1

    def choose(self):
        alpha = min(1.0, self.exploration * math.sqrt(self.episode))
        if alpha > 0:
            turn = self.time % math.floor(self.arms / alpha)
            if turn < self.arms:
                return turn
        index = []
        for arm, rewards in enumerate(self.rewards):
            if not rewards:
                return arm
            elapsed = max(1, self.time - self.forgotten[arm])
            index.append(largest_q(sum(rewards) / len(rewards), math.log(elapsed) / len(rewards)))
        return argmax(index)

    def learn(self, arm, reward):
        self.time += 1
        own = self.rewards[arm]
        own.append(reward)
        n, mean = len(own), sum(own) / len(own)
        for s in range(1, n):
            before, after = sum(own[:s]) / s, sum(own[s:]) / (n - s)
            if s * kl(before, mean) + (n - s) * kl(after, mean) > math.log(n**1.5 / self.delta):
                self.episode += 1
                for gone in [arm] if self.restarts == "local" else range(self.arms):
                    self.rewards[gone], self.forgotten[gone] = [], self.time
                return


class EXP3S:
    """Auer et al. 2002, Figure "Algorithm Exp3.S": weights as they stand, never normalised."""

    def __init__(self, arms, gamma, alpha):
        self.arms, self.gamma, self.alpha, self.weights = arms, gamma, alpha, [1.0] * arms

    def probabilities(self):
        total = sum(self.weights)
        return [(1 - self.gamma) * w / total + self.gamma / self.arms for w in self.weights]

    def learn(self, arm, reward):
        p, total = self.probabilities()[arm], sum(self.weights)
        for i in range(self.arms):
            gain = reward / p if i == arm else 0.0
            grown = self.weights[i] * math.exp(self.gamma * gain / self.arms)
            self.weights[i] = grown + math.e * self.alpha / self.arms * total


def thompson_draws(played, arms, gamma, uniforms, noise=None, binary=True):
    """Quantiles ``uniforms`` of the posterior of each arm's mean: Beta, or normal with the prior of all rewards."""
    t = len(played)
    every = [x for _, x in played]
    m = sum(every) / t
    v = sum((x - m) ** 2 for x in every) / t
    draws = []
    for arm, u in zip(range(arms), uniforms, strict=True):
        weights = [(gamma ** (t - 1 - s), x) for s, (a, x) in enumerate(played) if a == arm]
        number, total = sum(w for w, _ in weights), sum(w * x for w, x in weights)
        if binary:
            draws.append(float(beta(1 + total, 1 + number - total).ppf(u)))
        else:
            s2 = v if noise is None else noise
            precision = 1 / v + number / s2
            draws.append(float(norm((m / v + total / s2) / precision, precision**-0.5).ppf(u)))
    return draws


def weighted_mean(rewards, step):
    """Sutton & Barto 2018, equation 2.6: (1 - a)^(n-1) R_1 + sum_{i >= 2} a (1 - a)^(n-i) R_i."""
    n = len(rewards)
    later = sum(step * (1 - step) ** (n - i) * rewards[i - 1] for i in range(2, n + 1))
    return (1 - step) ** (n - 1) * rewards[0] + later


class LogOddsUCB:
    """A mixture of models of log-odds, one arm and one model at a time, each integral a sum over a fine grid.

    ``levels``: pairs of a list of prior means of the log-odds, one for each arm, and its weight.
    """

    def __init__(self, levels, variances, rates, width, share):
        self.models = [
            {
                "mean": list(mu),
                "var": [s] * len(mu),
                "mu": mu,
                "s": s,
                "r": r,
                "prior": w / len(variances) / len(rates),
            }
            for mu, w in levels
            for s in variances
            for r in rates
        ]
        self.weights = [model["prior"] for model in self.models]
        self.width, self.share = width, share

    def choose(self):
        bounds = []
        for arm in range(len(self.models[0]["mu"])):
            both = list(zip(self.weights, self.models, strict=True))
            mean = sum(w * model["mean"][arm] for w, model in both)
            square = sum(w * (model["var"][arm] + model["mean"][arm] ** 2) for w, model in both)
            bounds.append(mean + self.width * math.sqrt(square - mean**2))
        return argmax(bounds)

    def learn(self, arm, y):
        chances = []
        for model in self.models:
            m, v = model["mean"][arm], model["var"][arm]
            f = m + math.sqrt(v) * np.linspace(-10, 10, 2001)
            p = 1 / (1 + np.exp(-f))
            density = norm.pdf(f, m, math.sqrt(v)) * p**y * (1 - p) ** (1 - y)
            chance = trapezoid(density, f)
            mean = trapezoid(density * f, f) / chance
            model["mean"][arm], model["var"][arm] = mean, trapezoid(density * (f - mean) ** 2, f) / chance
            chances.append(chance)
            for i, mu in enumerate(model["mu"]):
                model["mean"][i] = mu + math.sqrt(1 - model["r"]) * (model["mean"][i] - mu)
                model["var"][i] = (1 - model["r"]) * model["var"][i] + model["r"] * model["s"]
        total = sum(w * chance for w, chance in zip(self.weights, chances, strict=True))
        self.weights = [
            (1 - self.share) * w * chance / total + self.share * model["prior"]
            for w, chance, model in zip(self.weights, chances, self.models, strict=True)
        ]
