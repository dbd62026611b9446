"""Solves with a factor that grows: in padded memory, whatever came and went before, as with a dense one."""

import copy

import pytest
import torch

from bandits_torch.models.points import growing_cholesky
from bandits_torch.models.points.online_gp import OnlineGP
from tests.reference.dense_gp import dense_posterior
from tests.reference.kernels import rbf

NOISE = 0.05
GRID = torch.linspace(-1, 1, 23).double().reshape(-1, 1, 1)


def kernel():
    return rbf(0.3)


@pytest.fixture
def small(monkeypatch):
    """Padded from two rows on, in steps of four."""
    monkeypatch.setattr(growing_cholesky, "FROM", 2)
    monkeypatch.setattr(growing_cholesky, "_STEP", 4)


def rows(count, seed):
    generator = torch.Generator().manual_seed(seed)
    X = 2 * torch.rand(count, 1, generator=generator, dtype=torch.float64) - 1
    return X, torch.sin(4 * X) + 0.2 * torch.randn(count, 1, generator=generator, dtype=torch.float64)


@torch.no_grad()
def told(model):
    posterior = model.posterior(GRID if not model.batch_shape else GRID.unsqueeze(1))
    return posterior.mean, posterior.variance


def assert_dense(model, X, Y):
    dense = dense_posterior(kernel(), X, Y[:, 0], NOISE, GRID.reshape(-1, 1), 0.0)
    mean, variance = told(model)
    torch.testing.assert_close(mean.reshape(-1), dense.mean, rtol=0, atol=1e-10)
    torch.testing.assert_close(variance.reshape(-1), dense.covariance.diagonal(), rtol=0, atol=1e-10)


def test_whatever_comes_and_goes_predictions_are_dense(small):
    model, (X, Y), held = OnlineGP(kernel(), NOISE, input_dim=1), rows(60, 0), []
    generator = torch.Generator().manual_seed(1)
    for k in range(60):
        move = int(torch.randint(6, (), generator=generator)) if len(held) > 5 else 0
        if move == 1:
            model.forget(1)
            held.pop(0)
        elif move == 2:
            row = int(torch.randint(len(held), (), generator=generator))
            rows_there = model.data.rows()
            number = int((rows_there.held.cumsum(-1) == row + 1).to(torch.uint8).argmax())
            model.remove(torch.tensor(number))
            held.pop(row)
        elif move == 3:
            with model.provisional():
                model.expect(X[k : k + 1])
                told(model)
        model.observe(X[k : k + 1], Y[k : k + 1])
        held.append(k)
        assert_dense(model, X[held], Y[held])
        if k == 40:
            model.reset()
            held.clear()


def test_members_that_hold_different_rows(small):
    model, (X, Y) = OnlineGP(kernel(), NOISE, input_dim=1, batch_shape=(2,)), rows(20, 2)
    held = ([], [])
    for k in range(20):
        where = torch.tensor([True, k % 3 > 0])
        model.observe(X[k : k + 1], Y[k : k + 1], where=where)
        for s in (0, 1):
            held[s].extend([k] if where[s] else [])
        if k in (9, 15):
            model.forget(1, where=torch.tensor([False, True]))
            held[1].pop(0)
        mean, variance = told(model)
        for s in (0, 1):
            dense = dense_posterior(kernel(), X[held[s]], Y[held[s]][:, 0], NOISE, GRID.reshape(-1, 1), 0.0)
            torch.testing.assert_close(mean[:, s].reshape(-1), dense.mean, rtol=0, atol=1e-10)
            own = dense.covariance.diagonal()
            torch.testing.assert_close(variance[:, s].reshape(-1), own, rtol=0, atol=1e-10)


@pytest.mark.parametrize("at", [509, 511, 512, 575, 576])
def test_a_copy_made_on_the_way_goes_on_to_the_last_bit(at):
    model, (X, Y) = OnlineGP(kernel(), NOISE, input_dim=1), rows(590, 3)
    model.observe(X[:500], Y[:500])
    other = None
    for k in range(500, 590):
        if k == at:
            other = OnlineGP(kernel(), NOISE, input_dim=1)
            other.load_state_dict(copy.deepcopy(model.state_dict()))
        for one in (model, other) if other else (model,):
            one.observe(X[k : k + 1], Y[k : k + 1])
            mine = told(one)
        if other and k % 7 == 0:
            assert all(torch.equal(a, b) for a, b in zip(told(model), mine, strict=True))
    assert_dense(model, X, Y)


def test_a_row_that_is_learned_costs_no_copy_of_the_others():
    model, (X, Y) = OnlineGP(kernel(), NOISE, input_dim=1), rows(640, 4)
    model.observe(X[:576], Y[:576])
    told(model)
    memory = model.data._padded.solid.data_ptr()
    for k in range(576, 639):
        model.observe(X[k : k + 1], Y[k : k + 1])
        assert model.data._padded.holds(model.data.upper, model.data.size)
        assert model.data._padded.solid.data_ptr() == memory
