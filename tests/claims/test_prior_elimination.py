"""PE-GP-UCB keeps the true prior with probability 1 - delta; as printed it would not."""

import math

import pytest
import torch

from bandits_torch import recipes
from bandits_torch.models import CandidatePrior, arm_gp_over_priors
from bandits_torch.policies import Observation, Policy, PriorElimination
from bandits_torch.theory import PriorEliminationFiniteWidth
from tests.reference.simulate_coverage import draws_of
from tests.reference.simulate_elimination import rejected

RUNS, STEPS, DELTA, NOISE_SCALE, ARMS = 1000, 200, 0.05, 0.1, 30
X = torch.linspace(0, 1, ARMS, dtype=torch.float64)
K = torch.exp(-((X[:, None] - X) ** 2) / (2 * 0.1**2))


def play(priors: list[CandidatePrior], xi: str) -> PriorElimination:
    """RUNS runs of STEPS steps on draws of the prior of mean 0 and covariance K."""
    model = arm_gp_over_priors(X.unsqueeze(-1), priors, NOISE_SCALE**2, replicates=RUNS, form="covariance")
    width = PriorEliminationFiniteWidth(ARMS, STEPS, DELTA)
    policy = PriorElimination(model, width, delta=DELTA, xi=xi)
    play_on_draws(policy, STEPS)
    return policy


def play_on_draws(policy: Policy, steps: int) -> None:
    f = draws_of(K, torch.Generator().manual_seed(11), policy.replicates)
    generator = torch.Generator().manual_seed(5)
    for step in range(1, steps + 1):
        choice = policy.choose(step)
        noise = NOISE_SCALE * torch.randn(len(f), generator=generator, dtype=torch.float64)
        reward = f.gather(1, choice.arm.unsqueeze(1)).squeeze(1) + noise
        policy.learn(Observation(step, choice.arm, reward, choice.why))


@pytest.mark.parametrize("xi", ["two-sided", "printed"])
def test_alone_in_the_set_the_true_prior_is_refuted_in_no_more_than_delta_of_1000_runs(xi) -> None:
    policy = play([CandidatePrior(K)], xi)
    assert policy.trace()["all_refuted"].double().mean() <= DELTA


def test_among_wrong_ones_the_true_prior_is_dropped_in_no_more_than_delta_of_1000_runs() -> None:
    rougher = torch.exp(-(X[:, None] - X).abs() / 0.02)
    sure_of_more = [CandidatePrior(0.01 * K, 2.0), CandidatePrior(0.01 * rougher, 2.0)]
    policy = play([CandidatePrior(K), *sure_of_more], "two-sided")
    false = ~policy.surviving[:, 0] | policy.trace()["all_refuted"]
    assert false.double().mean() <= DELTA
    assert (~policy.surviving[:, 1:]).double().mean() > 0.5  # and the wrong ones are found out


def test_printed_sigma_of_after_the_observation_rejects_the_true_prior_in_most_runs() -> None:
    """Why the policy uses sigma_{i-1}: the printed rule breaks its own theorem."""
    setting = {"steps": STEPS, "runs": 200, "delta": DELTA}
    printed = rejected(K, NOISE_SCALE, sigma_after=True, **setting)
    corrected = rejected(K, NOISE_SCALE, sigma_after=False, **setting)
    assert printed.double().mean() > 0.5
    assert corrected.double().mean() <= DELTA


def test_the_simulated_test_is_the_policys() -> None:
    """The reference above fires where the policy's threshold is crossed: one prior, the same rewards."""
    policy = play([CandidatePrior(K)], "two-sided")
    errors, bounds = policy._errors.squeeze(-1), policy._bounds.squeeze(-1)
    assert bool((policy._plays == STEPS).all())
    xi = 2 * NOISE_SCALE**2 * math.log(2 * math.pi**2 * STEPS**2 / (3 * DELTA))
    crossed = errors.abs() > math.sqrt(xi * STEPS) + bounds
    assert not bool((crossed & ~policy.trace()["all_refuted"]).any())


@pytest.mark.parametrize(("width", "keeps"), [(None, True), (0.0, False)])
def test_regret_balancing_drops_the_true_prior_in_no_more_than_delta_of_the_runs(width, keeps) -> None:
    """With the width of the theorem; without one the same test drops it, since what it explored cost reward."""
    priors = [CandidatePrior(K), CandidatePrior(0.01 * K, 0.5)]
    policy = recipes.regret_balancing(
        X.unsqueeze(-1), priors, NOISE_SCALE**2, horizon=100, replicates=300, delta=DELTA, width=width
    )
    play_on_draws(policy, 100)
    dropped = float((~policy.surviving[:, 0]).double().mean())
    assert (dropped <= DELTA) == keeps, dropped
