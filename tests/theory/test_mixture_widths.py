"""Flynn & Reeb's bounds: those of the definition, never wider than the closed form, and no tighter than may be."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.acquisition import DualMixtureBound
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP
from bandits_torch.policies import IndexPolicy, Observation, SlidingWindow
from bandits_torch.theory import DualMixtureWidth, RealisedInformationWidth
from tests.reference import plain_mixture
from tests.reference.simulate_coverage import stand_in

N, S, B, R, DELTA = 8, 3, 1.5, 0.3, 0.1
X = torch.linspace(0, 1, N, dtype=torch.float64)
K = torch.exp(-((X[:, None] - X) ** 2) / (2 * 0.2**2)) + 1e-8 * torch.eye(N).double()
RIDGES = 2.0 ** np.arange(-8, 9)


def taught(noise, pulls=25, seed=0, mean=0.0, scale=0.5):
    generator = torch.Generator().manual_seed(seed)
    arms = torch.randint(N, (pulls, S), generator=generator)
    rewards = mean + scale * torch.randn(pulls, S, generator=generator, dtype=torch.float64)
    model = ArmGP(N, K, noise, prior_mean=mean, batch_shape=(S,))
    for arm, reward in zip(arms, rewards, strict=True):
        model.observe_arms(arm, reward)
    return model, arms.T.numpy(), rewards.T.numpy() - mean


@pytest.mark.parametrize("noise", [R**2, 0.5])
@pytest.mark.parametrize(("horizon", "drift", "mean"), [(None, 0.0, 0.0), (50, 0.0, 2.0), (None, 0.2, 0.0)])
def test_bounds_are_those_of_the_dense_dual(noise, horizon, drift, mean):
    model, arms, y = taught(noise, mean=mean)
    lower, upper = DualMixtureWidth(B, R, DELTA, horizon, drift).bounds(model)
    for s in range(S):
        low, high = plain_mixture.dual_bounds(
            K.numpy(), arms[s], y[s], R, B, R**2 / noise, DELTA, noise * RIDGES, horizon or 1, drift
        )
        assert np.allclose(lower[s], mean + low, atol=1e-8)
        assert np.allclose(upper[s], mean + high, atol=1e-8)


def test_a_width_is_the_same_in_any_unit_of_rewards():
    widths = []
    for unit in (1.0, 1e-9):
        model = ArmGP(N, unit**2 * K, unit**2 * R**2)
        model.observe_arms(torch.tensor(2), torch.tensor(0.7 * unit).double())
        widths.append(float(DualMixtureWidth(B, None, DELTA)(2, model)))
    assert widths[1] == pytest.approx(widths[0], rel=1e-6)


def test_dual_is_the_best_bound_that_the_two_facts_allow():
    """The primal, solved as it is written, reaches it to 1 %, for the ridges are 17; it never exceeds it."""
    model, arms, y = taught(R**2, pulls=6, scale=0.3)
    upper = DualMixtureWidth(B, R, DELTA).bounds(model)[1]
    radius = np.sqrt(plain_mixture.squared_radius(K.numpy(), arms[0], y[0], R, 1.0, DELTA))
    for x in range(N):
        best = plain_mixture.largest_value(K.numpy(), arms[0], y[0], B, radius, x)
        assert best <= upper[0, x] + 1e-6
        assert best > 0.99 * upper[0, x]


@pytest.mark.parametrize("noise", [R**2, 0.5, 0.02])
@pytest.mark.parametrize("pulls", [0, 1, 5, 40])
def test_never_wider_than_the_closed_form_which_is_alpha_lambda(noise, pulls):
    model = taught(noise, pulls)[0] if pulls else ArmGP(N, K, noise, batch_shape=(S,))
    closed = RealisedInformationWidth(B, R, DELTA)(pulls + 1, model)
    assert (DualMixtureWidth(B, R, DELTA)(pulls + 1, model) <= closed * (1 + 1e-9)).all()
    mean, variance = model.marginals()
    lower, upper = DualMixtureWidth(B, R, DELTA).bounds(model)
    reach = closed.unsqueeze(-1) * variance.sqrt()
    assert (upper <= mean + reach + 1e-9).all()
    assert (lower >= mean - reach - 1e-9).all()
    if pulls == 0:  # nothing is known but the norm
        assert torch.allclose(upper, B * K.diagonal().sqrt().expand(S, N))


def test_parameters_may_differ_between_replicates():
    bounds = torch.tensor([0.5, 1.0, 3.0]).double()
    model = taught(R**2)[0]
    together = DualMixtureWidth(bounds, R, DELTA).bounds(model)[1]
    for s, bound in enumerate(bounds.tolist()):
        assert torch.allclose(together[s], DualMixtureWidth(bound, R, DELTA).bounds(model)[1][s])


def test_acquisition_is_the_upper_bound_and_a_window_reads_what_is_held():
    width = DualMixtureWidth(B, R, DELTA, horizon=20)
    policy = IndexPolicy(
        ArmGP(N, K, R**2, batch_shape=(S,)),
        lambda model: DualMixtureBound(model, width),
        forgetting=SlidingWindow(4),
    )
    for step in range(1, 13):
        arm = policy.choose(float(step)).arm
        assert torch.equal(arm, width.bounds(policy.model)[1].argmax(-1))
        policy.learn(Observation(float(step), arm, torch.sin(arm.double() + step)))
    again = ArmGP(N, K, R**2, batch_shape=(S,))
    arm, reward, _, _ = policy.model.held()
    for j in range(4):
        again.observe_arms(arm[:, j], reward[:, j])
    assert torch.allclose(width.bounds(again)[1], width.bounds(policy.model)[1])


def test_other_models_are_refused():
    width = DualMixtureWidth(B, R, DELTA)
    with pytest.raises(ValueError, match="model must be an ArmGP"):
        width(1, stand_in())
    kernel = RBFKernel().double()
    rate = ExponentialForgettingKernel(0.1)
    with pytest.raises(ValueError, match="model must be static"):
        width(1, ArmGP(X.unsqueeze(-1), SpatioTemporalKernel(kernel, rate), 0.1))
