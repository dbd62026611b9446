"""Covariance between arms as a matrix, given or estimated; kernels over arm x context; offsets of periods."""

import copy
import itertools
import pickle
import unittest

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    PeriodKernel,
    SpatioTemporalKernel,
    arm_context_kernel,
    estimate_covariance,
)
from bandits_torch.models import OnlineGP
from tests.kernels.test_temporal import OneColumn

F64 = {"dtype": torch.float64}


def covariance(*shape: int, arms: int = 6, seed: int = 0) -> torch.Tensor:
    root = torch.randn(*shape, arms, arms, generator=torch.Generator().manual_seed(seed), **F64)
    return root @ root.mT


class TestArmCovarianceInGPyTorch(OneColumn, unittest.TestCase):
    def create_kernel_no_ard(self, batch_shape=(), **kwargs):
        return ArmCovarianceKernel(covariance(*batch_shape), **kwargs)

    def create_data_no_batch(self):
        return torch.randint(0, 6, (50, 10)).to(torch.float64)

    def create_data_single_batch(self):
        return torch.randint(0, 6, (2, 3, 1)).to(torch.float64)

    def create_data_double_batch(self):
        return torch.randint(0, 6, (3, 2, 50, 1)).to(torch.float64)

    def test_kernel_dtype_device(self):
        kernel = self.create_kernel_no_ard()
        assert kernel.dtype == torch.float64
        assert kernel.to(torch.float32).dtype == torch.float32
        assert kernel.device == torch.device("cpu")


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("inputs", [(), (1,), (3,), (4, 1, 3)])
def test_values_are_the_entries_of_the_matrix(batch, inputs):
    kernel = ArmCovarianceKernel(covariance(*batch))
    C = kernel.covariance
    i, j = torch.randint(0, 6, (*inputs, 4)), torch.randint(0, 6, (*inputs, 5))
    x, z = i.unsqueeze(-1).to(torch.float64), j.unsqueeze(-1).to(torch.float64)
    shape = torch.broadcast_shapes(batch, inputs)
    i, j, C = i.expand(*shape, 4), j.expand(*shape, 5), C.expand(*shape, 6, 6)
    expected = torch.empty(*shape, 4, 5, **F64)
    for b in itertools.product(*map(range, shape)):
        expected[b] = C[b][i[b]][:, j[b]]
    assert torch.equal(kernel(x, z).to_dense().expand_as(expected), expected)
    diagonal = kernel(x, z[..., :4, :], diag=True)
    assert torch.equal(diagonal.expand(*shape, 4), expected[..., :4].diagonal(dim1=-1, dim2=-2))


def test_it_is_a_buffer_that_moves_and_is_saved():
    kernel, other = ArmCovarianceKernel(covariance()), ArmCovarianceKernel(covariance(seed=1))
    assert not list(kernel.parameters())
    other.load_state_dict(kernel.state_dict())
    for twin in (other, copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert torch.equal(twin.covariance, kernel.covariance)
    assert kernel.to(torch.float32).covariance.dtype == torch.float32


def test_the_caller_s_matrix_is_copied():
    C = covariance()
    kernel = ArmCovarianceKernel(C)
    C.zero_()
    assert kernel.covariance.abs().max() > 0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_in_a_singular_matrix_is_tolerated_at_every_scale(scale):
    root = torch.randn(30, 3, **F64)
    ArmCovarianceKernel(scale * root @ root.T)


@pytest.mark.parametrize("index", [-1.0, 6.0, 0.5, float("nan")])
def test_input_that_is_no_arm_is_refused(index):
    kernel = ArmCovarianceKernel(covariance())
    with pytest.raises(ValueError, match="arm index"):
        kernel(torch.tensor([[1.0], [index]], **F64)).to_dense()
    with pytest.raises(ValueError, match="arm indices"):
        kernel(torch.ones(2, 3, **F64)).to_dense()


def test_unshrunk_estimate_of_a_full_table_is_the_sample_covariance():
    table = torch.randn(40, 5, **F64) @ torch.randn(5, 5, **F64) + 3.0
    torch.testing.assert_close(estimate_covariance(table, 0.0), torch.cov(table.T))
    torch.testing.assert_close(estimate_covariance(table, 1.0), table.var(0).diag())
    torch.testing.assert_close(ArmCovarianceKernel.from_table(table, 0.0).covariance, torch.cov(table.T))


def test_missing_rewards_are_left_out_pair_by_pair():
    # far from singular, so that the pairwise estimate is positive definite and nothing is clipped
    table = torch.randn(50, 4, **F64) @ (2 * torch.eye(4, **F64) + 0.3 * torch.randn(4, 4, **F64))
    table[torch.rand(50, 4) < 0.1] = float("nan")
    estimate = estimate_covariance(table, 0.0)
    centred = table - table.nanmean(0)
    for i in range(4):
        for j in range(4):
            product = (centred[:, i] * centred[:, j])[~(table[:, i] + table[:, j]).isnan()]
            assert estimate[i, j].item() == pytest.approx(
                product.sum().item() / (len(product) - 1), rel=1e-10
            )


def test_automatic_shrinkage_is_the_closed_form():
    table = torch.randn(12, 4, **F64) @ torch.randn(4, 4, **F64)
    n, S = 12, torch.cov(table.T)
    centred = table - table.mean(0)
    numerator = denominator = 0.0
    for i in range(4):
        for j in range(4):
            if i != j:
                w = centred[:, i] * centred[:, j]
                numerator += n / (n - 1) ** 3 * (w - w.mean()).square().sum().item()
                denominator += S[i, j].item() ** 2
    amount = min(1.0, numerator / denominator)
    assert 0 < amount < 1
    torch.testing.assert_close(estimate_covariance(table), (1 - amount) * S + amount * S.diagonal().diag())


@pytest.mark.parametrize(
    ("dtype", "units"), [(torch.float32, (2.0**-40, 2.0**33)), (torch.float64, (2.0**-280, 2.0**450))]
)
def test_automatic_shrinkage_does_not_depend_on_the_unit(dtype, units):
    # The fourth powers of these rewards overflow, or are 0.
    table = (uniform(30, 4) + uniform(30, 1, seed=1)).to(dtype)
    expected = estimate_covariance(table)
    assert expected[0, 1] > 0.01
    for unit in units:
        torch.testing.assert_close(estimate_covariance(unit * table) / unit / unit, expected)


def test_estimate_is_positive_semi_definite_even_where_missing_rewards_made_it_indefinite():
    nan = float("nan")
    x = torch.tensor([-1.0, 1.0, -2.0, 2.0], **F64)
    missing = torch.full_like(x, nan)
    # Arms 0 and 1 agree, 1 and 2 agree, 0 and 2 disagree: no covariance matrix says that.
    rows = [torch.stack(r, -1) for r in ((x, x, missing), (missing, x, x), (x, missing, -x))]
    table = torch.cat(rows)
    estimate = estimate_covariance(table, 0.0)
    assert torch.linalg.eigvalsh(estimate)[0] > -1e-12
    assert (estimate.diagonal() >= torch.tensor(2.857, **F64)).all()
    ArmCovarianceKernel(estimate)


def test_arms_never_seen_together_and_constant_arms_count_as_independent():
    nan = float("nan")
    table = torch.tensor([[1.0, nan, 5.0], [2.0, nan, 5.0], [nan, 3.0, 5.0], [nan, 5.0, 5.0]], **F64)
    expected = torch.tensor([0.5, 2.0, 0.0], **F64).diag()
    torch.testing.assert_close(estimate_covariance(table), expected)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("combine", "formula"),
    [("product", lambda k, h: k * h), ("sum", lambda k, h: k + h), ("additive", lambda k, h: k + h + k * h)],
)
@pytest.mark.parametrize("drifts", [False, True])
def test_combinations_are_what_they_say(combine, formula, drifts) -> None:
    X, Z = uniform(7, 5), uniform(4, 5, seed=1)
    arm, context = RBFKernel().double(), MaternKernel(nu=1.5, active_dims=[1]).double()
    kernel, times = arm_context_kernel(arm, context, 2, 3, combine), uniform(7, 1, seed=2)
    k, h = arm(X[:, :2], Z[:, :2]).to_dense(), context(X[:, 2:], Z[:, 2:]).to_dense()
    assert h.std() > 0.01  # the context kernel reads its own second column, the fourth of all
    expected = formula(k, h)
    if drifts:
        over_time = ExponentialForgettingKernel(0.1)
        expected = expected * over_time(times, times[:4]).to_dense()
        kernel = SpatioTemporalKernel(kernel, over_time)
        X, Z = torch.cat([X, times], -1), torch.cat([Z, times[:4]], -1)
    torch.testing.assert_close(kernel(X, Z).to_dense(), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(kernel(X, diag=True), kernel(X).to_dense().diagonal(), rtol=1e-12, atol=1e-12)
    assert arm.active_dims is None  # copies were made


def mixed_model(arms, periods, rewards, K, variance, noise):
    """Mean and covariance of f over all arms given y = f(x) + b_p + e, by the joint normal law of (f, b)."""
    N, M = len(K), int(periods.max()) + 1
    prior = torch.block_diag(K, variance * torch.eye(M).double())
    design = torch.zeros(len(arms), N + M).double()
    design[torch.arange(len(arms)), arms] = 1
    design[torch.arange(len(arms)), N + periods] = 1
    gain = (
        prior @ design.T @ torch.linalg.inv(design @ prior @ design.T + noise * torch.eye(len(arms)).double())
    )
    return gain @ rewards, prior - gain @ design @ prior


@pytest.mark.parametrize("control", [False, True])
def test_offsets_of_periods_are_a_linear_mixed_model(control) -> None:
    N, M, T, variance, noise = 5, 6, 40, 4.0, 0.1
    root = uniform(N, N, seed=3)
    K = root @ root.T
    if control:  # its own reward is known to be 0
        K[0] = K[:, 0] = 0
    draw = torch.Generator().manual_seed(4)
    arms, periods = torch.randint(N, (T,), generator=draw), torch.arange(T) * M // T
    rewards = torch.randn(T, generator=draw, dtype=torch.float64) + 10.0 * periods
    kernel = arm_context_kernel(ArmCovarianceKernel(K), PeriodKernel(variance), 1, 1, "sum")
    model = OnlineGP(kernel, noise, input_dim=2)
    for arm, period, reward in zip(arms, periods, rewards, strict=True):
        model.observe(torch.stack([arm, period]).double().unsqueeze(0), reward.reshape(1, 1))
    mean, covariance = mixed_model(arms, periods, rewards, K, variance, noise)
    every = torch.cartesian_prod(torch.arange(N), torch.arange(M)).double()  # arm x period
    posterior = model.posterior(every)
    b = mean[N:].expand(N, M)
    expected = (mean[:N].unsqueeze(-1) + b).flatten()
    torch.testing.assert_close(posterior.mean.squeeze(-1), expected, rtol=1e-9, atol=1e-9)
    pick = torch.zeros(N * M, N + M).double()
    pick[torch.arange(N * M), every[:, 0].long()] = 1
    pick[torch.arange(N * M), N + every[:, 1].long()] = 1
    torch.testing.assert_close(
        posterior.distribution.covariance_matrix, pick @ covariance @ pick.T, rtol=1e-8, atol=1e-9
    )
