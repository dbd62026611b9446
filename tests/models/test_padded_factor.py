"""Factors: of matrices barely positive, without a row, and of a posterior that grows in padded memory."""

import pytest
import torch

from bandits_torch.models.cholesky import batched_cholesky, safe_cholesky
from bandits_torch.models.points import growing_cholesky
from bandits_torch.models.points.online_gp import OnlineGP
from tests.reference.dense_gp import dense_posterior
from tests.reference.kernels import rbf

NOISE, F64 = 0.05, {"dtype": torch.float64}
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
    X = 2 * torch.rand(count, 1, generator=generator, **F64) - 1
    return X, torch.sin(4 * X) + 0.2 * torch.randn(count, 1, generator=generator, **F64)


@torch.no_grad()
def told(model):
    posterior = model.posterior(GRID if not model.batch_shape else GRID.unsqueeze(1))
    return posterior.mean, posterior.variance


def assert_dense(model, *members):
    """``members``: X and Y that each of them holds."""
    mean, variance = (value.reshape(len(GRID), -1) for value in told(model))
    for s, (X, Y) in enumerate(members):
        dense = dense_posterior(kernel(), X, Y[:, 0], NOISE, GRID.reshape(-1, 1), 0.0)
        torch.testing.assert_close(mean[:, s], dense.mean, rtol=0, atol=1e-10)
        torch.testing.assert_close(variance[:, s], dense.covariance.diagonal(), rtol=0, atol=1e-10)


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
        assert_dense(model, (X[held], Y[held]))
        if k == 40:
            model.reset()
            held.clear()


def test_a_row_that_is_learned_costs_no_copy_of_the_others(small):
    model, (X, Y) = OnlineGP(kernel(), NOISE, input_dim=1), rows(20, 4)
    model.observe(X[:16], Y[:16])
    told(model)
    memory = model.data._padded.solid.data_ptr()
    for k in range(16, 19):
        model.observe(X[k : k + 1], Y[k : k + 1])
        assert model.data._padded.holds(model.data.upper, model.data.size)
        assert model.data._padded.solid.data_ptr() == memory


VECTOR = torch.linspace(1, 2, 6, dtype=torch.float64)
RANK_ONE = VECTOR[:, None] * VECTOR
BELOW_ZERO = RANK_ONE - 1e-10 * torch.eye(6, dtype=torch.float64)  # as rounding leaves it, only more so


@pytest.mark.parametrize("factor_of", [safe_cholesky, lambda m: batched_cholesky(m.expand(2, -1, -1))[1]])
@pytest.mark.parametrize("matrix", [RANK_ONE, BELOW_ZERO], ids=["singular", "slightly negative"])
def test_a_matrix_on_the_edge_gets_as_little_jitter_as_it_takes(factor_of, matrix):
    lower = factor_of(matrix)
    assert torch.equal(lower, lower.tril())
    added = (lower @ lower.mT - matrix).diagonal()
    assert added.min() >= -1e-15
    assert added.max() < 1e-8 * matrix.amax()
    torch.testing.assert_close(lower @ lower.mT - torch.diag(added), matrix, rtol=0, atol=1e-14)


def test_only_the_members_that_need_it_get_more_jitter():
    good = torch.eye(6, dtype=torch.float64)
    lower = batched_cholesky(torch.stack([good, BELOW_ZERO]))
    alone = batched_cholesky(good.unsqueeze(0))
    torch.testing.assert_close(lower[0], alone[0], rtol=0, atol=0)


def test_jitter_is_a_share_of_each_matrix_s_own_variances():
    x = torch.linspace(0, 1, 40, dtype=torch.float64)
    K = torch.exp(-((x - x.unsqueeze(-1)) ** 2) / 0.5)  # singular, but for rounding
    scales = torch.tensor([1.0, 1e-12, 1e12], dtype=torch.float64).reshape(-1, 1, 1)
    lower = batched_cholesky(scales * K)
    torch.testing.assert_close(lower @ lower.mT / scales, K.expand(3, -1, -1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("factor_of", [safe_cholesky, lambda m: batched_cholesky(m.unsqueeze(0))])
def test_a_matrix_that_is_not_positive_semi_definite_is_refused(factor_of):
    with pytest.raises(RuntimeError, match="covariance is not positive semi-definite"):
        factor_of(-torch.eye(3, dtype=torch.float64))
