"""OnlineGP in BoTorch: shapes, gradients, fantasies, acquisition functions, saving."""

import copy

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.points.online_gp import OnlineGP

F64 = {"dtype": torch.float64}
pytestmark = pytest.mark.filterwarnings("ignore:Data .* is not:botorch.exceptions.warnings.InputDataWarning")


def draw(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), **F64)


def hill(X):
    """A smooth reward with its top at (0.6, 0.3)."""
    return -4 * (X - torch.tensor([0.6, 0.3], **F64)).square().sum(-1, keepdim=True)


def make_kernel(batch_shape=()):
    kernel = MaternKernel(2.5, batch_shape=torch.Size(batch_shape)).double()
    kernel.lengthscale = 0.5
    return kernel


def make_model(noise=1e-3, n=25):
    model = OnlineGP(make_kernel(), noise, input_dim=2)
    X = draw(n, 2)
    model.observe(X, hill(X))
    return model


def botorch_twin(model):
    (X,), Y = model.train_inputs, model.train_targets.unsqueeze(-1)
    noise = model.noise_variance.expand(model.batch_shape)[..., None, None].expand_as(Y)
    twin = SingleTaskGP(
        X,
        Y,
        noise.clone(),
        covar_module=copy.deepcopy(model.kernel),
        mean_module=None,
        outcome_transform=None,
    )
    twin.mean_module.constant.data.zero_()
    return twin


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("t_batch", ["none", "many", "own", "many ones", "many own"])
@pytest.mark.parametrize("q", [1, 4])
def test_shapes_and_values_are_those_of_a_botorch_model(batch, t_batch, q, noisy):
    model = OnlineGP(make_kernel(batch), 1e-2, input_dim=2, batch_shape=batch)
    model.observe(draw(*batch, 12, 2), draw(*batch, 12, 1, seed=1))
    ones = [1] * len(batch)
    shape = {
        "none": [],
        "many": [5, *ones],
        "own": batch,
        "many ones": [5, 2, *ones],
        "many own": [5, *batch],
    }
    X = draw(*shape[t_batch], q, 2, seed=2)
    ours = model.posterior(X, observation_noise=noisy)
    theirs = botorch_twin(model).posterior(X, observation_noise=noisy)
    assert ours.mean.shape == theirs.mean.shape
    torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-8, rtol=0)
    torch.testing.assert_close(ours.variance, theirs.variance, atol=1e-8, rtol=0)
    covariance = theirs.distribution.covariance_matrix
    torch.testing.assert_close(ours.distribution.covariance_matrix, covariance, atol=1e-8, rtol=0)
    assert ours.rsample(torch.Size([6])).shape == theirs.rsample(torch.Size([6])).shape


def test_members_beyond_the_model_s_singleton_batch_come_from_the_candidates():
    model = OnlineGP(make_kernel(), 1e-2, input_dim=2, batch_shape=(1,))
    model.observe(draw(12, 2), draw(12, 1, seed=1))
    X = draw(4, 5, 1, 2, seed=2)
    posterior = model.posterior(X)
    assert posterior.mean.shape == (4, 5, 1, 1)
    torch.testing.assert_close(posterior.mean[2, 3], model.posterior(X[2, 3]).mean[0])


@pytest.mark.parametrize("size", [0, 12])
@pytest.mark.parametrize("q", [1, 3])
def test_gradients_with_respect_to_candidates_agree_with_finite_differences(q, size):
    kernel = SpatioTemporalKernel(RBFKernel(ard_num_dims=2), ExponentialForgettingKernel(0.2)).double()
    model = OnlineGP(kernel, 1e-2, input_dim=3, batch_shape=(2,))
    if size:
        model.observe(draw(2, size, 3), draw(2, size, 1, seed=1))
        model.forget(3, where=torch.tensor([True, False]))

    def moments(X):
        posterior = model.posterior(X)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(moments, (draw(4, 1, q, 3, seed=2).requires_grad_(True),))


def test_gradients_with_respect_to_observations_conditioned_on_agree_with_finite_differences():
    model = OnlineGP(RBFKernel(ard_num_dims=2).double(), 1e-2, input_dim=2)
    model.observe(draw(10, 2), draw(10, 1, seed=1))
    A = draw(4, 1, 1, 1, 2, seed=2)

    def moments(X, Y):
        posterior = model.condition_on_observations(X, Y).posterior(A)
        return posterior.mean, posterior.variance

    X, Y = draw(3, 2, 2, seed=3).requires_grad_(True), draw(5, 3, 2, 1, seed=4).requires_grad_(True)
    assert torch.autograd.gradcheck(moments, (X, Y))


def test_learning_records_no_graph():
    model = make_model()
    model.observe(draw(1, 2).requires_grad_(True), draw(1, 1))
    model.forget(3)
    model.rebuild()
    assert not any(buffer.requires_grad for buffer in model.buffers())


def ragged_model():
    model = OnlineGP(
        make_kernel((2,)), torch.tensor([1e-2, 0.1]), input_dim=2, batch_shape=(2,), prior_mean=0.4
    )
    model.observe(draw(70, 2), draw(2, 70, 1, seed=1))
    model.forget(20, where=torch.tensor([False, True]))
    return model


def test_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="batch_shape"):
        make_model().load_state_dict(ragged_model().state_dict())
