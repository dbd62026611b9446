"""Functions that change: switches, drift, phase, peaks."""

import math

import pytest
import torch

from bandits_torch import make
from bandits_torch.problems import DriftingCosine, MovingPeaks, SwitchingFunctions, TVGPDraws, options_of
from bandits_torch.problems.drifting import _move
from bandits_torch.problems.simulated import covariance, covariance_root, norm_on_arms
from bandits_torch.recipes import build


@pytest.mark.parametrize("change", ["fresh", "flip"])
@pytest.mark.parametrize(
    ("switches", "steps"), [((0.3,), [300]), ((0.15, 0.5), [150, 500]), ((7,), [7]), ((), [])]
)
def test_functions_change_at_the_switches_only(change, switches, steps):
    problem = SwitchingFunctions(horizon=1000, switches=switches, change=change, replicates=2)
    path = torch.stack([problem.expected_rewards(t) for t in range(1, 1001)])
    changed = (path.diff(dim=0) != 0).any(-1).any(-1).nonzero().squeeze(-1) + 2
    assert changed.tolist() == steps
    variation = path.diff(dim=0).abs().amax(-1).sum(0)
    known = torch.as_tensor(problem.knowledge.variation_budget, dtype=torch.float64)
    torch.testing.assert_close(known.expand(2), variation)


def test_pieces_are_scaled_to_largest_reward_0_8() -> None:
    problem = SwitchingFunctions(horizon=100, replicates=3, switches=(0.2, 0.6))
    torch.testing.assert_close(problem.functions.abs().amax(-1), torch.full((3, 3), 0.8, dtype=torch.float64))


def test_flip_changes_the_sign() -> None:
    problem = SwitchingFunctions(horizon=100, change="flip", switches=(0.2, 0.6))
    first = problem.expected_rewards(1)
    assert torch.equal(problem.expected_rewards(30), -first)
    assert torch.equal(problem.expected_rewards(60), first)


def test_bound_of_the_switching_pieces_is_their_largest_rkhs_norm() -> None:
    problem = SwitchingFunctions(horizon=100, kernel="matern", nu=0.5, num_arms=20, replicates=2)
    K = covariance(problem.knowledge.kernel, problem.arms)
    norms = (problem.functions * torch.linalg.solve(K, problem.functions.mT.contiguous()).mT).sum(-1).sqrt()
    torch.testing.assert_close(problem.knowledge.rkhs_bound, norms.amax(0))


@pytest.mark.parametrize("change", ["fresh", "flip"])
def test_budget_of_the_switches_in_the_rkhs_norm_is_that_of_their_changes(change: str) -> None:
    problem = SwitchingFunctions(
        horizon=100, switches=(0.2, 0.6), change=change, kernel="matern", nu=0.5, num_arms=20, replicates=2
    )
    K = covariance(problem.knowledge.kernel, problem.arms)
    changes = problem.functions.diff(dim=0)
    norms = (changes * torch.linalg.solve(K, changes.mT.contiguous()).mT).sum(-1).sqrt()
    torch.testing.assert_close(problem.knowledge.rkhs_variation_budget, norms.sum(0))


def test_norm_on_nearly_dependent_arms_is_that_of_the_draw() -> None:
    """K has rank 17 of 100 to rounding: the norm of a draw A z is |z|, where a solve with K would give noise."""
    problem = SwitchingFunctions(horizon=10)
    root = covariance_root(covariance(problem.knowledge.kernel, problem.arms))
    z = torch.linspace(-1, 1, root.shape[1], dtype=torch.float64)
    assert root.shape[1] < 30
    torch.testing.assert_close(norm_on_arms(root, root @ z), z.norm())


@pytest.mark.parametrize("name", ["sphere-one-switch", "cosine"])
def test_windows_of_zhou_and_shroff_come_from_the_change_in_the_rkhs_norm(name: str) -> None:
    """gamma^{1/4} (T / P_T)^{1/2}: as many times shorter than under the largest changes of an arm as P_T says."""
    problem = make(name, horizon=2000)
    known = problem.knowledge
    windows = [
        build("sw_gp_ucb", problem, replicates=1, horizon=2000, **options).forgetting.window  # type: ignore[attr-defined]
        for options in ({}, {"rkhs_variation_budget": known.variation_budget})
    ]
    path = torch.stack([problem.expected_rewards(t)[0] for t in range(1, 2001)]).diff(dim=0)
    path = path[(path != 0).any(-1)]
    norms = (path * torch.linalg.solve(covariance(known.kernel, problem.arms), path.T).T).sum(-1).sqrt()
    longer = (float(norms.sum()) / known.variation_budget) ** 0.5  # type: ignore[operator]
    assert longer > 1.8
    assert windows[1] / windows[0] == pytest.approx(longer, rel=1 / windows[0])


def test_forgetting_rate_of_switches_is_that_of_switches_placed_at_random() -> None:
    assert SwitchingFunctions(horizon=1000).knowledge.forgetting_rate == pytest.approx(1 - 0.999**2)
    flips = SwitchingFunctions(horizon=1000, switches=(0.2, 0.6), change="flip")
    assert flips.knowledge.forgetting_rate == pytest.approx(1 - 0.996**2)
    assert SwitchingFunctions(horizon=1000, switches=()).knowledge.forgetting_rate == 0


def test_tv_gp_blocks_equal_the_recursion_step_by_step() -> None:
    from bandits_torch.problems.simulated import covariance_root, gp_draws, problem_streams

    problem = TVGPDraws(num_arms=6, kernel="matern", seed=3, replicates=2, forgetting_rate=0.05)
    root = covariance_root(covariance(problem.knowledge.kernel, problem.arms))
    streams = problem_streams(3, 2, 0)
    f = gp_draws(root, streams.normal(6))
    for step in range(1, 257):
        if step % 128 == 1:
            innovations = gp_draws(root, streams.normal(128, 6))
        f = 0.95**0.5 * f + 0.05**0.5 * innovations[:, (step - 1) % 128]
        torch.testing.assert_close(problem.expected_rewards(step), f, rtol=1e-12, atol=1e-12)


def test_tv_gp_memory_does_not_grow() -> None:
    problem = TVGPDraws(num_arms=4)
    for step in range(1, 3000, 50):
        problem.expected_rewards(step)
        assert len(problem._path._blocks) <= 2


def test_tv_gp_bound_covers_the_norms() -> None:
    problem = TVGPDraws(kernel="matern", nu=0.5, num_arms=10, replicates=20, horizon=500)
    K = covariance(problem.knowledge.kernel, problem.arms)
    path = torch.stack([problem.expected_rewards(t) for t in range(1, 501)])
    norms = (path * torch.linalg.solve(K, path.mT.contiguous()).mT).sum(-1).sqrt()
    failed = (norms > problem.knowledge.rkhs_bound).any(0).double().mean()
    assert failed <= 0.1


def test_phase_follows_the_papers_schedule() -> None:
    problem = DriftingCosine(horizon=10_000, num_arms=10)
    schedule = {1: 0, 1000: 0, 2000: 0.5, 3000: 1, 3500: 1, 4000: 1, 5000: 1.5, 6000: 2, 10_000: 2}
    for step, share in schedule.items():
        assert problem.phase(step) == pytest.approx(share * math.pi)
    assert DriftingCosine(horizon=100, num_arms=10).phase(20) == pytest.approx(0.5 * math.pi)


@pytest.mark.parametrize(("layout", "dim"), [("sphere", 10), ("uniform", 2)])
def test_rewards_are_the_cosine_of_the_formula(layout: str, dim: int) -> None:
    problem = DriftingCosine(horizon=1000, layout=layout, dim=dim, replicates=2)
    torch.testing.assert_close(problem.theta.norm(dim=-1), torch.ones(2, dtype=torch.float64))
    for step in (1, 150, 333, 500, 900, 150):
        slow = 0.8 * torch.cos(3 * problem.theta @ problem.arms.T + problem.phase(step))
        torch.testing.assert_close(problem.expected_rewards(step), slow)


def test_variation_of_the_cosine_is_the_sum_over_its_steps() -> None:
    problem = DriftingCosine(horizon=1000, num_arms=20, replicates=2)
    path = torch.stack([problem.expected_rewards(t) for t in range(1, 1001)])
    torch.testing.assert_close(problem.knowledge.variation_budget, path.diff(dim=0).abs().amax(-1).sum(0))
    inverse = torch.linalg.inv(covariance(problem.knowledge.kernel, problem.arms))
    norms = ((path.diff(dim=0) @ inverse) * path.diff(dim=0)).sum(-1).clamp_min(0).sqrt()
    torch.testing.assert_close(problem.knowledge.rkhs_variation_budget, norms.sum(0), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("noise_scale", "ridge"), [(0.1, 0.01), (1e-4, 1e-6), (0.0, 1e-6)])
def test_cosine_norm_is_the_largest_over_the_phases(noise_scale: float, ridge: float) -> None:
    """Of a fit to within the noise, or to within a thousandth where there is less."""
    problem = DriftingCosine(horizon=1000, num_arms=30, dim=3, replicates=2, noise_scale=noise_scale)
    K = covariance(problem.knowledge.kernel, problem.arms) + ridge * torch.eye(30, dtype=torch.float64)
    phases = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64).reshape(-1, 1, 1)
    waves = 0.8 * torch.cos(3 * problem.theta @ problem.arms.T + phases)
    alpha = torch.linalg.solve(K, waves.mT.contiguous()).mT
    norms = (alpha * (waves - ridge * alpha)).sum(-1).sqrt().amax(0)
    torch.testing.assert_close(problem.knowledge.rkhs_bound, norms, rtol=1e-4, atol=0)


def test_cosine_kernel_is_the_average_covariance_to_second_order() -> None:
    problem = DriftingCosine(horizon=1000, num_arms=30, dim=3, replicates=4000, layout="uniform")
    K = covariance(problem.knowledge.kernel, problem.arms)
    differences = problem.arms.unsqueeze(1) - problem.arms
    near = differences.norm(dim=-1) < 0.3
    averaged = 0.32 * torch.cos(3 * differences[near] @ problem.theta.T).mean(-1)
    assert (averaged - K[near]).abs().max() < 0.015


def test_peaks_move_every_period_only() -> None:
    problem = MovingPeaks(horizon=100, period=30, replicates=2)
    path = torch.stack([problem.expected_rewards(t) for t in range(1, 101)])
    changed = (path.diff(dim=0) != 0).any(-1).any(-1).nonzero().squeeze(-1) + 2
    assert changed.tolist() == [31, 61, 91]
    torch.testing.assert_close(problem.knowledge.variation_budget, path.diff(dim=0).abs().amax(-1).sum(0))
    K, changes = covariance(problem.knowledge.kernel, problem.arms), path.diff(dim=0)
    alpha = torch.linalg.solve(K + 0.0025 * torch.eye(len(K)).double(), changes.mT.contiguous()).mT
    norms = ((alpha @ K) * alpha).sum(-1).clamp_min(0).sqrt()
    torch.testing.assert_close(problem.knowledge.rkhs_variation_budget, norms.sum(0))


def test_landscape_is_the_highest_cone() -> None:
    problem = MovingPeaks(horizon=1, num_arms=4, num_peaks=3)
    for arm, reward in zip(problem.arms.tolist(), problem.expected_rewards(1)[0].tolist(), strict=True):
        cones = [h - w * math.dist(arm, centre) for h, w, *centre in problem._peaks[0, 0].tolist()]
        assert reward == pytest.approx(max(cones))


def test_peaks_take_steps_of_the_given_severity_within_their_limits() -> None:
    problem = MovingPeaks(horizon=20_000, period=10, num_arms=4, replicates=1)
    peaks = problem._peaks[:, 0]  # (changes + 1, peaks, height | width | centre)
    for column, (low, high) in enumerate([(0.3, 0.7), (1, 12), (0, 1), (0, 1)]):
        assert peaks[..., column].min() >= low
        assert peaks[..., column].max() <= high
    steps = peaks.diff(dim=0)
    inside = ((peaks[:-1, :, 2:] > 0.02) & (peaks[:-1, :, 2:] < 0.98)).all(-1)
    lengths = steps[..., 2:].norm(dim=-1)[inside]
    torch.testing.assert_close(lengths, torch.full_like(lengths, 0.01))
    middle = (peaks[:-1, :, 1] > 5) & (peaks[:-1, :, 1] < 8)
    assert steps[..., 1][middle].std() == pytest.approx(1.0, rel=4 / (2 * middle.sum().item()) ** 0.5)
    assert steps[..., 2].abs().max() <= 0.01 + 1e-12


def test_peaks_bounce_off_their_limits() -> None:
    peaks = torch.tensor([[[0.69, 1.5, 0.995, 0.5]]], dtype=torch.float64)
    normals = torch.tensor([[[1.0, -1.0, 1.0, 0.0]]], dtype=torch.float64)
    severities = torch.tensor([0.05, 2.0], dtype=torch.float64)
    moved = _move(peaks, normals, 0.01, severities)
    torch.testing.assert_close(moved, torch.tensor([[[0.66, 2.5, 0.995, 0.5]]], dtype=torch.float64))


def test_settings_known_of_moving_peaks_fit_other_landscapes() -> None:
    problem = MovingPeaks(horizon=1, replicates=300, seed=9)
    landscapes = problem.expected_rewards(1)
    known = problem.knowledge
    assert landscapes.mean().item() == pytest.approx(known.prior_mean, abs=0.05)
    variance = known.kernel(problem.arms).to_dense().diagonal().mean().item()
    assert landscapes.var().item() == pytest.approx(variance, rel=0.15)


def test_sphere_environments_are_those_of_the_paper() -> None:
    one, two = make("sphere-one-switch", replicates=2), make("sphere-two-switches", replicates=2)
    assert (one.switches, two.switches) == ([3000], [1500, 5000])
    assert one.arms.shape == (100, 10)
    torch.testing.assert_close(one.arms.norm(dim=-1), torch.ones(100, dtype=torch.float64))
    assert torch.equal(one.expected_rewards(3000), -one.expected_rewards(2999))
    fresh = make("sphere-one-switch", change="fresh")
    assert not torch.equal(fresh.expected_rewards(3000), -fresh.expected_rewards(2999))
    assert options_of("sphere-two-switches")["switches"] == (0.15, 0.5)
    assert options_of("sphere-two-switches")["dim"] == 10


def test_stationary_cosine_stays() -> None:
    problem = make("cosine", stationary=True, horizon=500)
    assert torch.equal(problem.expected_rewards(1), problem.expected_rewards(500))
    assert problem.knowledge.variation_budget == 0.0
