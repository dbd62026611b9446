"""Optimal designs and the problem OP: certificates, the lemmas that rest on them, agreement with a general solver."""

import sys

import pytest
import torch

from bandits_torch.theory.optimal_design import (
    estimated_gaps,
    exploration_problem,
    features_of_covariance,
    fractional_gain,
    optimal_design,
    optimal_exploration,
    propensity_matrix,
)
from tests.reference import simple_design


def covariance(num_arms: int, dim: int, lengthscale: float, seed: int = 0) -> torch.Tensor:
    x = torch.rand(num_arms, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.exp(-0.5 * torch.cdist(x, x).square() / lengthscale**2)


def uniform(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


RANDOM_PROBLEMS = [(100, 1, 0.2, 1e-4), (100, 2, 0.2, 1e-2), (100, 3, 1.0, 1e-2), (500, 2, 0.2, 1e-2)]


@pytest.mark.parametrize(("num_arms", "dim", "lengthscale", "ridge"), RANDOM_PROBLEMS)
def test_duality_gap_is_at_most_1e_8(num_arms: int, dim: int, lengthscale: float, ridge: float) -> None:
    phi, gaps = features_of_covariance(covariance(num_arms, dim, lengthscale)), uniform(num_arms)
    designs = [
        optimal_design(phi, ridge),
        optimal_design(phi, ridge, gaps < 0.3),
        exploration_problem(phi, gaps, ridge, 2 / 50),
        exploration_problem(phi, gaps, ridge, 2 / 5000),
    ]
    for design in designs:
        assert 0 <= design.duality_gap <= 1e-8
        assert design.probabilities.sum() == pytest.approx(1)
        assert design.probabilities.min() >= 0


@pytest.mark.parametrize("weight", [0.01, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_answer_agrees_with_a_general_convex_solver(weight: float, seed: int) -> None:
    phi, gaps = features_of_covariance(covariance(12, 2, 0.5, seed)), uniform(12, seed=seed + 5)
    for g, among in ((gaps, gaps < 2), (0 * gaps, gaps < 0.6)):
        design = exploration_problem(phi, g, 1e-2, weight, among, tolerance=1e-11)
        expected = simple_design.minimiser(phi.numpy(), g.numpy(), 1e-2, weight, among.numpy())
        ours, theirs = (
            simple_design.objective(phi.numpy(), g.numpy(), 1e-2, weight, P)
            for P in (design.probabilities.numpy(), expected)
        )
        assert ours <= theirs + 1e-10
        torch.testing.assert_close(design.probabilities, torch.from_numpy(expected), rtol=0, atol=2e-4)
        assert (design.probabilities[~among] == 0).all()
        slow = simple_design.leverages(phi.numpy(), 1e-2, design.probabilities.numpy())
        torch.testing.assert_close(design.leverages, torch.from_numpy(slow))


def test_methods_agree() -> None:
    phi, gaps = features_of_covariance(covariance(120, 2, 0.6)), uniform(120)
    for g, w, among in ((None, 1.0, None), (gaps, 0.05, None), (None, 1.0, gaps < 0.4)):
        exact = exploration_problem(phi, g, 1e-2, w, among, method="interior_point")
        other = exploration_problem(phi, g, 1e-2, w, among, method="active_set", tolerance=1e-6)
        assert other.duality_gap <= 1e-6
        torch.testing.assert_close(other.log_det, exact.log_det, rtol=1e-4, atol=1e-4)


def test_many_arms_are_solved_on_a_working_set() -> None:
    design = optimal_design(features_of_covariance(covariance(1200, 2, 0.8)), 1e-2)
    assert design.duality_gap <= 1e-8


def test_a_working_set_of_all_arms_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding errors of leverages of this size exceed the tolerance."""
    module, solved = sys.modules[optimal_design.__module__], []
    solve = module.interior_point
    monkeypatch.setattr(module, "interior_point", lambda *a: solved.append(a) or solve(*a))
    phi = torch.randn(40, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    design = exploration_problem(phi, uniform(40), 1e-6, 1e6, method="active_set")
    assert 1e-8 < design.duality_gap < 1e-3
    assert len(solved) == 1


@pytest.mark.parametrize("method", ["interior_point", "active_set"])
def test_batch_equals_its_members_alone(method: str) -> None:
    K = torch.stack([covariance(30, 2, 0.5, seed) for seed in range(3)])
    phi, gaps, w = features_of_covariance(K), uniform(3, 30), torch.tensor([0.02, 0.1, 0.5]).double()
    batch = exploration_problem(phi, gaps, 1e-2, w, gaps < 0.9, method=method)
    for k in range(3):
        alone = exploration_problem(phi[k], gaps[k], 1e-2, float(w[k]), gaps[k] < 0.9, method=method)
        assert batch.duality_gap[k] <= 1e-8
        torch.testing.assert_close(batch.log_det[k], alone.log_det, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("num_arms", "dim", "lengthscale", "ridge"), RANDOM_PROBLEMS[:3])
def test_leverages_of_the_design_are_at_most_gamma_on_its_arms(
    num_arms: int, dim: int, lengthscale: float, ridge: float
) -> None:
    phi = features_of_covariance(covariance(num_arms, dim, lengthscale))
    among = uniform(num_arms) < 0.5
    for mask in (None, among):
        design = optimal_design(phi, ridge, mask)
        inside = design.leverages if mask is None else design.leverages[mask]
        assert inside.max() <= fractional_gain(phi, ridge) + 1e-8


def test_leverage_bound_fails_outside_the_designs_arms() -> None:
    """The print of Lemma 4.3 says "for all x"; two orthogonal arms refute it."""
    phi = torch.eye(2, dtype=torch.float64)
    design = optimal_design(phi, 1e-2, torch.tensor([True, False]))
    assert design.leverages[1] == pytest.approx(100)
    assert fractional_gain(phi, 1e-2) < 10


@pytest.mark.parametrize("beta", [5.0, 50.0, 2000.0])
@pytest.mark.parametrize(("num_arms", "dim", "lengthscale", "ridge"), RANDOM_PROBLEMS[:3])
def test_lemma_4_4(num_arms: int, dim: int, lengthscale: float, ridge: float, beta: float) -> None:
    phi = features_of_covariance(covariance(num_arms, dim, lengthscale))
    gaps, alpha = uniform(num_arms, seed=3), 0.3
    gaps = gaps - gaps.min()
    gamma = fractional_gain(phi, ridge)
    Q = optimal_exploration(phi, gaps, ridge, beta, alpha, gamma)
    h = torch.from_numpy(simple_design.leverages(phi.numpy(), ridge, Q.numpy()))
    assert Q.sum() == pytest.approx(1)
    assert (Q * gaps).sum() <= (1 + alpha) * gamma / beta
    assert (h <= beta * gaps + 2 * gamma + 1e-6).all()
    assert (h <= beta**2 * gaps**2 / (2 * alpha * gamma) + 2 * gamma + 1e-6).all()


def test_members_of_a_batch_may_differ_in_covariance_ridge_beta_and_alpha() -> None:
    K = torch.stack([covariance(30, 2, scale) for scale in (0.2, 0.5, 1.0)])
    phi, gaps = features_of_covariance(K), uniform(3, 30)
    each = torch.tensor([[1e-3, 1e-2, 1e-1], [5.0, 20.0, 200.0], [0.2, 0.3, 0.4]], dtype=torch.float64)
    gamma = fractional_gain(phi, each[0])
    together = optimal_exploration(phi, gaps, *each, gamma, tolerance=1e-12)
    for k, own in enumerate(each.T.tolist()):
        assert gamma[k] == pytest.approx(float(fractional_gain(phi[k], own[0])), rel=1e-12)
        alone = optimal_exploration(phi[k], gaps[k], *own, gamma[k], tolerance=1e-12)
        torch.testing.assert_close(together[k], alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["ridge", "weight", "gaps", "among"])
def test_batches_that_do_not_fit_are_refused_by_name(name: str) -> None:
    phi = features_of_covariance(torch.stack([covariance(6, 1, 0.5)] * 2))
    wrong = {"gaps": uniform(3, 6), "among": torch.ones(3, 6, dtype=torch.bool)}.get(
        name, torch.ones(3).double()
    )
    given = {"gaps": None, "ridge": 0.1, "weight": 1.0, "among": None} | {name: wrong}
    with pytest.raises(ValueError, match=f"{name} must have a batch shape that broadcasts"):
        exploration_problem(phi, **given)


@pytest.mark.parametrize("method", ["interior_point", "active_set"])
def test_a_ridge_below_rounding_is_refused_by_name(method: str) -> None:
    with pytest.raises(ValueError, match=r"ridge / the features' largest square must be above 2\.2e-16, got"):
        optimal_design(1e3 * uniform(1, 40), 1e-12, method=method)


def test_gamma_of_independent_arms_is_known() -> None:
    """N orthonormal arms: P uniform and gamma = N ln(1 + T / (N sigma))."""
    expected = 5 * torch.log1p(torch.tensor(100 / 5, dtype=torch.float64))
    torch.testing.assert_close(fractional_gain(torch.eye(5, dtype=torch.float64), 1e-2), expected)


def test_equal_gram_matrices_give_the_same_design() -> None:
    K = covariance(20, 2, 0.7)
    square = torch.linalg.cholesky(K + 1e-13 * torch.eye(20, dtype=torch.float64))
    first, second = optimal_design(features_of_covariance(K), 1e-2), optimal_design(square, 1e-2)
    torch.testing.assert_close(first.log_det, second.log_det)
    torch.testing.assert_close(first.probabilities, second.probabilities, rtol=0, atol=1e-4)


def test_a_single_arm_gets_all() -> None:
    assert optimal_design(torch.ones(1, 1), 0.5).probabilities.tolist() == [1.0]
    only = optimal_design(torch.eye(3), 0.5, torch.tensor([False, True, False]))
    assert only.probabilities.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("scale", [1e6, 1e-6])
def test_whether_a_covariance_is_symmetric_does_not_depend_on_its_unit(scale: float) -> None:
    nearly = torch.tensor([[1.0, 0.5 + 1e-10], [0.5, 1.0]]).double()
    features_of_covariance(scale * nearly)
    with pytest.raises(ValueError, match="symmetric"):
        features_of_covariance(scale * (nearly + torch.tensor([[0.0, 0.1], [0.0, 0.0]])))


@pytest.mark.parametrize("method", ["interior_point", "active_set"])
def test_float32_is_solved_in_float64(method: str) -> None:
    phi = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    design, exact = (optimal_design(features, 1e-3, method=method) for features in (phi, phi.double()))
    for name in ("probabilities", "duality_gap", "leverages", "log_det"):
        assert torch.equal(getattr(design, name), getattr(exact, name).float())
    among = optimal_exploration(phi, uniform(30).float(), 1e-3, 5.0, 0.5, design.log_det)
    assert among.dtype == torch.float32
    assert among.sum() == pytest.approx(1)


def test_one_set_of_gaps_may_have_several_numbers_each() -> None:
    phi, gaps = features_of_covariance(covariance(8, 2, 0.5)), uniform(8)
    betas, alphas = torch.tensor([5.0, 20.0]).double(), torch.tensor([[0.5], [1.0], [2.0]]).double()
    together = optimal_exploration(phi, gaps, 1e-2, betas, alphas, 3.0)
    assert together.shape == (3, 2, 8)
    for i, alpha in enumerate(alphas[:, 0].tolist()):
        for j, beta in enumerate(betas.tolist()):
            alone = optimal_exploration(phi, gaps, 1e-2, beta, alpha, 3.0)
            torch.testing.assert_close(together[i, j], alone, rtol=0, atol=1e-6)


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
