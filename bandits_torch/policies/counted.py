"""Rewards that are 0 or 1, or counts, learned by a Gaussian process over their log-odds or log-rate."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.policies.wrapping import WrappingPolicy

KINDS = ("binary", "counts")
_STEPS, _NODES = 80, 200  # bisections that find a mode; nodes of the quadrature around it
_REACH = 9.0  # deviations on either side of the mean, over which an expectation is integrated


class LatentRewards(WrappingPolicy):
    """Wraps an index policy to learn rewards y of 0 and 1, or counts, from a Gaussian process f over their log-odds or
    log-rate: y ~ Bernoulli(1 / (1 + exp(-f))), or y ~ Poisson(exp f).

    Assumed density filtering: let N(m, v) be the posterior of f at the arm played. The reward is learned as a Gaussian
    observation z with noise variance r. They give f at this arm the mean m' and variance v' of N(f; m, v) p(y | f):

        1/r = 1/v' - 1/v,    z = r (m'/v' - m/v).

    m' and v' are computed by quadrature around the mode; apart from its error, the update is exact at the arm played.
    Other arms change through the prior's correlations. The approximation is to treat the posterior as Gaussian again
    before the next reward. The expected reward grows with f, so the best arm has the largest f.

    The policy's kernel, prior mean and width describe f. The model's ``noise_variance`` is used only for pending
    rewards. No theorem for the width covers this policy. ``marginals`` gives the posterior of the expected reward, a
    probability or a rate; ``latent_marginals`` gives that of f.

    Args:
        policy: an ``IndexPolicy`` over an ``ArmGP`` that takes rewards with a noise variance
            (``Observation.noise_variance``).
        rewards: ``"binary"``, each 0 or 1, or ``"counts"``, integers >= 0.

    Source: Opper 1998; Rasmussen & Williams 2006, section 3.6 (a single pass of expectation propagation). Raises
    ValueError for any other policy or ``rewards``. If the model drifts, ``learn`` refuses late rewards.
    """

    policy: IndexPolicy
    needs_unit = "it learns numbers that are 0 or 1, or counts"

    def __init__(self, policy: Policy, rewards: str) -> None:
        takes = isinstance(policy, IndexPolicy) and policy.choices.takes_noise
        expected = "an IndexPolicy over an ArmGP, not of form='factor', that forgets nothing"
        validation.require(takes, "policy", policy, expected)
        validation.one_of("rewards", rewards, *KINDS)
        assert isinstance(policy, IndexPolicy)
        self.rewards = rewards
        self._around(policy)

    def learn(self, observation: Observation) -> None:
        self.policy.check(observation)
        y = observation.reward
        noise = observation.noise_variance
        validation.require(
            noise is None, "noise_variance", noise, "None: it follows from the kind of rewards"
        )
        if y.is_cpu:
            whole = bool(((y >= 0) & (y == y.round())).all())
            right = whole and (self.rewards == "counts" or bool((y <= 1).all()))
            expected = "0 or 1" if self.rewards == "binary" else "integers >= 0"
            validation.require(right, "reward", y, expected)
        mean, deviation = self.policy.predicted(observation)
        z, r = as_gaussian(self.rewards, y, mean, deviation.square())
        self.policy.learn(replace(observation, reward=z.to(y), noise_variance=r.to(y)))

    def latent_marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of f, a log-odds or a log-rate, (S, N) each."""
        return super().marginals(time, points)

    def marginals(self, time: float, points: Any = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of the expected reward, a probability or a rate, (S, N) each."""
        mean, variance = self.latent_marginals(time, points)
        m, v = in_rewards(self.rewards, mean, variance)
        return m.to(mean), v.to(mean)

    def in_rewards(self, f: Tensor) -> Tensor:
        """The expected reward at f, a probability or a rate."""
        return _expected(self.rewards, f)


def as_gaussian(kind: str, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """The observation z and its noise variance r, (S,) each, that change N(mean, variance) like the reward y."""
    y, mean, variance = y.double(), mean.double(), variance.double()
    mode = _mode(kind, y, mean, variance)
    expected = _expected(kind, mode)
    binary = kind == "binary"
    curvature = expected * (1 - expected) if binary else expected  # of -ln p(y | f)
    spread = (1 / variance + curvature).rsqrt()
    # Trapezoidal rule in u, with f = mode + spread sinh u, from 10 prior deviations below the mode to 10 above.
    reach = torch.asinh(10 * variance.sqrt() / spread).unsqueeze(-1)
    u = reach * torch.linspace(-1, 1, _NODES, dtype=mean.dtype, device=mean.device)  # (S, nodes)
    f = mode.unsqueeze(-1) + spread.unsqueeze(-1) * torch.sinh(u)
    log_density = y.unsqueeze(-1) * f - (torch.nn.functional.softplus(f) if binary else f.exp())
    log_density = log_density - (f - mean.unsqueeze(-1)).square() / (2 * variance.unsqueeze(-1))
    share = torch.softmax(log_density + torch.cosh(u).log(), -1)
    after = (share * f).sum(-1)
    narrowed = (share * (f - after.unsqueeze(-1)).square()).sum(-1)
    # A reward that changes the posterior by less than rounding errors becomes an observation with very large noise.
    precision = (1 / narrowed - 1 / variance).clamp_min(1e-12 / variance)
    return (after / narrowed - mean / variance) / precision, 1 / precision


def in_rewards(kind: str, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the expected reward for f ~ N(mean, variance), in float64.

    Counts: those of a log-normal variable, exp(m + v/2) and (exp v - 1) exp(2m + v). Binary: of 1 / (1 + exp(-f)), by
    the trapezoidal rule, whose step is small relative to deviations and to the width of the curve.
    """
    mean, variance = mean.double(), variance.double().clamp_min(0.0)
    if kind == "counts":
        rate = (mean + variance / 2).exp()
        return rate, variance.expm1() * rate.square()
    deviation = variance.sqrt().unsqueeze(-1)
    step = min(0.2, 0.5 / max(float(deviation.amax()), 1e-9))
    half = math.ceil(_REACH / step)
    z = step * torch.arange(-half, half + 1, dtype=mean.dtype, device=mean.device)
    share = torch.softmax(-z.square() / 2, -1)
    p = torch.sigmoid(mean.unsqueeze(-1) + deviation * z)
    expected = (share * p).sum(-1)
    return expected, (share * (p - expected.unsqueeze(-1)).square()).sum(-1)


def _expected(kind: str, f: Tensor) -> Tensor:
    """The expected reward E. The slope of the log-likelihood is y - E."""
    return torch.sigmoid(f) if kind == "binary" else f.exp()


def _mode(kind: str, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """The mode of N(f; mean, variance) p(y | f), by bisection."""
    pull = variance * (y - _expected(kind, mean))
    low, high = torch.minimum(mean, mean + pull), torch.maximum(mean, mean + pull)
    if kind == "counts":  # the mode lies below the maximum of the likelihood, exp f = y
        high = torch.where(pull > 0, torch.minimum(high, y.log()), high)
    for _ in range(_STEPS):
        f = (low + high) / 2
        rises = y - _expected(kind, f) > (f - mean) / variance
        low, high = torch.where(rises, f, low), torch.where(rises, high, f)
    return (low + high) / 2
