"""Removing a row from a Cholesky factor against factoring again."""

import pytest
import torch

from bandits_torch.models.cholesky import remove_row, solve_lower
from bandits_torch.models.points.growing_cholesky import fold

F64 = {"dtype": torch.float64}


def factor(*shape, seed=0):
    n = shape[-1]
    root = torch.randn(*shape, n, generator=torch.Generator().manual_seed(seed), **F64)
    covariance = root @ root.mT / n + 1e-2 * torch.eye(n, **F64)
    return covariance, torch.linalg.cholesky(covariance)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("size", [2, 17, 18, 100, 273, 530])
@pytest.mark.parametrize("overlapping", [False, True])
def test_what_stays_is_the_factor_of_the_rest_and_keeps_the_residuals(batch, size, overlapping):
    covariance, lower = factor(*batch, size)
    residual = torch.randn(*batch, size, **F64)
    whitened = torch.linalg.solve(lower, residual.unsqueeze(-1)).squeeze(-1)
    buffer = torch.zeros(*batch, size + 7, size + 7, **F64)
    buffer[..., :size, :size] = lower.mT
    upper, row = buffer[..., 1:size, 1:size], buffer[..., 0, 1:size]
    out = buffer[..., : size - 1, : size - 1] if overlapping else torch.zeros_like(upper)
    rest = remove_row(upper, row, whitened[..., 1:], whitened[..., :1], out)
    expected = torch.linalg.cholesky(covariance[..., 1:, 1:])
    torch.testing.assert_close(out.mT, expected, atol=1e-11, rtol=0)
    back = (expected @ rest.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(back, residual[..., 1:], atol=1e-11, rtol=0)
    assert torch.equal(out.tril(-1), torch.zeros_like(out))


def test_residuals_may_have_more_batch_dimensions_than_the_factor():
    _, lower = factor(20)
    residual = torch.randn(4, 20, **F64)
    whitened = torch.linalg.solve(lower, residual.mT).mT
    out = torch.zeros(19, 19, **F64)
    rest = remove_row(lower[1:, 1:].mT, lower[1:, 0], whitened[:, 1:], whitened[:, :1], out)
    torch.testing.assert_close((out.mT @ rest.mT).mT, residual[:, 1:])


def test_solving_with_a_stored_factor_needs_no_copy_of_it():
    _, lower = factor(30)
    right = torch.randn(30, 4, **F64)
    torch.testing.assert_close(lower @ solve_lower(lower.mT.contiguous().mT, right), right)


@pytest.mark.parametrize("factors", [(), (3,), (1,), (2, 3), (1, 3), (2, 1)])
@pytest.mark.parametrize("extra", [(), (5,), (4, 5)])
@pytest.mark.parametrize("q", [1, 2])
def test_folding_candidates_equals_a_product_per_candidate(factors, extra, q):
    X = torch.randn(*extra, *[1 if i == 0 else size for i, size in enumerate(factors)], q, 2, **F64)
    left = torch.randn(*factors, 7, 2, **F64)
    points, unfold = fold(X, factors)
    torch.testing.assert_close(unfold(left @ points.mT).expand((left @ X.mT).shape), left @ X.mT)
