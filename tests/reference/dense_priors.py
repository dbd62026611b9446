"""One run over candidate priors, refitting a dense Gaussian process for every prior at every step."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tests.reference.dense_arm_gp import DenseArmGP, forgetting
from tests.reference.dense_gp import DensePosterior


class DensePrior(NamedTuple):
    """f(i, t) ~ GP(mean_i, covariance_ij (1 - rate)^{|s - t|/2})."""

    covariance: Tensor
    mean: Tensor
    rate: float
    noise_variance: float

    def fit(self, arms: list[int], rewards: list[float], times: list[float], now: float):
        """Mean and variance of every arm at ``now``, and the log marginal likelihood of the data."""
        mean, covariance, _, likelihood = self.given(arms, rewards, times, now)
        return mean, covariance.diagonal(), likelihood

    def given(self, arms: list[int], rewards: list[float], times: list[float], now: float) -> DensePosterior:
        dense = DenseArmGP(self.covariance, self.noise_variance, self.mean, forgetting(self.rate))
        for one in zip(arms, rewards, times, strict=True):
            dense.observe(*one)
        return dense.answers(now)


class Step(NamedTuple):
    """What a run looked like before it learned the reward of a step, and what it then dropped."""

    arm: int
    prior: int
    means: Tensor
    variances: Tensor
    likelihoods: list[float]
    surviving: list[bool]
    all_refuted: bool


class DenseRun:
    """PE-GP-UCB, the likeliest prior or the Bayesian average for a single replicate, word for word.

    Args:
        rule: ``"eliminate"``, ``"likeliest"`` or ``"bayes"``.
        width: step -> width of each prior, (P,) or a number.
    """

    def __init__(self, priors, rule, width, delta=0.1) -> None:
        self.priors, self.rule, self.width, self.delta = priors, rule, width, delta
        self.arms, self.rewards, self.times = [], [], []
        self.record = [[] for _ in priors]  # (eta_i, width_i sigma_i) of the steps each prior was played
        self.surviving, self.all_refuted = [True] * len(priors), False

    def fits(self, now):
        return [prior.fit(self.arms, self.rewards, self.times, now) for prior in self.priors]

    def choose(self, now, available=None):
        fits = self.fits(now)
        widths = torch.as_tensor(self.width(len(self.arms) + 1), dtype=torch.float64).expand(len(fits))
        scores = [m + w * v.clamp_min(0).sqrt() for (m, v, _), w in zip(fits, widths, strict=True)]
        logs = [fit[2] for fit in fits]
        allowed = range(len(scores[0])) if available is None else available.nonzero().flatten().tolist()
        if self.rule == "eliminate":
            arm, prior = max(
                ((x, p) for x in allowed for p in range(len(fits)) if self.surviving[p]),
                key=lambda xp: float(scores[xp[1]][xp[0]]),
            )
        elif self.rule == "likeliest":
            prior = max(range(len(fits)), key=lambda p: logs[p])
            arm = max(allowed, key=lambda x: float(scores[prior][x]))
        else:
            weights = [math.exp(log - max(logs)) for log in logs]
            prior = max(range(len(fits)), key=lambda p: weights[p])
            average = sum(w * s for w, s in zip(weights, scores, strict=True)) / sum(weights)
            arm = max(allowed, key=lambda x: float(average[x]))
        return arm, prior, float(widths[prior]), fits

    def learn(self, arm, prior, width, reward, now, fits) -> Step:
        mean, variance, _ = fits[prior]
        self.arms.append(arm)
        self.rewards.append(reward)
        self.times.append(now)
        sigma = math.sqrt(max(float(variance[arm]), 0.0))
        self.record[prior].append((reward - float(mean[arm]), width * sigma))
        if self.rule == "eliminate":
            self._eliminate(prior)
        return Step(
            arm,
            prior,
            torch.stack([fit[0] for fit in fits]),
            torch.stack([fit[1] for fit in fits]),
            [fit[2] for fit in fits],
            list(self.surviving),
            self.all_refuted,
        )

    def _eliminate(self, prior) -> None:
        t, plays = len(self.arms), len(self.record[prior])
        events = 2 * len(self.priors) * math.pi**2 * t**2 / (3 * self.delta)
        xi = 2 * self.priors[prior].noise_variance * math.log(events)
        error = abs(sum(eta for eta, _ in self.record[prior]))
        if error > math.sqrt(xi * plays) + sum(bound for _, bound in self.record[prior]):
            if sum(self.surviving) == 1:
                self.all_refuted = True
            else:
                self.surviving[prior] = False


class DenseRegretBalancing:
    """Ziomek et al. 2024, Algorithm 2, for a single replicate, word for word."""

    def __init__(self, priors, width, delta=0.1) -> None:
        self.priors, self.width, self.delta = priors, width, delta
        self.arms, self.rewards, self.times = [], [], []
        self.alive = set(range(len(priors)))
        self.played = [[] for _ in priors]  # (reward, width sigma)

    def step(self, now, available, reward_of):
        u = self.followed()
        mean, variance, _ = self.priors[u].fit(self.arms, self.rewards, self.times, now)
        width, sigma = self.width(len(self.arms) + 1), variance.clamp_min(0).sqrt()
        arm = max(available.nonzero().flatten().tolist(), key=lambda x: float(mean[x] + width * sigma[x]))
        self.learn(now, arm, reward_of(arm), width * float(sigma[arm]))
        return arm, u

    def followed(self):
        return min(sorted(self.alive), key=lambda p: len(self.played[p]) + 1)

    def learn(self, now, arm, reward, bound):
        u = self.followed()
        self.arms.append(arm)
        self.rewards.append(reward)
        self.times.append(now)
        self.played[u].append((reward, bound))
        if all(self.played[p] for p in self.alive):
            lower = {
                p: self._average(p, 0) - math.sqrt(self._xi(p) / len(self.played[p])) for p in self.alive
            }
            best = max(lower.values())
            self.alive = {p for p in self.alive if lower[p] + self._average(p, 1) >= best}

    def _average(self, p, column):
        return sum(row[column] for row in self.played[p]) / len(self.played[p])

    def _xi(self, p):
        events = 2 * len(self.priors) * math.pi**2 * len(self.arms) ** 2 / (3 * self.delta)
        return 2 * self.priors[p].noise_variance * math.log(events)
