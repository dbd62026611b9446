"""A draw over points has the posterior's law: its mean, covariance and width, at the time it is made for."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch.acquisition import PathwisePointDraw
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models.points.online_gp import OnlineGP
from tests.reference.kernels import rbf, scaled

DRAWS = 400


def space_kernel():
    return scaled(rbf(0.3), 1.7)


def smooth_in_time():
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 4.0
    return kernel


TIME_KERNELS = {
    "static": None,
    "forgetting": ExponentialForgettingKernel(0.1),
    "wiener": WienerKernel(0.05),
    "smooth": smooth_in_time(),
}


def taught_model(time_kernel, batch_shape=()):
    kernel = space_kernel()
    if time_kernel is not None:
        kernel = SpatioTemporalKernel(kernel, time_kernel)
    d = 2 + (time_kernel is not None)
    model = OnlineGP(kernel, 0.05, prior_mean=0.4, input_dim=d, batch_shape=batch_shape)
    X = torch.rand(*batch_shape, 8, 2).double()
    if time_kernel is not None:
        X = torch.cat([X, torch.arange(8.0).double().unsqueeze(-1).expand(*batch_shape, 8, 1)], -1)
    model.observe(X, torch.sin(7 * X[..., :1]))
    return model


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("static", 1),
        ("forgetting", 2),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("wiener", "smooth")),
    ],
)
def test_mean_and_covariance_of_many_draws_are_the_posterior_s(name, width):
    model = taught_model(TIME_KERNELS[name])
    points = torch.rand(5, 2).double()
    now = None if name == "static" else 9.5
    X = points if now is None else torch.cat([points, torch.full((5, 1), now).double()], -1)
    draws = []
    with torch.no_grad():
        for seed in range(DRAWS):
            draw = PathwisePointDraw(model, width, time=now, seeds=[seed], features=256)
            draws.append(draw(X.unsqueeze(-2)))
        posterior = model.posterior(X)
    draws = torch.stack(draws)
    covariance = posterior.distribution.covariance_matrix * width**2
    scale = covariance.diagonal().sqrt()
    off = (draws.mean(0) - posterior.mean.squeeze(-1)).abs() / (scale / DRAWS**0.5)
    assert (off < 4).all()
    error = (torch.cov(draws.T) - covariance).abs() / (scale.unsqueeze(0) * scale.unsqueeze(1))
    assert (error < 5 / DRAWS**0.5).all()


def test_members_of_a_batch_draw_as_they_would_alone():
    model = taught_model(TIME_KERNELS["forgetting"], (3,))
    X = torch.rand(4, 1, 1, 3).double()
    with torch.no_grad():
        together = PathwisePointDraw(model, 1.0, time=9.0, seeds=[5, 6, 7])(X)
    assert together.shape == (4, 3)
    inputs, targets = model.train_inputs[0], model.train_targets
    for k in range(3):
        alone = OnlineGP(model.kernel, 0.05, prior_mean=0.4, input_dim=3)
        alone.observe(inputs[k], targets[k].unsqueeze(-1))
        with torch.no_grad():
            own = PathwisePointDraw(alone, 1.0, time=9.0, seeds=[5 + k])(X.squeeze(1))
        torch.testing.assert_close(own, together[:, k], rtol=0, atol=1e-9)


@pytest.mark.parametrize("batch", [1, 3])
def test_members_draw_from_their_kernels_that_see_some_columns(batch):
    kernel = RBFKernel(active_dims=[1], batch_shape=torch.Size([batch])).double()
    kernel.lengthscale = 0.2 + torch.arange(float(batch)).double().reshape(batch, 1, 1)
    X, Y = torch.rand(3, 5, 2).double(), torch.rand(3, 5, 1).double()
    model = OnlineGP(kernel, 0.05, input_dim=2, batch_shape=(3,))
    model.observe(X, Y)
    at = torch.rand(4, 1, 1, 2).double()
    with torch.no_grad():
        together = PathwisePointDraw(model, seeds=[5, 6, 7])(at)
    for k in range(3):
        own = RBFKernel(active_dims=[1]).double()
        own.lengthscale = kernel.lengthscale[k % batch]
        alone = OnlineGP(own, 0.05, input_dim=2)
        alone.observe(X[k], Y[k])
        with torch.no_grad():
            torch.testing.assert_close(
                PathwisePointDraw(alone, seeds=[5 + k])(at.squeeze(1)), together[:, k], rtol=0, atol=1e-9
            )


def test_a_draw_is_a_function_with_a_gradient():
    model = taught_model(TIME_KERNELS["forgetting"])
    draw = PathwisePointDraw(model, 1.0, time=9.0, seeds=[1])
    X = torch.rand(3, 1, 3).double().requires_grad_(True)
    assert torch.equal(draw(X), draw(X))
    assert torch.autograd.gradcheck(lambda x: draw(x), (X,))


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="time must be a number"):
        PathwisePointDraw(taught_model(TIME_KERNELS["wiener"]))
    indices = OnlineGP(ArmCovarianceKernel(torch.eye(3).double()), 0.1, input_dim=1)
    with pytest.raises(ValueError, match="kernel must be RBFKernel or MaternKernel"):
        PathwisePointDraw(indices)
