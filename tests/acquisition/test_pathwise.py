"""Pathwise Thompson sampling: the law of its draws over space and time, and its errors where it has any."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, ScaleKernel

from bandits_torch import ArmGP, IndexPolicy
from bandits_torch.acquisition import PathwiseThompsonSampling, ThompsonSampling
from bandits_torch.kernels import (
    ExponentialForgettingKernel,
    MaternTimeKernel,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.problems import GridDraws
from bandits_torch.theory import ConstantWidth
from tests.reference.kernels import rbf

DRAWS = 1500


@pytest.fixture
def space():
    return rbf(0.3).requires_grad_(False)


def model_with_data(kernel, batch_shape=(), num_arms=12):
    arms = torch.linspace(0, 1, num_arms, dtype=torch.float64).unsqueeze(-1)
    model = ArmGP(arms, kernel, 0.1, prior_mean=0.5, batch_shape=batch_shape)
    for t, (arm, reward) in enumerate([(2, 1.0), (7, -0.5), (2, 1.4), (9, 0.3)]):
        model.observe_arms(
            torch.tensor(arm), torch.tensor(reward).double(), float(t) if model.drifts else None
        )
    return model


def law(sampler, model, time):
    paths = torch.stack([sampler.paths(model, time)[0] for _ in range(DRAWS)])
    mean = paths.mean(0)
    return mean, (paths - mean).mT @ (paths - mean) / (DRAWS - 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [None, lambda: ExponentialForgettingKernel(0.2), lambda: WienerKernel(0.3)])
def test_draws_have_the_posteriors_law(space, make):
    model = model_with_data(space if make is None else SpatioTemporalKernel(space, make()))
    time = None if make is None else 5.0
    mean, covariance = law(PathwiseThompsonSampling(model, seed=1), model, time)
    wanted_mean, wanted = model.joint(time)
    torch.testing.assert_close(mean, wanted_mean, atol=0.15, rtol=0)
    torch.testing.assert_close(covariance, wanted, atol=0.15, rtol=0)


def test_a_given_root_serves_a_grid_exactly():
    problem = GridDraws(side=5, dim=2, lengthscale=0.4)
    root, K = problem.root(), problem.knowledge.kernel(problem.arms).to_dense()
    torch.testing.assert_close(root @ root.mT, K, atol=1e-9, rtol=0)
    model = ArmGP(problem.arms, problem.knowledge.kernel, 0.1)
    model.observe_arms(torch.tensor(3), torch.ones((), dtype=torch.float64))
    mean, covariance = law(PathwiseThompsonSampling(model, root=root), model, None)
    torch.testing.assert_close(mean, model.joint()[0], atol=0.15, rtol=0)
    torch.testing.assert_close(covariance, model.joint()[1], atol=0.15, rtol=0)


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel,
        lambda: RBFKernel(active_dims=[1]),
        lambda: MaternKernel(nu=2.5),
        lambda: MaternKernel(nu=0.5),
    ],
)
def test_the_error_of_random_features_is_as_stated(monkeypatch, kernel):
    monkeypatch.setattr("bandits_torch.acquisition.thompson_sampling._EXACT_UP_TO", 1)
    made, N = kernel().double().requires_grad_(False), 200
    made.lengthscale = 0.3
    arms = torch.rand(N, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = ArmGP(arms, made, 0.1)
    for features in (256, 4096):
        root = PathwiseThompsonSampling(model, features=features).root
        error = (root @ root.mT - made(arms).to_dense()).abs().max()
        assert float(error) < 2 * (torch.log(torch.tensor(float(N))) / features).sqrt()


def test_width_scales_the_draw_round_the_mean_and_replicates_draw_apart(space):
    model = model_with_data(space, batch_shape=(2,))
    still = PathwiseThompsonSampling(model)(model, width=0.0)(model.candidates())
    torch.testing.assert_close(still, model.marginals()[0].mT)
    draw = PathwiseThompsonSampling(model)(model)(model.candidates())
    assert not torch.allclose(draw[:, 0], draw[:, 1])


def test_another_kernel_over_too_many_arms_for_a_root_is_named():
    big = ArmGP(torch.rand(2001, 1, dtype=torch.float64), RQKernel().double(), 0.1)
    with pytest.raises(ValueError, match="kernel must be RBFKernel"):
        PathwiseThompsonSampling(big)


@pytest.mark.parametrize(
    "over_time",
    [
        lambda: MaternTimeKernel(5.0, 1.5),
        lambda: QuasiPeriodicKernel(24.0, 1.0, 100.0, order=2),
        lambda: ScaleKernel(MaternTimeKernel(5.0, 2.5)).double(),
    ],
)
def test_a_kernel_over_time_with_a_state_space_is_refused_and_plain_thompson_sampling_takes_it(
    space, over_time
):
    model = model_with_data(SpatioTemporalKernel(space, over_time()))
    with pytest.raises(ValueError, match=r"^model's kernel over time must be a MarkovTimeKernel: .*Thompson"):
        PathwiseThompsonSampling(model)
    with pytest.raises(ValueError, match=r"^model's kernel over time"):
        PathwiseThompsonSampling(model, root=torch.eye(12).double())
    batch = model_with_data(SpatioTemporalKernel(space, over_time()), batch_shape=(2,))
    assert IndexPolicy(batch, ThompsonSampling).choose(5.0).arm.shape == (2,)


def test_a_policy_draws_on_from_its_saved_state(space):
    def policy(seed):
        model = model_with_data(space, batch_shape=(1,))
        return IndexPolicy(model, PathwiseThompsonSampling(model, seed=seed), width=ConstantWidth(3.0))

    first, second = policy(1), policy(2)
    for step in range(5):
        first.choose(step)
    second.load_state_dict(first.state_dict())
    indices = [[p.choose(step).why["index"].item() for step in range(5)] for p in (first, second)]
    assert indices[0] == indices[1]
    assert len(set(indices[0])) == 5
