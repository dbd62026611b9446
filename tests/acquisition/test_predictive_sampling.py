"""Predictive sampling equals plain conditioning on a long finite future, and Thompson or greedy play in the limits."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, recipes
from bandits_torch.acquisition import PredictiveSampling, ThompsonSampling
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.policies import IndexPolicy, Observation
from tests.reference.kernels import rbf
from tests.reference.plain_draws import shares_of_predictive_sampling

ARMS = torch.linspace(0, 1, 4, dtype=torch.float64).unsqueeze(-1)


def kernel(rate=None, lengthscale=0.3):
    space = rbf(lengthscale).requires_grad_(False)
    if rate is None:
        return space
    return SpatioTemporalKernel(space, ExponentialForgettingKernel(rate))


def learned(rate=None, noise=0.1, replicates=(2,), **options):
    model = ArmGP(ARMS, kernel(rate, **options), noise, batch_shape=replicates)
    for time, arm, reward in ((1.0, 0, 0.7), (2.0, 2, -0.2), (4.0, 0, 0.4)):
        size = torch.Size(replicates)
        model.observe_arms(torch.full(size, arm), torch.full(size, reward).double(), time)
    return model


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("interval", [1.0, 2.5])
@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_the_closed_form_equals_a_long_finite_future(rate, interval, noise) -> None:
    model = learned(rate, torch.tensor([noise, 0.5 * noise]).double())
    root, (_, C) = PredictiveSampling(model, interval).root(model, 5.0), model.joint(5.0)
    a = (1 - rate) ** (interval / 2)
    K = kernel()(ARMS).to_dense().numpy()
    for s, own in enumerate((noise, 0.5 * noise)):
        _, slow = shares_of_predictive_sampling(0, C[s].numpy(), K, a, 1 - a**2, own, 200, 1)
        np.testing.assert_allclose((root[s] @ root[s].mT).numpy(), slow, atol=1e-9)
        assert (slow.diagonal() < C[s].diagonal().numpy() - 1e-3).all()  # or nothing would be discounted


def test_arms_are_chosen_as_often_as_draws_of_the_future_say() -> None:
    many, rate = 4000, 0.2
    model = learned(rate, replicates=(many,))
    policy = IndexPolicy(model, PredictiveSampling(model), seed=2)
    found = np.bincount(policy.choose(5.0).arm.numpy(), minlength=4) / many
    mean, C = model.joint(5.0)
    K, a = kernel()(ARMS).to_dense().numpy(), (1 - rate) ** 0.5
    slow, _ = shares_of_predictive_sampling(mean[0].numpy(), C[0].numpy(), K, a, 1 - a**2, 0.1, 40, many)
    assert (abs(found - slow) < 5 * np.sqrt((found + slow) / many) + 5 / many).all(), (found, slow)
    assert (slow > 0.02).sum() > 1


def test_nothing_forgotten_is_thompson_sampling() -> None:
    model = learned()
    z = torch.randn(2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    X = model.candidates()
    draws = [kind(model, base_samples=z)(X) for kind in (PredictiveSampling(model), ThompsonSampling)]
    assert torch.equal(*draws)
    still = recipes.predictive_sampling(ARMS, kernel(), 0.1, forgetting_rate=0.0, replicates=3)
    thompson = IndexPolicy(ArmGP(ARMS, kernel(), 0.1, batch_shape=(3,)), ThompsonSampling)
    for step in range(12):
        chosen = [policy.choose(float(step)).arm for policy in (still, thompson)]
        assert torch.equal(*chosen)
        for policy in (still, thompson):
            policy.learn(Observation(float(step), chosen[0], torch.sin(2.0 * chosen[0] + step)))


def test_little_forgotten_is_nearly_thompson_sampling_and_all_forgotten_is_greedy() -> None:
    slow, fast = learned(1e-12), learned(1 - 1e-12)
    root, C = PredictiveSampling(slow).root(slow, 5.0), slow.joint(5.0)[1]
    torch.testing.assert_close(root @ root.mT, C, rtol=0, atol=2e-6)
    assert float(PredictiveSampling(fast).root(fast, 5.0).abs().max()) < 1e-5


def test_wide_kernels_of_low_rank_and_float32_are_no_trouble() -> None:
    arms = torch.linspace(0, 1, 200).unsqueeze(-1)
    for dtype in (torch.float32, torch.float64):
        own = SpatioTemporalKernel(RBFKernel(), ExponentialForgettingKernel(torch.tensor(0.001)))
        model = ArmGP(arms.to(dtype), own.to(dtype), 0.01, batch_shape=(2,))
        model.observe_arms(torch.tensor([3, 150]), torch.tensor([1.0, -1.0]).to(dtype), 1.0)
        root, C = PredictiveSampling(model).root(model, 2.0), model.joint(2.0)[1]
        left = (C - root @ root.mT).diagonal(dim1=-2, dim2=-1)
        assert bool(root.isfinite().all())
        assert float(left.min()) > (-1e-3 if dtype == torch.float32 else -1e-8)


@pytest.mark.parametrize("noise", [0.1, torch.tensor([[0.1], [0.4]]).double()])
def test_members_of_a_batch_of_kernels_draw_as_they_would_alone(noise) -> None:
    K = torch.stack([kernel()(ARMS).to_dense(), 2.0 * torch.eye(4)])
    fades = ExponentialForgettingKernel(torch.tensor(0.1).double())
    model = ArmGP(ARMS, SpatioTemporalKernel(ArmCovarianceKernel(K), fades), noise, batch_shape=(2, 2))
    roots = PredictiveSampling(model).root(model, 5.0)
    for s, own in enumerate(torch.as_tensor(noise).double().expand(2, 1)[:, 0].tolist()):
        for p in range(2):
            alone = ArmGP(ARMS, SpatioTemporalKernel(ArmCovarianceKernel(K[p]), fades), own)
            torch.testing.assert_close(roots[s, p], PredictiveSampling(alone).root(alone, 5.0))


def test_hyperparameters_that_change_are_those_of_the_next_draw() -> None:
    model = learned(0.1)
    acquisition = PredictiveSampling(model)
    acquisition.root(model, 5.0)
    model.adopt(torch.tensor([1.0, 2.0]).double(), torch.zeros(2).double())
    assert torch.equal(acquisition.root(model, 5.0), PredictiveSampling(model).root(model, 5.0))
    model.prior.kernel.time_kernel.forgetting_rate = 0.5
    model.rebuild()
    assert torch.equal(acquisition.root(model, 5.0), PredictiveSampling(model).root(model, 5.0))


def test_other_models_are_refused() -> None:
    walk = SpatioTemporalKernel(kernel(), WienerKernel(0.1))
    with pytest.raises(ValueError, match="kernel over time must be a stationary MarkovTimeKernel"):
        PredictiveSampling(ArmGP(ARMS, walk, 0.1))
