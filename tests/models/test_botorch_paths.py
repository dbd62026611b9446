"""BoTorch's pathwise sampling on our models: draws of the posterior, features of products, what is refused."""

import subprocess
import sys

import pytest
import torch
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths, gen_kernel_features
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch.acquisition.thompson_sampling import PathwisePointDraw
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models import AtTime, OnlineGP
from tests.reference import botorch_twins as twins
from tests.reference.kernels import scaled

F64 = {"dtype": torch.float64}
DRAWS = torch.Size([4000])


def forgetting(rate=0.3):
    return ExponentialForgettingKernel(rate)


def matern(nu=2.5, d=None):
    kernel = MaternKernel(nu=nu, ard_num_dims=d).double()
    kernel.lengthscale = 0.4 if d is None else torch.linspace(0.3, 0.6, d, **F64)
    return kernel


PRODUCTS = {
    "matern": lambda: SpatioTemporalKernel(matern(), forgetting()),
    "rbf, two lengths": lambda: SpatioTemporalKernel(RBFKernel(ard_num_dims=2).double(), forgetting()),
    "scaled inside": lambda: SpatioTemporalKernel(scaled(matern(1.5), 2.0), forgetting()),
    "scaled outside": lambda: scaled(SpatioTemporalKernel(matern(2.5, 2), forgetting()), 0.5),
    "scaled everywhere": lambda: scaled(
        SpatioTemporalKernel(scaled(matern(), 2.0), scaled(forgetting(), 3.0)), 0.5
    ),
    "matern over time": lambda: SpatioTemporalKernel(matern(), matern(1.5)),
}


@pytest.mark.parametrize("shift", [0.0, 1.7e9])
@pytest.mark.parametrize("name", PRODUCTS)
def test_features_of_a_product_have_its_covariance(name, shift):
    """Over 2^14 frequencies the error is below 4 / sqrt(2^14) of the variance, at any clock."""
    kernel = PRODUCTS[name]().requires_grad_(False)
    X = torch.rand(12, 3, **F64)
    X[:, 2] = X[:, 2] * 6 + shift
    phi = gen_kernel_features(kernel, num_inputs=3, num_outputs=2**15)(X)
    exact = kernel(X).to_dense()
    assert (phi @ phi.mT - exact).abs().max() < 4 / 2**7 * exact.max()


def test_features_of_the_forgetting_kernel_have_its_covariance():
    t = torch.linspace(0, 20, 15, **F64).unsqueeze(-1)
    kernel = forgetting().requires_grad_(False)
    phi = gen_kernel_features(kernel, num_inputs=1, num_outputs=2**15)(t)
    assert (phi @ phi.mT - kernel(t).to_dense()).abs().max() < 4 / 2**7


def learned(kernel, d, n=6):
    model = OnlineGP(kernel.requires_grad_(False), 0.05, input_dim=d, prior_mean=0.7)
    X = torch.rand(n, d, **F64)
    if d == 3:
        X[:, 2] = torch.arange(n, **F64)
    model.observe(X, torch.sin(6 * X[:, :1]))
    return model


def assert_moments(model, X, posterior):
    """Of 4000 paths at X."""
    drawn = torch.cat([draw_matheron_paths(model, torch.Size([250]))(X) for _ in range(16)])
    mean, covariance = posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix
    assert drawn.shape == (4000, 3)
    assert ((drawn.mean(0) - mean).abs() < 5 * (covariance.diagonal() / 4000).sqrt() + 0.01).all()
    assert (torch.cov(drawn.mT) - covariance).abs().max() < 0.1 * covariance.max()


@pytest.mark.parametrize("kind", ["points", "space and time", "at a time", "arms", "sketch", "weighted"])
def test_draws_have_the_moments_of_the_posterior(kind):
    torch.manual_seed(4)
    if kind in ("arms", "sketch", "weighted"):
        label = {"arms": "ArmGP at a time", "sketch": "SketchedGP", "weighted": "WeightedGP"}[kind]
        model = twins.MODELS[label]().model
        X = torch.tensor([[0.0], [2.0], [5.0]], **F64)
    elif kind == "points":
        model, X = learned(matern(), 2), torch.rand(3, 2, **F64)
    else:
        model, X = learned(PRODUCTS["matern"](), 3), torch.rand(3, 3, **F64)
        X[:, 2] = 7.0
        if kind == "at a time":
            model, X = AtTime(model, 7.0), X[:, :2]
    assert_moments(model, X, model.posterior(X))


@pytest.mark.parametrize("start", [1e9, 1.7e9])
def test_draws_by_features_have_the_posteriors_moments_at_clocks_of_seconds(start):
    """Of space and time by BoTorch's Matheron paths; and the draws of a policy are those at a clock from 0."""
    torch.manual_seed(4)
    near, far = (
        learned(PRODUCTS["matern"](), 3),
        OnlineGP(PRODUCTS["matern"]().requires_grad_(False), 0.05, input_dim=3, prior_mean=0.7),
    )
    (X,) = near.train_inputs
    shift = torch.tensor([0.0, 0.0, start], **F64)
    far.observe(X + shift, near.train_targets.unsqueeze(-1))
    at = torch.tensor([[0.2, 0.3, 6.0], [0.8, 0.1, 6.5], [0.5, 0.9, 7.0]], **F64)
    assert_moments(far, at + shift, near.posterior(at))
    here = PathwisePointDraw(near, time=7.0, seeds=(3,))(at.unsqueeze(-2))
    there = PathwisePointDraw(far, time=7.0 + start, seeds=(3,))((at + shift).unsqueeze(-2))
    torch.testing.assert_close(there, here, atol=1e-6, rtol=0)


def test_paths_are_those_of_a_single_task_gp_from_the_same_random_numbers():
    X, Y, kernel = twins.points()
    twin = twins.single_task_gp(X, Y, kernel)
    model = OnlineGP(kernel, twins.NOISE, input_dim=2)
    model.observe(X, Y)
    at = torch.rand(9, 2, **F64)
    drawn = []
    for one in (model, twin):
        torch.manual_seed(0)
        drawn.append(draw_matheron_paths(one, torch.Size([5]))(at))
    torch.testing.assert_close(*drawn, rtol=0, atol=1e-6)


@pytest.mark.parametrize("q", [1, 2])
def test_botorch_s_thompson_sampling_is_optimised_on_online_gp(q):
    torch.manual_seed(0)
    model = AtTime(learned(PRODUCTS["matern"](), 3), 7.0)
    acquisition = PathwiseThompsonSampling(model)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **F64)
    X, value = optimize_acqf(acquisition, bounds, q=q, num_restarts=3, raw_samples=64)
    assert X.shape == (q, 2)
    assert value >= acquisition(torch.rand(200, q, 2, **F64)).max() - 0.01


def test_paths_before_any_observation_are_those_of_the_prior():
    torch.manual_seed(0)
    model = OnlineGP(matern(), 0.05, input_dim=2, prior_mean=3.0)
    drawn = draw_matheron_paths(model, DRAWS)(torch.rand(1, 2, **F64))
    assert abs(drawn.mean() - 3) < 0.08
    assert abs(drawn.var() - 1) < 0.1
    assert draw_kernel_feature_paths(model, torch.Size([2]))(torch.rand(4, 2, **F64)).shape == (2, 4)


def test_a_kernel_without_features_is_named():
    with pytest.raises(NotImplementedError, match="WienerKernel"):
        draw_matheron_paths(learned(SpatioTemporalKernel(matern(), WienerKernel(0.1).double()), 3), DRAWS)


ALONE = """
import sys, torch
from botorch.sampling.pathwise import draw_matheron_paths, gen_kernel_features
from gpytorch.kernels import RBFKernel
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
kernel = SpatioTemporalKernel(RBFKernel(), ExponentialForgettingKernel(0.1))
gen_kernel_features(kernel, num_inputs=2, num_outputs=8)
assert "bandits_torch.models" not in sys.modules
from bandits_torch.models import ArmGP
draw_matheron_paths(ArmGP(3, torch.eye(3), 0.1), sample_shape=torch.Size([1]))
assert "bandits_torch.acquisition" not in sys.modules
"""


def test_a_kernel_or_a_model_alone_is_known_to_botorch():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
