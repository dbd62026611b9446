"""What must hold of ArmGP whatever is done to it, in any order."""

import hypothesis.strategies as st
import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import settings

from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.arm_gp_twins import isolated, smooth

N, S = 7, 2
COVARIANCES = torch.stack([smooth(N, 0.3), isolated(N, 1.5)])
NOISE = torch.tensor([1e-3, 0.5], dtype=torch.float64)
few = settings(max_examples=60, deadline=None, derandomize=True)

arms = st.tuples(*[st.integers(0, N - 1)] * S)
rewards = st.tuples(*[st.floats(-3, 3)] * S)
some_masks = st.tuples(*[st.booleans()] * S)
masks = st.none() | some_masks
gaps = st.sampled_from([0.0, 0.5, 1.0, 30.0])
moves = st.lists(
    st.tuples(st.just("observe"), arms, rewards, masks, gaps)
    | st.tuples(st.just("forget"), some_masks)
    | st.tuples(st.just("reset"), masks),
    max_size=25,
)


def static(form):
    return ArmGP(N, COVARIANCES, NOISE, form=form, prior_mean=torch.arange(N) / 5)


def drifting(form):
    time = ExponentialForgettingKernel(torch.tensor([0.05, 0.6]).double(), batch_shape=(S,))
    return ArmGP(N, SpatioTemporalKernel(ArmCovarianceKernel(COVARIANCES), time), NOISE, form=form)


def tensor(mask):
    return None if mask is None else torch.tensor(mask)


def observe(model, arm, reward, mask=None, time=0.0):
    model.observe_arms(torch.tensor(arm), torch.tensor(reward).double(), time, tensor(mask))


def live(model, sequence):
    """Do to a model what the sequence says; returns the time it is then."""
    now = 0.0
    for name, *what in sequence:
        if name == "observe":
            arm, reward, mask, gap = what
            now += gap
            observe(model, arm, reward, mask, now)
        elif name == "forget":
            model.forget(1, tensor(what[0]))
        else:
            model.reset(tensor(what[0]))
    return now


def assert_same(one, other, time=0.0):
    for a, b in zip(one.joint(time), other.joint(time), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one.information_gain, other.information_gain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one.log_likelihood, other.log_likelihood, rtol=1e-8, atol=1e-8)
    assert torch.equal(one.num_observations, other.num_observations)


@pytest.mark.parametrize("form", ["covariance", "factor", "auto"])
def test_rebuild_reads_the_kernel_again(form):
    space, time = ArmCovarianceKernel(COVARIANCES), ExponentialForgettingKernel(torch.tensor(0.5).double())
    model = ArmGP(N, SpatioTemporalKernel(space, time), NOISE, form=form)
    expected = ArmGP(
        N,
        SpatioTemporalKernel(space, ExponentialForgettingKernel(torch.tensor(0.1, dtype=torch.float64))),
        NOISE,
    )
    for step in range(1, 9):
        for m in (model, expected):
            observe(m, (step % N, 1), (1.0, -1.0), (True, step % 3 > 0), float(step))
    model.prior.kernel.time_kernel.forgetting_rate = 0.1  # the model's own copy
    model.rebuild()
    assert_same(model, expected, 8.0)
    assert_same(model, expected, 11.0)


def test_numbers_of_arms_and_noise_may_be_anything_that_broadcasts():
    features = torch.rand(3, N, 2).double()  # arms of their own in each of 3 replicates
    kernel = RBFKernel().double()
    model = ArmGP(features, kernel, torch.tensor([[0.1], [0.2]]), prior_mean=torch.ones(1, 3, N))
    assert model.batch_shape == (2, 3)
    model.observe_arms(torch.randint(N, (2, 3)), torch.randn(2, 3).double())
    for i in range(2):
        for j in range(3):
            alone = ArmGP(features[j], kernel, 0.1 * (i + 1), prior_mean=1.0)
            alone.observe(model.train_inputs[0][i, j], model.train_targets[i, j].unsqueeze(-1))
            torch.testing.assert_close(model.marginals()[0][i, j], alone.marginals()[0])
            torch.testing.assert_close(model.marginals()[1][i, j], alone.marginals()[1])
