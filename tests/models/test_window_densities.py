"""Predictive densities under every window at once are those of a direct solve for each window."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP, OnlineGP
from bandits_torch.policies.forgetting import WindowDensities
from tests.reference.dense_windows import dense_window_densities

S, N, STEPS, WINDOWS, MEMORY, NOISE = 3, 12, 70, [40, 13, 5, 1], 30, 0.003
ARMS = torch.arange(N).double().unsqueeze(-1) / (N - 1)


def space():
    kernel = RBFKernel(batch_shape=torch.Size([S])).double()
    kernel.lengthscale = torch.tensor([0.1, 0.3, 0.9]).double().reshape(S, 1, 1)
    return kernel


def drifting(space):
    return SpatioTemporalKernel(space, ExponentialForgettingKernel(0.05))


def arms(kernel):
    return lambda: ArmGP(ARMS, kernel(), NOISE, prior_mean=0.4, batch_shape=(S,))


def points(kernel, dim):
    return lambda: OnlineGP(kernel(), NOISE, prior_mean=0.4, input_dim=dim, batch_shape=(S,))


MODELS = {
    "arms": arms(space),
    "arms, drift": arms(lambda: drifting(space())),
    "points": points(space, 1),
    "points, time": points(lambda: drifting(MaternKernel(nu=2.5).double()), 2),
}


def observations(model, steps=STEPS):
    """Inputs (S, steps, D), with arms and times repeated, and rewards (S, steps)."""
    generator = torch.Generator().manual_seed(5)
    if isinstance(model, ArmGP):
        X = torch.randint(N, (S, steps, 1), generator=generator).double()
    else:
        X = torch.rand(S, steps, 1, generator=generator).double()
    time = torch.arange(steps).double().div(2).floor().reshape(1, -1, 1).expand(S, -1, 1)
    drifts = model.drifts if isinstance(model, ArmGP) else model.input_dim > 1
    X = torch.cat([X, time], -1) if drifts else X
    return X, torch.randn(S, steps, generator=generator).double()


def dense(model, X, y, held=None):
    """The same by direct solves, (S, n, W), of the rows held alone; 0 for others."""
    kernel = model.prior.kernel if isinstance(model, ArmGP) else model.kernel
    at = torch.cat([X[..., :1] / (N - 1), X[..., 1:]], -1) if isinstance(model, ArmGP) else X
    covariance = kernel(at).to_dense().detach().expand(S, -1, -1)
    densities = torch.zeros(*y.shape, len(WINDOWS)).double()
    for k in range(S):
        rows = torch.arange(y.shape[1]) if held is None else held[k].nonzero().flatten()
        among = covariance[k][rows][:, rows]
        densities[k, rows] = dense_window_densities(among, NOISE, y[k, rows] - 0.4, WINDOWS)
    return densities


def told(model, X, y, memory=MEMORY):
    found = WindowDensities(model, WINDOWS, memory)
    for s in range(y.shape[1]):
        found.observe(model, X[:, s : s + 1], y[:, s])
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_densities_are_those_of_a_solve_for_each_window(name):
    model = MODELS[name]()
    X, y = observations(model)
    found = told(model, X, y, memory=STEPS)
    torch.testing.assert_close(found.densities, dense(model, X, y), rtol=0, atol=1e-8)


def test_densities_stay_exact_and_what_is_kept_stays_small():
    model = MODELS["arms"]()
    X, y = observations(model, 500)
    found = told(model, X, y)
    latest = slice(500 - MEMORY - max(WINDOWS), 500)
    exact = dense(model, X[:, latest], y[:, latest])[:, -MEMORY:]
    torch.testing.assert_close(found.densities, exact, rtol=0, atol=1e-8)
    assert found.inputs.shape[1] == MEMORY + max(WINDOWS)


@pytest.mark.parametrize("name", ["arms, drift", "points"])
def test_members_that_were_cleared_apart_know_only_what_came_since(name):
    model = MODELS[name]()
    X, y = observations(model)
    found, held = WindowDensities(model, WINDOWS, STEPS), torch.ones(S, STEPS) > 0
    for s in range(STEPS):
        if s in (20, 47):
            member = torch.arange(S) == s % S
            found.reset(member)
            held[member, :s] = False
        found.observe(model, X[:, s : s + 1], y[:, s])
    torch.testing.assert_close(found.densities, dense(model, X, y, held), rtol=0, atol=1e-8)
    found.reset()
    assert not found.densities.any()


@pytest.mark.parametrize("name", ["arms", "points"])
def test_after_a_refit_the_record_is_as_if_the_new_hyperparameters_had_been_there_always(name):
    model = MODELS[name]()
    X, y = observations(model)
    found = told(model, X, y)
    found.reset(torch.tensor([False, False, True]))
    before = found.densities.clone()
    kernel = model.prior.kernel if isinstance(model, ArmGP) else model.kernel
    kernel.lengthscale = torch.full((S, 1, 1), 0.2).double()
    found.rescore(model, torch.tensor([True, False, True]))
    exact = dense(model, X, y)[:, -MEMORY:]
    torch.testing.assert_close(found.densities[0], exact[0], rtol=0, atol=1e-8)
    assert (found.densities[0] - before[0]).abs().max() > 0.1
    assert torch.equal(found.densities[1:], before[1:])
    new = told(model, X[:, :1], y[:, :1])
    found.observe(model, X[:, :1], y[:, :1].squeeze(1))
    torch.testing.assert_close(found.densities[2, -1], new.densities[2, -1], rtol=0, atol=1e-8)
    again = torch.cat([X[:, -max(WINDOWS) :], X[:, :1]], 1), torch.cat([y[:, -max(WINDOWS) :], y[:, :1]], 1)
    torch.testing.assert_close(found.densities[0, -1], dense(model, *again)[0, -1], rtol=0, atol=1e-8)


def test_where_the_covariance_has_no_factor_there_is_no_score_and_no_error():
    model = ArmGP(2, torch.ones(2, 2).double(), 0.1, batch_shape=(2,))
    model.noise_variance.fill_(1e-30)  # less than a constructor takes
    found = WindowDensities(model, [3, 1], 4)
    for _ in range(6):
        found.observe(model, torch.zeros(2, 1, 1).double(), torch.ones(2).double())
    assert found.densities[:, -1].eq(0).all()
