"""Index policies by name: which kernels they take, and how long they remember."""

import math

import pytest
import torch

from bandits_torch import Domain, recipes
from bandits_torch.kernels import ArmCovarianceKernel, WienerKernel
from tests.reference.arm_gp_twins import smooth
from tests.reference.kernels import rbf

N = 12
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
KERNEL = rbf(0.2)


def drifting(**options):
    return recipes.tv_gp_ucb(ARMS, KERNEL, 0.1, **options)


def test_no_forgetting_rate_at_all_is_gp_ucb():
    assert not drifting(forgetting_rate=0.0).model.drifts


def test_a_kernel_over_time_of_one_s_own_takes_the_place_of_exponential_forgetting():
    wiener = WienerKernel(0.05)
    own = drifting(forgetting_rate=0.0, time_kernel=wiener).model.prior.time_kernel
    assert own.drift_variance.item() == pytest.approx(0.05)
    smooth_time = rbf(5.0)
    domain = Domain(torch.tensor([[0.0], [1.0]]).double())
    policy = recipes.tv_gp_ucb(domain, KERNEL, 0.1, time_kernel=smooth_time)
    X = torch.tensor([[0.5, 0.0], [0.5, 5.0]]).double()
    with torch.no_grad():
        assert policy.model.kernel(X).to_dense()[0, 1].item() == pytest.approx(math.exp(-0.5))
    with pytest.raises(ValueError, match="a MarkovTimeKernel"):
        drifting(time_kernel=smooth_time)
    with pytest.raises(ValueError, match="time_kernel must be"):
        drifting(time_kernel=0.1)


def test_a_covariance_matrix_does_for_a_kernel():
    for name in ("gp_ucb", "tv_gp_ucb", "ui_gp_ucb"):
        matrix = getattr(recipes, name)(N, smooth(N), 0.1)
        kernel = getattr(recipes, name)(N, ArmCovarianceKernel(smooth(N)), 0.1)
        assert torch.equal(matrix.model.marginals(1.0)[1], kernel.model.marginals(1.0)[1])


def greedy_gain(horizon):
    covariance, gain = KERNEL(ARMS).to_dense().detach(), 0.0
    for _ in range(horizon):
        variance = covariance.diagonal()
        arm = int(variance.argmax())
        gain += 0.5 * math.log1p(float(variance[arm]) / 0.1)
        row = covariance[arm]
        covariance = covariance - row[:, None] * row[None, :] / (row[arm] + 0.1)
    return gain


@pytest.mark.parametrize("budget", [None, 0.5, 8.0])
def test_memory_is_that_of_zhou_and_shroff(budget):
    horizon = 400
    expected = greedy_gain(horizon) ** 0.25 * math.sqrt(horizon / (1.0 if budget is None else budget))
    expected = min(horizon, math.ceil(expected))
    options = {"horizon": horizon, "rkhs_variation_budget": budget}
    window = recipes.sw_gp_ucb(ARMS, KERNEL, 0.1, **options)
    restart = recipes.r_gp_ucb(ARMS, KERNEL, 0.1, **options)
    assert window.forgetting.window == restart.forgetting.interval == expected


def test_memory_over_a_domain_is_that_of_points_spread_over_it():
    """Nothing has arms there: gamma is that of 256 even points, near that of the arms spread over the same square."""
    square = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64))
    over_points = recipes.sw_gp_ucb(square, KERNEL, 0.1, horizon=400).forgetting.window
    dense = recipes.sw_gp_ucb(square.sample(1000, seed=5), KERNEL, 0.1, horizon=400).forgetting.window
    assert over_points == pytest.approx(dense, rel=0.05)
    shorter = recipes.r_gp_ucb(
        square, KERNEL, 0.1, horizon=400, rkhs_variation_budget=16.0
    ).forgetting.interval
    assert shorter == pytest.approx(dense / 4, rel=0.05)


def test_a_function_that_does_not_vary_is_remembered_to_the_end():
    assert recipes.sw_gp_ucb(ARMS, KERNEL, 0.1, horizon=77, rkhs_variation_budget=0.0).forgetting.window == 77


def test_memory_is_sized_without_a_matrix_over_all_arms():
    arms = torch.rand(20_000, 2).double()
    policy = recipes.sw_gp_ucb(arms, KERNEL, 0.1, horizon=100)
    assert 1 <= policy.forgetting.window <= 100
    some = arms[torch.linspace(0, 19_999, 1000).long()]
    assert policy.forgetting.window == recipes.sw_gp_ucb(some, KERNEL, 0.1, horizon=100).forgetting.window
