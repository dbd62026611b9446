"""Theorem 1 of Calandriello et al. (2019): sigma^2 / alpha <= sigma~^2 <= alpha sigma^2 at all arms and steps."""

import torch

from bandits_torch.models import ArmGP, LeverageSampling, SketchedGP
from bandits_torch.problems.simulated import make_kernel
from tests.reference.simulate_coverage import draws_of

ARMS, STEPS, DELTA, LAMBDA = 60, 40, 0.1, 0.05


def share_of_runs_within(sampling: LeverageSampling, runs: int) -> float:
    """In what share of UCB runs, each driven by its own sketched posterior, the theorem's claim holds throughout."""
    generator = torch.Generator().manual_seed(11)
    arms = torch.rand(ARMS, 1, generator=generator, dtype=torch.float64)
    kernel = make_kernel("se", 0.2)
    f = draws_of(kernel(arms).to_dense(), generator, runs)
    sketched = SketchedGP(arms, kernel, LAMBDA, batch_shape=(runs,), sampling=sampling)
    exact = ArmGP(arms, kernel, LAMBDA, batch_shape=(runs,))
    holds = torch.ones(runs, dtype=torch.bool)
    factor = sampling.alpha * (1 + 1e-6)
    for _ in range(STEPS):
        mean, variance = sketched.marginals()
        arm = (mean + 2 * variance.sqrt()).argmax(-1)
        noise = LAMBDA**0.5 * torch.randn(runs, generator=generator, dtype=torch.float64)
        reward = f.gather(-1, arm.unsqueeze(-1)).squeeze(-1) + noise
        sketched.observe_arms(arm, reward)
        exact.observe_arms(arm, reward)
        ratio = sketched.marginals()[1] / exact.marginals()[1]
        holds &= ((ratio <= factor) & (ratio >= 1 / factor)).all(-1)
    return float(holds.double().mean())


def test_theorem_1_holds_under_the_theory_preset(full):
    assert share_of_runs_within(LeverageSampling.theory(STEPS, DELTA), 200 if full else 50) >= 1 - DELTA


def test_too_little_oversampling_breaks_the_claim():
    assert share_of_runs_within(LeverageSampling(1.0, dictionary="redrawn"), runs=40) < 0.5
