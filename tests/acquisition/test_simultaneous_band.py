"""UCB whose width is a quantile of the largest error over the arms: as defined, by step, by replicate."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, OnlineGP, recipes
from bandits_torch.acquisition import SimultaneousBand, StepContext, UpperConfidenceBound
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.theory.prior_widths import mean_excess, simultaneous_width
from tests.reference import plain_band
from tests.reference.dense_arm_gp import DenseArmGP, forgetting

N, S, NOISE, RATE = 7, 2, 0.05, 0.1
X = torch.linspace(0, 1, N, dtype=torch.float64)
K = torch.exp(-((X[:, None] - X) ** 2) / (2 * 0.2**2)) + 1e-9 * torch.eye(N).double()
PULLS = [(0, 0.4), (3, -0.2), (3, 0.1), (5, 1.0)]


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_width_is_that_of_the_definition_from_a_dense_posterior():
    kernel = SpatioTemporalKernel(ArmCovarianceKernel(K), ExponentialForgettingKernel(RATE))
    model, dense = ArmGP(N, kernel, NOISE, batch_shape=(S,)), DenseArmGP(K, NOISE, time=forgetting(RATE))
    for time, (arm, reward) in enumerate(PULLS):
        model.observe_arms(torch.full((S,), arm), torch.full((S,), reward).double(), float(time))
        dense.observe(arm, reward, float(time))
    samples = numbers(S, 39, N)
    band = SimultaneousBand(0.1, 39)
    ucb = band.at_step(model, StepContext(time=6.0, base_samples=lambda count: samples[:, :count]))
    mean, covariance = dense.joint(6.0)
    sigma = covariance.diagonal().sqrt()
    for s in range(S):
        draws = samples[s] @ torch.linalg.cholesky(covariance).T
        assert ucb.width[s].item() == pytest.approx(plain_band.width(draws.tolist(), sigma.tolist(), 0.1))
    index = ucb(model.candidates(6.0))
    assert torch.allclose(index[:, 0], mean + ucb.width[0] * sigma)


@pytest.mark.parametrize(
    ("count", "delta"), [(9, 0.1), (10, 0.1), (19, 0.1), (199, 0.05), (3, 0.25), (3, 0.5)]
)
def test_width_is_the_order_statistic_that_covers(count, delta):
    draws, deviation = numbers(count, 5), torch.tensor([1.0, 0.5, 2.0, 0.0, 1.0]).double()
    expected = plain_band.width(draws.tolist(), deviation.tolist(), delta)
    assert simultaneous_width(draws, deviation, delta).item() == pytest.approx(expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("delta", "draws"), [(0.1, 199), (0.1, 9), (0.3, 39)])
def test_mean_excess_is_its_integral(delta, draws):
    assert mean_excess(delta, draws) == pytest.approx(plain_band.mean_excess(delta, draws), rel=1e-3)


def test_too_few_draws_and_a_model_without_arms_are_refused():
    points = OnlineGP(RBFKernel().double(), NOISE, input_dim=1)
    for message, call in (
        ("draws must be at least 9", lambda: SimultaneousBand(0.1, 8)),
        ("draws must be at least 9", lambda: mean_excess(0.1, 8)),
        ("draws must be at least 9", lambda: simultaneous_width(numbers(8, 3), numbers(3).abs(), 0.1)),
        ("model must be a model over arms", lambda: SimultaneousBand()(points)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_called_with_a_model_alone_it_is_the_band_now():
    torch.manual_seed(0)
    ucb = SimultaneousBand(0.1, 39)(ArmGP(N, K, NOISE, batch_shape=(S,)))
    assert isinstance(ucb, UpperConfidenceBound)
    assert ucb.width.shape == (S,)
    assert float(ucb.width.min()) > 1


def test_recipe_forgets_at_its_rate_or_not_at_all():
    make = lambda rate: recipes.band_gp_ucb(X.unsqueeze(-1), K, NOISE, forgetting_rate=rate)  # noqa: E731
    assert make(0.0).model.prior.time_kernel is None
    assert make(0.2).model.prior.time_kernel.forgetting_rate.item() == pytest.approx(0.2)
