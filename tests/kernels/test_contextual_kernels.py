"""Kernels over arm x context against their formulas; offsets of periods against a linear mixed model."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    PeriodKernel,
    SpatioTemporalKernel,
    arm_context_kernel,
)
from bandits_torch.models import OnlineGP


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
