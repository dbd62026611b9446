"""Thompson sampling plays an arm as often as it is the best arm of the posterior, jointly over all arms."""

import numpy as np
import pytest
import torch

from bandits_torch import ArmGP, IndexPolicy, ThompsonSampling
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.theory import ConstantWidth
from tests.reference.arm_gp_twins import smooth
from tests.reference.dense_arm_gp import DenseArmGP, forgetting

N, REPLICATES, ROUNDS = 6, 400, 50
NOISE, RATE, TIME = 0.1, 0.3, 5.0
DRAWS = REPLICATES * ROUNDS
CHI_SQUARE = 25.7  # exceeded with probability 1e-4 by chance alone, 5 degrees of freedom
OBSERVATIONS = [(1, 0.4), (3, 0.1), (3, 0.5), (4, 0.2)]


def posterior(drifts):
    """Mean and covariance of the arms, the slow and obvious way."""
    dense = DenseArmGP(smooth(N, 0.5), NOISE, 0.0, forgetting(RATE) if drifts else None)
    for step, (arm, reward) in enumerate(OBSERVATIONS):
        dense.observe(arm, reward, float(step))
    return dense.joint(TIME)


def share_of_wins(mean, covariance, width, joint=True, draws=1_000_000):
    """How often each arm is the best of a draw, by numpy's own sampler."""
    generator = np.random.default_rng(7)
    covariance = width**2 * covariance.numpy()
    if joint:
        sample = generator.multivariate_normal(mean.numpy(), covariance, draws, method="eigh")
    else:
        sample = mean.numpy() + np.sqrt(np.diag(covariance)) * generator.standard_normal((draws, N))
    return np.bincount(sample.argmax(-1), minlength=N) / draws


def chi_square(counts, share):
    """Pearson's statistic of the counts, the expected share known from finitely many draws itself."""
    expected = counts.sum() * share
    return float(((counts - expected) ** 2 / (expected * (1 + counts.sum() / 1_000_000))).sum())


def counts_of_plays(form, drifts, width):
    """How often a Thompson policy plays each arm, asked again and again in the same state."""
    kernel = ArmCovarianceKernel(smooth(N, 0.5))
    if drifts:
        kernel = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(RATE))
    model = ArmGP(N, kernel, NOISE, batch_shape=(REPLICATES,), form=form)
    for step, (arm, reward) in enumerate(OBSERVATIONS):
        model.observe_arms(torch.tensor(arm), torch.tensor(reward), float(step))
    policy = IndexPolicy(model, ThompsonSampling, width=ConstantWidth(width), seed=1)
    arms = torch.stack([policy.choose(TIME).arm for _ in range(ROUNDS)])
    return np.bincount(arms.flatten().numpy(), minlength=N)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [1.0, 3.0])
@pytest.mark.parametrize("drifts", [False, True])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_arms_are_played_as_often_as_they_are_best(form, drifts, width):
    counts = counts_of_plays(form, drifts, width)
    assert counts.sum() == DRAWS
    assert chi_square(counts, share_of_wins(*posterior(drifts), width)) < CHI_SQUARE


@pytest.mark.parametrize("drifts", [False, True])
def test_sampling_arms_one_by_one_would_be_found_out(drifts):
    share = share_of_wins(*posterior(drifts), 1.0)
    marginal = DRAWS * share_of_wins(*posterior(drifts), 1.0, joint=False)
    assert chi_square(marginal, share) > 10 * CHI_SQUARE


def test_the_time_of_the_draw_and_its_width_would_be_found_out():
    still, drifted = (share_of_wins(*posterior(drifts), 1.0) for drifts in (False, True))
    assert chi_square(DRAWS * still, drifted) > 10 * CHI_SQUARE
    wide = share_of_wins(*posterior(False), 3.0)
    assert chi_square(DRAWS * wide, still) > 10 * CHI_SQUARE
