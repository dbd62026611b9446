"""Factors: of matrices barely positive, and of a posterior that grows in padded memory."""

import pytest
import torch

from bandits_torch.models.cholesky import batched_cholesky, safe_cholesky
from bandits_torch.models.points import growing_cholesky
from bandits_torch.models.points.online_gp import OnlineGP
from tests.reference.kernels import rbf


def test_a_row_that_is_learned_costs_no_copy_of_the_others(monkeypatch):
    """Padded from two rows on, in steps of four. That predictions are right: ``test_attack_models.py``."""
    monkeypatch.setattr(growing_cholesky, "FROM", 2)
    monkeypatch.setattr(growing_cholesky, "_STEP", 4)
    model, X = OnlineGP(rbf(0.3), 0.05, input_dim=1), torch.rand(19, 1).double()
    model.observe(X[:16], X[:16])
    with torch.no_grad():
        model.posterior(X.unsqueeze(-2))
    memory = model.data._padded.solid.data_ptr()
    for k in range(16, 19):
        model.observe(X[k : k + 1], X[k : k + 1])
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
