"""IPS estimates: unbiased up to the ridge, variance within Lemma 4.3, shapes."""

import torch

from bandits_torch.theory.optimal_design import (
    estimated_gaps,
    features_of_covariance,
    fractional_gain,
    optimal_design,
    propensity_matrix,
)


def setup(num_arms: int = 15) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(num_arms, 2, generator=generator, dtype=torch.float64)
    phi = features_of_covariance(torch.exp(-torch.cdist(x, x).square() / 0.5))
    r = phi @ torch.randn(phi.shape[1], generator=generator, dtype=torch.float64)
    return phi, 0.8 * r / r.abs().max(), optimal_design(phi, 1e-4).probabilities


def test_estimates_are_unbiased_up_to_the_known_bias_of_the_ridge() -> None:
    phi, r, P = setup()
    M = propensity_matrix(phi, P, 1e-4)
    mean = M @ (P * r)  # E R^ = sum_a P(a) M[., a] r(a)
    theta = torch.linalg.lstsq(phi, r.unsqueeze(-1)).solution
    S = phi.T @ torch.diag(P) @ phi + 1e-4 * torch.eye(phi.shape[1], dtype=torch.float64)
    bias = -1e-4 * (phi @ torch.linalg.solve(S, theta)).squeeze(-1)
    torch.testing.assert_close(mean, r + bias, rtol=0, atol=1e-8)
    assert bias.abs().max() < 0.05


def test_monte_carlo_agrees_with_the_mean_and_stays_within_lemma_4_3() -> None:
    phi, r, P = setup()
    generator, n = torch.Generator().manual_seed(0), 200_000
    arm = torch.multinomial(P, n, replacement=True, generator=generator)
    noise = 0.1 * (2 * torch.rand(n, generator=generator, dtype=torch.float64) - 1)
    reward = r[arm] + noise
    M = propensity_matrix(phi, P, 1e-4)
    samples = M[:, arm] * reward
    average = samples.mean(-1)
    error = samples.std(-1) / n**0.5
    assert ((average - M @ (P * r)).abs() < 4.5 * error).all()
    leverage = M.diagonal()
    assert (samples.var(-1) <= leverage * 1.02).all()
    assert (leverage <= fractional_gain(phi, 1e-4) + 1e-6).all()


def test_gaps_are_zero_at_the_best_arm() -> None:
    assert estimated_gaps(torch.tensor([1.0, 3.0, 2.0])).tolist() == [2.0, 0.0, 1.0]
