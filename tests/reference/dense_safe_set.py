"""Safe sets, expanders and choices of GP-SafeOpt from dense solves, one arm and one replicate at a time.

Written from Sui et al. 2015, section 4, and Berkenkamp, Krause & Schoellig 2016, section IV, with outcomes that drift
as TV-GP-UCB's model has it. No batch and no update: every question starts from all the data.
"""

import math

import torch

from tests.reference.dense_gp import dense_posterior


class DenseOutcome:
    """One function over arms and time: k(x, x') (1 - rate)^{|t - t'| / 2}, with its data and limits."""

    def __init__(self, kernel, arms, rate, noise, prior_mean, low, high):
        self.kernel, self.arms, self.rate, self.noise = kernel, arms, rate, noise
        self.prior_mean, self.low, self.high = prior_mean, low, high
        self.data = []  # (arm, time, value)

    def covariance(self, a, b):
        with torch.no_grad():
            space = self.kernel(a[:, :-1], b[:, :-1]).to_dense()
        return space * (1 - self.rate) ** ((a[:, -1:] - b[:, -1]).abs() / 2)

    def inputs(self, pairs):
        rows = [torch.cat([self.arms[arm], torch.tensor([float(time)]).double()]) for arm, time in pairs]
        return torch.stack(rows) if rows else torch.zeros(0, self.arms.shape[1] + 1).double()

    def moments(self, arm, time, added=()):
        """Mean and standard deviation at one arm, with further observations if any are given."""
        data = [*self.data, *added]
        y = torch.tensor([value - float(self.prior_mean[a]) for a, _, value in data]).double()
        X = self.inputs([(a, t) for a, t, _ in data])
        post = dense_posterior(self.covariance, X, y, self.noise, self.inputs([(arm, time)]))
        return float(post.mean[0] + self.prior_mean[arm]), math.sqrt(max(float(post.covariance[0, 0]), 0.0))

    def is_safe(self, arm, time, width, added_low=(), added_high=()):
        mean, deviation = self.moments(arm, time, added_low)
        if math.isfinite(self.low) and mean - width * deviation < self.low:
            return False
        mean, deviation = self.moments(arm, time, added_high)
        return not (math.isfinite(self.high) and mean + width * deviation > self.high)


def safe_set(outcomes, time, width):
    N = len(outcomes[0].arms)
    return [all(one.is_safe(arm, time, width) for one in outcomes) for arm in range(N)]


def is_expander(outcomes, arm, others, time, width):
    """Whether the most favourable outcomes of ``arm`` would make one of ``others`` safe."""

    def favourable(one):
        mean, deviation = one.moments(arm, time)
        return [(arm, time, mean + width * deviation)], [(arm, time, mean - width * deviation)]

    return any(all(one.is_safe(other, time, width, *favourable(one)) for one in outcomes) for other in others)


def chosen(reward, outcomes, initial, time, width, safety_width, explore):
    """The arm that Safe GP-UCB or SafeOpt plays; ``initial``: arms that are safe for now by decree."""
    certain = safe_set(outcomes, time, safety_width)
    safe = [arm for arm, ok in enumerate(certain) if ok or arm in initial]
    if not safe:
        raise LookupError("no safe arm")
    bounds = {arm: reward.moments(arm, time) for arm in safe}
    upper = {arm: mean + width * deviation for arm, (mean, deviation) in bounds.items()}
    if explore == "ucb":
        return max(safe, key=upper.get)
    best_lower = max(mean - width * deviation for mean, deviation in bounds.values())
    unsafe = [arm for arm in range(len(certain)) if arm not in safe]
    worth = [
        arm
        for arm in safe
        if upper[arm] >= best_lower or is_expander(outcomes, arm, unsafe, time, safety_width)
    ]

    def uncertainty(arm):  # every prior here has standard deviation 1
        return max(one.moments(arm, time)[1] for one in [reward, *outcomes])

    return max(worth, key=uncertainty)
