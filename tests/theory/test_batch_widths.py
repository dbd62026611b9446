"""GP-BUCB's width: exp(C) bounds what pending pulls take off the deviation, and without it coverage is lost."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, UpperConfidenceBound
from bandits_torch.policies import IndexPolicy, Observation, SlidingWindow
from bandits_torch.theory import (
    ConstantWidth,
    GPBUCBWidth,
    MaximumGain,
    SlidingWindowWidth,
    SrinivasBayesianWidth,
    uncertainty_sampling,
)
from tests.reference.dense_arm_gp import DenseArmGP

N, NOISE, B, INITIAL = 15, 0.1, 6, 60
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
KERNEL = RBFKernel().double()
KERNEL.lengthscale = 0.15
with torch.no_grad():
    K = KERNEL(ARMS).to_dense() + 1e-10 * torch.eye(N).double()
GAIN = MaximumGain(K, NOISE, max_points=INITIAL, upper_bound=False)


def posterior(pulled, rewards):
    """Mean and covariance of all arms, densely."""
    dense = DenseArmGP(K, NOISE)
    for arm, reward in zip(pulled, rewards, strict=True):
        dense.observe(arm, reward)
    return dense.joint()


def test_uncertainty_sampling_takes_the_largest_variance_each_time_and_changes_nothing():
    model = ArmGP(ARMS, KERNEL, NOISE, batch_shape=(2,))
    model.observe_arms(torch.tensor([3, 8]), torch.tensor([1.0, 2.0]).double())
    before = torch.stack(model.marginals())
    chosen = uncertainty_sampling(model, 10)
    for s, first in enumerate((3, 8)):
        pulled = [first]
        for arm in chosen[:, s].tolist():
            variance = posterior(pulled, [0.0] * len(pulled))[1].diagonal()
            assert float(variance[arm]) == pytest.approx(float(variance.max()), abs=1e-12)
            pulled.append(arm)
    assert torch.equal(torch.stack(model.marginals()), before)


def test_it_is_exp_of_the_bound_times_the_base():
    model = ArmGP(ARMS, KERNEL, NOISE, batch_shape=(2,))
    width = GPBUCBWidth(SrinivasBayesianWidth(N, 0.1), B, initial=INITIAL, gain=GAIN)
    C = (B - 1) * float(GAIN(INITIAL, model)) / INITIAL
    base = float(SrinivasBayesianWidth(N, 0.1)(7, model))
    assert width(7, model).expand(2).tolist() == pytest.approx([math.exp(C) * base] * 2)
    # Nothing else is open.
    assert float(GPBUCBWidth(ConstantWidth(2.0), 1, initial=3, gain=GAIN)(5, model)) == 2.0


def test_the_base_reads_the_policy_s_window():
    model = ArmGP(ARMS, KERNEL, NOISE, batch_shape=(1,))
    base = SlidingWindowWidth(rkhs_bound=1.0, horizon=30)
    width = GPBUCBWidth(base, 2, initial=3, gain=GAIN)
    with pytest.raises(ValueError, match="window"):
        width(1, model)
    policy = IndexPolicy(model, UpperConfidenceBound, width=width, forgetting=SlidingWindow(5))
    policy.choose(0.0)


def test_a_policy_evaluates_it_at_what_has_been_learned():
    model = ArmGP(ARMS, KERNEL, NOISE, batch_shape=(1,))
    width = GPBUCBWidth(SrinivasBayesianWidth(N, 0.1), B, initial=INITIAL, gain=GAIN)
    policy = IndexPolicy(model, UpperConfidenceBound, width=width)
    for arm in uncertainty_sampling(model, INITIAL):
        policy.learn(Observation(0.0, arm, torch.zeros(1).double()))
    pulled, right = [], float(width(INITIAL + 1, model))
    start = torch.stack([arm.flatten() for arm in uncertainty_sampling(ArmGP(ARMS, KERNEL, NOISE), INITIAL)])
    for choice in policy.choose_many(0.0, B):
        variance = posterior([*start.flatten().tolist(), *pulled], [0.0] * (INITIAL + len(pulled)))[
            1
        ].diagonal()
        assert float(choice.why["index"]) == pytest.approx(right * float(variance.clamp_min(0).sqrt().max()))
        pulled.append(int(choice.arm))


def test_no_pending_pulls_take_off_more_than_the_bound():
    """Also those that take off most: B - 1 of the very arm that is looked at."""
    model = ArmGP(ARMS, KERNEL, NOISE)
    first = uncertainty_sampling(model, INITIAL).flatten().tolist()
    bound = math.exp((B - 1) * float(GAIN(INITIAL, model)) / INITIAL)
    before = posterior(first, [0.0] * INITIAL)[1].diagonal()
    worst = 0.0
    for arm in range(N):
        after = posterior(first + [arm] * (B - 1), [0.0] * (INITIAL + B - 1))[1].diagonal()
        worst = max(worst, float((before / after).sqrt().max()))
    assert 1.2 < worst <= bound
    alone = posterior([0] * (B - 1), [0.0] * (B - 1))[1].diagonal()
    assert float((K.diagonal() / alone).sqrt().max()) > bound  # and without the first pulls they do


def test_it_covers_with_pulls_pending_where_the_base_does_not():
    """Draws of the prior, the first pulls, then B - 1 pending pulls of one arm: is |f - mu| <= width sigma there?"""
    runs, delta = 400, 0.1
    generator = torch.Generator().manual_seed(0)
    model = ArmGP(ARMS, KERNEL, NOISE)
    first = uncertainty_sampling(model, INITIAL).flatten().tolist()
    root = torch.linalg.cholesky(K)
    # Exact for one arm, one moment.
    z = float(torch.distributions.Normal(0, 1).icdf(torch.tensor(1 - delta / 2)))
    inflated = float(GPBUCBWidth(ConstantWidth(z), B, initial=INITIAL, gain=GAIN)(INITIAL + 1, model))
    missed = {"base": 0, "inflated": 0, "nothing pending": 0}
    for _ in range(runs):
        f = root @ torch.randn(N, generator=generator, dtype=torch.float64)
        noise = math.sqrt(NOISE) * torch.randn(INITIAL, generator=generator, dtype=torch.float64)
        mean, C = posterior(first, (f[first] + noise).tolist())
        arm = int(C.diagonal().argmax())
        pending = posterior(first + [arm] * (B - 1), [0.0] * (INITIAL + B - 1))[1][arm, arm].sqrt()
        error = float((f[arm] - mean[arm]).abs())
        missed["nothing pending"] += error > z * float(C[arm, arm].sqrt())
        missed["base"] += error > z * float(pending)
        missed["inflated"] += error > inflated * float(pending)
    allowed = runs * delta + 3 * math.sqrt(runs * delta * (1 - delta))
    assert missed["nothing pending"] <= allowed
    assert missed["inflated"] <= missed["nothing pending"]
    assert missed["base"] > allowed
