"""OnlineGP against a dense solve: whatever was observed and forgotten, the posterior is the exact one."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, LinearMean

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models.points.online_gp import OnlineGP
from tests.reference.dense_gp import dense_posterior

F64 = {"dtype": torch.float64}
TOLERANCE = 1e-8
NOISES = [1e-4, 1e-2, 1.0]


def space_kernel(kind=RBFKernel, **kwargs):
    kernel = kind(**kwargs).double()
    kernel.lengthscale = 0.4
    return kernel


KERNELS = {
    "rbf": lambda: space_kernel(),
    "matern": lambda: ScaleKernel(space_kernel(MaternKernel, nu=2.5)).double(),
    "tv": lambda: SpatioTemporalKernel(space_kernel(), ExponentialForgettingKernel(0.05)),
    "wiener": lambda: SpatioTemporalKernel(space_kernel(), WienerKernel(0.02, start=3.0)),
}


def stream(steps, noise, seed=0):
    """Inputs with two columns of space and one of irregular times, and noisy targets."""
    generator = torch.Generator().manual_seed(seed)
    space = torch.rand(steps, 2, generator=generator, **F64)
    times = (3 * torch.rand(steps, 1, generator=generator, **F64)).cumsum(0)
    targets = torch.sin(5 * space.sum(-1, keepdim=True) + 0.05 * times)
    targets = targets + noise**0.5 * torch.randn(steps, 1, generator=generator, **F64)
    return torch.cat([space, times], -1), targets


def candidates(after, seed=1):
    space = torch.rand(40, 2, generator=torch.Generator().manual_seed(seed), **F64)
    return torch.cat([space, torch.full((40, 1), after, **F64)], -1)


def assert_exact(model, kernel, X, Y, noise, prior_mean=0.0):
    """Marginals, joint and gain of the model equal those of a dense solve on X, Y."""
    A = candidates(X[-1, -1].item() + 0.5 if len(X) else 1.0)
    dense = dense_posterior(kernel, X, Y[:, 0], noise, A, prior_mean)
    with torch.no_grad():
        marginal, joint = model.posterior(A.unsqueeze(-2)), model.posterior(A)
        gain = model.information_gain
    close = {"atol": TOLERANCE, "rtol": 0}
    torch.testing.assert_close(marginal.mean[:, 0, 0], dense.mean, **close)
    torch.testing.assert_close(marginal.variance[:, 0, 0], dense.covariance.diagonal(), **close)
    torch.testing.assert_close(joint.mean[:, 0], dense.mean, **close)
    torch.testing.assert_close(joint.distribution.covariance_matrix, dense.covariance, **close)
    assert gain.item() == pytest.approx(dense.gain, abs=TOLERANCE * max(1, len(X)))
    assert model.num_observations.item() == len(X)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", KERNELS)
def test_posterior_is_exact_while_observing_one_at_a_time(name, noise):
    kernel = KERNELS[name]()
    model = OnlineGP(kernel, noise, input_dim=3)
    X, Y = stream(600, noise)
    assert_exact(model, kernel, X[:0], Y[:0], noise)
    for t in range(600):
        model.observe(X[t : t + 1], Y[t : t + 1])
        if t in (0, 1, 15, 16, 31, 32, 33, 100, 599):
            assert_exact(model, kernel, X[: t + 1], Y[: t + 1], noise)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("rbf", 1e-4),
        ("tv", 1e-4),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("matern", 1e-2), ("wiener", 1e-4), ("wiener", 1.0))
        ),
    ],
)
def test_window_equals_a_dense_solve_on_the_last_200_points_after_many_steps(name, noise, full):
    kernel = KERNELS[name]()
    model = OnlineGP(kernel, noise, input_dim=3)
    steps = 2000 if full else 500
    X, Y = stream(steps, noise)
    for t in range(steps):
        model.observe(X[t : t + 1], Y[t : t + 1])
        if t >= 200:
            model.forget()
        if t in (200, 217, 499, 1999):
            assert_exact(model, kernel, X[t - 199 : t + 1], Y[t - 199 : t + 1], noise)
    assert model.data.capacity <= 3 * 200


@pytest.mark.parametrize("size", [2, 15, 16, 17, 18, 33, 256, 257, 258, 300, 513])
def test_forgetting_is_exact_at_every_block_boundary(size):
    kernel = KERNELS["tv"]()
    model = OnlineGP(kernel, 1e-2, input_dim=3)
    X, Y = stream(size, 1e-2)
    model.observe(X, Y)
    model.forget()
    assert_exact(model, kernel, X[1:], Y[1:], 1e-2)


def linear_mean():
    mean = LinearMean(3).double()
    mean.weights.data = torch.tensor([[0.5], [-1.0], [0.01]], **F64)
    mean.bias.data.fill_(0.3)
    return mean


def constant_mean():
    mean = ConstantMean().double()
    mean.constant.data.fill_(-0.7)
    return mean


@pytest.mark.parametrize(
    "make", [lambda: 2.1, constant_mean, linear_mean], ids=["number", "constant", "linear"]
)
def test_prior_mean_is_that_of_a_dense_solve(make):
    kernel, mean = KERNELS["tv"](), make()
    model = OnlineGP(kernel, 1e-2, prior_mean=mean, input_dim=3)
    X, Y = stream(80, 1e-2)
    assert_exact(model, kernel, X[:0], Y[:0], 1e-2, mean)
    model.observe(X[:50], Y[:50])
    model.forget(10)
    for t in range(50, 80):
        model.observe(X[t : t + 1], Y[t : t + 1])
    assert_exact(model, kernel, X[10:], Y[10:], 1e-2, mean)


def test_a_numeric_prior_mean_is_not_rounded():
    model = OnlineGP(RBFKernel(), 1.0, prior_mean=0.1, input_dim=1)
    assert model.posterior(torch.zeros(1, 1, **F64)).mean.item() == 0.1


@pytest.mark.parametrize("ragged", [False, True])
def test_rebuild_takes_new_hyperparameters_into_account(ragged):
    model = OnlineGP(KERNELS["tv"](), 1e-2, prior_mean=constant_mean(), input_dim=3)
    kernel = model.kernel
    X, Y = stream(60, 1e-2)
    model.observe(X, Y)
    model.forget(20, where=torch.tensor(True) if ragged else None)
    kernel = model.kernel  # a copy of its own
    kernel.space_kernel.lengthscale = 0.9
    kernel.time_kernel.forgetting_rate = 0.2
    model.prior_mean.constant.data.fill_(4.0)
    model.noise_variance.fill_(0.3)
    model.rebuild()
    assert_exact(model, kernel, X[20:], Y[20:], 0.3, 4.0)
    model.forget(15)
    assert_exact(model, kernel, X[35:], Y[35:], 0.3, 4.0)


def test_it_is_exact_whatever_gpytorch_s_settings_are():
    kernel = KERNELS["rbf"]()
    X, Y = stream(120, 1e-2)
    with (
        gpytorch.settings.max_cholesky_size(1),
        gpytorch.settings.fast_computations(True, True, True),
        gpytorch.settings.lazily_evaluate_kernels(True),
        gpytorch.settings.eval_cg_tolerance(1.0),
    ):
        model = OnlineGP(kernel, 1e-2, input_dim=3)
        model.observe(X, Y)
        model.forget(20)
        assert_exact(model, kernel, X[20:], Y[20:], 1e-2)
