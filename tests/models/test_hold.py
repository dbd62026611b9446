"""Holding other observations instead: as a model that learned nothing else, and the other members as they were."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP, OnlineGP
from bandits_torch.state import differing
from tests.fuzz.living import state_of
from tests.reference.arm_gp_twins import smooth

N, S, ROWS = 6, 3, 8


def drifting():
    kernel = ArmCovarianceKernel(smooth(N, 0.3))
    return SpatioTemporalKernel(kernel, ExponentialForgettingKernel(0.1))


MODELS = {
    "covariance": lambda S: ArmGP(N, smooth(N, 0.3), 0.1, batch_shape=(S,)),
    "factor": lambda S: ArmGP(N, smooth(N, 0.3), 0.1, batch_shape=(S,), form="factor"),
    "drift": lambda S: ArmGP(N, drifting(), 0.1, batch_shape=(S,)),
    "points": lambda S: OnlineGP(RBFKernel().double(), 0.1, input_dim=1, batch_shape=(S,)),
}
HELD = torch.tensor([[True] * ROWS, [False] * ROWS, [False] * 5 + [True] * 3])


def rows(name, first=0):
    """X and Y of some rows from step ``first`` on."""
    generator = torch.Generator().manual_seed(first)
    X = torch.randint(N, (S, ROWS, 1), generator=generator).double()
    if name == "drift":
        time = first + torch.arange(ROWS).double().reshape(1, -1, 1).expand(S, -1, 1)
        X = torch.cat([X, time], -1)
    return X, torch.randn(S, ROWS, 1, generator=generator).double()


def at_the_end(name, model):
    """Mean and variance of some points, (S, n) each."""
    if name != "points":
        return model.marginals(30.0)
    posterior = model.posterior(torch.linspace(0, 5, 7).double().reshape(7, 1, 1, 1))
    return posterior.mean.reshape(7, -1).T, posterior.variance.reshape(7, -1).T


@pytest.mark.parametrize("name", MODELS)
def test_members_hold_these_rows_and_nothing_else(name):
    model, (X, Y) = MODELS[name](S), rows(name)
    model.observe(*rows(name, 10))
    before = [value.clone() for value in at_the_end(name, model)]
    model.hold(X, Y, HELD)
    assert model.num_observations.tolist() == [ROWS, ROWS, 3]
    for k in (0, 2):
        fresh = MODELS[name](1)
        fresh.observe(X[k : k + 1, HELD[k]], Y[k : k + 1, HELD[k]])
        for own, exact in zip(at_the_end(name, model), at_the_end(name, fresh), strict=True):
            torch.testing.assert_close(own[k], exact[0], rtol=0, atol=1e-10)
    for own, was in zip(at_the_end(name, model), before, strict=True):
        torch.testing.assert_close(own[1], was[1], rtol=0, atol=1e-10)
        assert (own[0] - was[0]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["covariance", "factor", "drift"])
def test_no_rows_change_nothing(name):
    model, (X, Y) = MODELS[name](S), rows(name)
    model.observe(X, Y)
    before = at_the_end(name, model)
    model.hold(X[:, :0], Y[:, :0], HELD[:, :0])
    for own, was in zip(at_the_end(name, model), before, strict=True):
        torch.testing.assert_close(own, was, rtol=0, atol=1e-12)
    assert model.num_observations.tolist() == [ROWS] * S


@pytest.mark.parametrize("name", MODELS)
def test_bad_rows_are_refused_and_change_nothing(name):
    model, (X, Y) = MODELS[name](S), rows(name)
    model.observe(*rows(name, 10))
    before = state_of(model)
    bad = [(X, Y, HELD.double(), "held"), (X, Y, HELD[:, :3], "held"), (X, Y, None, "held")]
    bad += [
        (X * math.nan, Y, HELD, "X"),
        (X, Y / 0, HELD, "Y"),
        (X[:2], Y, HELD, "X"),
        (X, Y[:, :2], HELD, "Y"),
    ]
    if name == "drift":
        bad += [(X + torch.rand(S, 1, 1), Y, HELD, "X")]
    for x, y, held, argument in bad:
        with pytest.raises(ValueError, match=argument):
            model.hold(x, y, held)
        assert not differing(before, state_of(model))
