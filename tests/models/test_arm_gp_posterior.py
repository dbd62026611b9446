"""What ArmGP answers when asked as a BoTorch model: marginals, joint posteriors, several times at once."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.arm_gp_twins import isolated, smooth

N = 8
BATCHES = [(), (2,), (2, 3)]
FORMS = ["covariance", "factor"]
exactly = {"rtol": 1e-9, "atol": 1e-9}


def model_of(form, batch=(), rate=None, observations=6):
    kernel = ArmCovarianceKernel(smooth(N, 0.3))
    if rate is not None:
        kernel = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(rate))
    model = ArmGP(N, kernel, 0.05, prior_mean=torch.arange(N) / 4, form=form, batch_shape=batch)
    for step in range(observations):
        model.observe_arms(torch.randint(N, batch), torch.randn(batch).double(), float(step))
    return model


@pytest.mark.parametrize("rate", [None, 0.2])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("form", FORMS)
def test_candidates_are_answered_as_any_other_inputs(form, batch, rate):
    model = model_of(form, batch, rate)
    X = model.candidates(7.5)
    assert X.shape == (N, *[1] * len(batch), 1, 1 if rate is None else 2)
    fast, general = model.posterior(X), model.posterior(X.clone())
    assert fast.mean.shape == fast.variance.shape == (N, *batch, 1, 1)
    torch.testing.assert_close(fast.mean, general.mean, rtol=0, atol=1e-15)
    torch.testing.assert_close(fast.variance, general.variance, rtol=1e-14, atol=1e-15)
    mean, variance = model.marginals(7.5)
    assert mean.shape == variance.shape == (*batch, N)
    torch.testing.assert_close(fast.mean.squeeze(-1).squeeze(-1).movedim(0, -1), mean, rtol=0, atol=1e-15)
    torch.testing.assert_close(
        fast.variance.squeeze(-1).squeeze(-1).movedim(0, -1), variance, rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("batch", BATCHES)
def test_inputs_broadcast_against_the_batch(batch, q):
    model = model_of("covariance", batch)
    wide = torch.randint(N, (5, *batch, q, 1)).double()
    narrow = torch.randint(N, (q, 1)).double()
    assert model.posterior(wide).mean.shape == (5, *batch, q, 1)
    assert model.posterior(narrow).mean.shape == (*batch, q, 1)
    for k in range(5):
        alone = model.posterior(wide[k])
        torch.testing.assert_close(model.posterior(wide).mean[k], alone.mean)
        torch.testing.assert_close(model.posterior(wide).variance[k], alone.variance)


def test_inputs_may_widen_the_batch_of_a_lone_member():
    model = model_of("covariance", (1,))
    X = torch.randint(N, (5, 2, 1)).double()
    torch.testing.assert_close(model.posterior(X).mean, model.posterior(X.unsqueeze(1)).mean.squeeze(1))


@pytest.mark.parametrize("form", FORMS)
def test_forgetting_in_one_member_leaves_no_nan_in_another_that_is_sure_of_nothing(form):
    """In float32 the gain of a masked removal was minus infinity times zero."""
    model = ArmGP(3, isolated(3), 0.1, form=form, batch_shape=(2,), dtype=torch.float32)
    model.observe_arms(torch.tensor([0, 0]), torch.ones(2), where=torch.tensor([True, False]))
    model.forget(where=torch.tensor([True, True]))
    torch.testing.assert_close(model.information_gain, torch.zeros(2), rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", ["covariance", "factor", "auto"])
def test_rebuild_reads_the_kernel_again(form):
    def model(rate, form="auto"):
        time = ExponentialForgettingKernel(rate)
        space = ArmCovarianceKernel(torch.stack([smooth(N, 0.3), isolated(N, 1.5)]))
        return ArmGP(N, SpatioTemporalKernel(space, time), torch.tensor([1e-3, 0.5]).double(), form=form)

    model, expected = model(0.5, form), model(0.1)
    for step in range(1, 9):
        where = torch.tensor([True, step % 3 > 0])
        for m in (model, expected):
            m.observe_arms(
                torch.tensor([step % N, 1]), torch.tensor([1.0, -1.0]).double(), float(step), where
            )
    model.prior.kernel.time_kernel.forgetting_rate = 0.1  # the model's own copy
    model.rebuild()
    for time in (8.0, 11.0):
        torch.testing.assert_close(model.joint(time), expected.joint(time), **exactly)
    torch.testing.assert_close(model.information_gain, expected.information_gain, **exactly)
    torch.testing.assert_close(model.log_likelihood, expected.log_likelihood, rtol=1e-8, atol=1e-8)


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


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("form", FORMS)
def test_covariance_with_an_arm_is_a_column_of_the_joint_covariance(form, batch):
    model = model_of(form, batch, 0.1)
    arm = torch.tensor([5, 2]) if batch else torch.tensor(5)
    _, joint = model.joint(7.0)
    columns = joint.movedim(-1, 0)[arm]
    expected = columns if not batch else torch.stack([columns[s, s] for s in range(batch[0])])
    assert torch.allclose(model.covariance_with(arm, 7.0), expected, **exactly)
