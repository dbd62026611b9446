"""Prior variances that grow with time or place beside the noise: exact, or refused by name before anything changes."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel

from bandits_torch import kernels, models
from bandits_torch.models.points import online_gp

DRIFT = 0.01


def over_time(start=0.0, dtype=torch.float64):
    return kernels.SpatioTemporalKernel(RBFKernel(), kernels.WienerKernel(DRIFT, start=start)).to(dtype)


def rows(t0, n=5):
    arms = torch.tensor([0.1, 0.1, 0.3, 0.3, 0.1], dtype=torch.float64)[:n]
    return torch.stack([arms, torch.full_like(arms, t0)], -1)


def rewards(k, n=5):
    return torch.randn(n, 1, generator=torch.Generator().manual_seed(k), dtype=torch.float64)


@pytest.mark.parametrize("rows_at_once", [1, 5])
@pytest.mark.parametrize(
    ("kernel", "X", "noise", "dtype"),
    [
        (over_time(), rows(1.7e9), 1e-8, torch.float64),
        (over_time(), rows(1e12), 1e-6, torch.float64),
        (over_time(), rows(1.7e9), 1e-2, torch.float32),
        (LinearKernel().double(), torch.full((5, 2), 1e9, dtype=torch.float64), 1e-2, torch.float64),
    ],
    ids=["clock", "milliseconds", "float32", "far away"],
)
def test_a_variance_that_has_outgrown_the_noise_is_refused_where_it_is_observed(
    kernel, X, noise, dtype, rows_at_once
):
    model = models.OnlineGP(kernel, noise, input_dim=2, dtype=dtype)
    X, Y = X[:rows_at_once], rewards(0, rows_at_once)
    for call in (model.observe, model.condition_on_observations):
        with pytest.raises(
            ValueError, match=r"X must be where noise_variance is at least .* of the prior variance"
        ):
            call(X, Y)
    assert model.num_observations == 0
    model.observe(torch.zeros_like(X), Y)  # here it has not


@pytest.mark.parametrize("n", [1, 2, 3])
def test_it_is_refused_of_any_number_of_rows_beside_the_number_of_kernels(n):
    wander = kernels.WienerKernel(torch.tensor([1e16, 1e-3]).double(), batch_shape=(2,))
    kernel = kernels.SpatioTemporalKernel(RBFKernel().double(), wander)
    model = models.OnlineGP(kernel, 1e-2, input_dim=2, batch_shape=(2,))
    late = torch.cat([rows(0.0, n - 1), rows(100.0, 1)])  # too much for the first kernel alone
    with pytest.raises(ValueError, match="X must be where noise_variance"):
        model.observe(late, rewards(0, n))


def test_noise_that_the_observed_variance_has_outgrown_is_not_adopted():
    model = models.OnlineGP(over_time(), 1e-4, input_dim=2)
    model.observe(rows(1.7e9), rewards(0))
    with pytest.raises(ValueError, match="noise_variance"):
        model.adopt(torch.tensor(1e-8, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64))
    assert model.noise_variance == 1e-4


def test_rows_that_cannot_be_held_replace_none():
    model = models.OnlineGP(over_time(), 1e-8, input_dim=2)
    model.observe(rows(0.0), rewards(0))
    before = model.train_inputs[0].clone()
    late = torch.cat([rows(1.0, 1), rows(1.7e9, 1)])  # the second has too large a variance
    with pytest.raises(ValueError, match="X must be where noise_variance"):
        model.hold(late, rewards(1, 2), torch.tensor([True, True]))
    assert torch.equal(model.train_inputs[0], before)


@pytest.mark.parametrize("start", [1.7e9, 1e12])
def test_the_same_rows_counted_from_a_start_are_not_refused(start):
    model = models.OnlineGP(over_time(start), 1e-8, input_dim=2)
    model.observe(rows(start + 5.0), rewards(0))
    assert model.log_likelihood.isfinite()


def test_rows_that_are_no_positive_definite_matrix_together_are_learned_one_after_the_other(monkeypatch):
    """As it happens where little more than the noise is left of K + lambda I."""
    X, Y = rows(1.7e9), 0.01 * rewards(0)
    one, other = (models.OnlineGP(over_time(), 1e-4, input_dim=2) for _ in range(2))
    one.observe(X, Y)
    for k in range(5):
        other.observe(X[k : k + 1], Y[k : k + 1])
    failing, blocks = online_gp.new_rows, []

    def new_rows(prior, data, X, *more):
        if X.shape[-2] > 1:
            blocks.append(X)
            raise torch.linalg.LinAlgError("as LAPACK finds")
        return failing(prior, data, X, *more)

    monkeypatch.setattr(online_gp, "new_rows", new_rows)
    third = models.OnlineGP(over_time(), 1e-4, input_dim=2)
    third.observe(X, Y)
    fourth = models.OnlineGP(over_time(), 1e-4, input_dim=2).condition_on_observations(X, Y)
    assert len(blocks) == 2
    points = rows(1.7e9 + 1).unsqueeze(-2)
    for model in (one, third, fourth):
        torch.testing.assert_close(
            model.posterior(points).mean, other.posterior(points).mean, rtol=0, atol=1e-6
        )
        torch.testing.assert_close(model.log_likelihood, other.log_likelihood, rtol=1e-4, atol=0)


def test_rows_that_cannot_be_factored_anew_are_learned_again(monkeypatch):
    model = models.OnlineGP(over_time(), 1e-4, input_dim=2, batch_shape=(2,))
    for k in range(6):
        where = torch.tensor([True, k != 2])
        model.observe(rows(1.7e9 + k), 0.01 * rewards(k), where)
    before = model.posterior(rows(1.7e9 + 6).unsqueeze(-2).unsqueeze(-3)).mean, model.log_likelihood

    def fails(prior, data):
        raise torch.linalg.LinAlgError("as LAPACK finds")

    monkeypatch.setattr(online_gp, "factor_anew", fails)
    model.rebuild()
    assert model.num_observations.tolist() == [30, 25]
    torch.testing.assert_close(
        model.posterior(rows(1.7e9 + 6).unsqueeze(-2).unsqueeze(-3)).mean, before[0], rtol=0, atol=1e-6
    )
    torch.testing.assert_close(model.log_likelihood, before[1], rtol=1e-4, atol=0)


@pytest.mark.parametrize("noise", [2e-7, 1e-6])
def test_no_factorisation_fails_where_the_ratio_is_allowed(noise):
    """Ratios of 1e-14 and 6e-14: blocks, and the rows factored anew, are only just positive definite, or not."""
    model = models.OnlineGP(over_time(), noise, input_dim=2)
    for k in range(20):
        model.observe(rows(1.7e9 + k), noise**0.5 * rewards(k))
        model.rebuild()
        assert model.log_likelihood.isfinite()
    assert (model.posterior(rows(1.7e9 + 20).unsqueeze(-2)).variance > 0).all()
