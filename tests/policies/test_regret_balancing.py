"""Regret balancing follows the least played survivor and drops by reward, as Algorithm 2 is printed."""

from types import SimpleNamespace

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import Domain, recipes
from bandits_torch.models import CandidatePrior
from bandits_torch.policies import Observation, RegretBalancing
from tests.reference.dense_gp import dense_posterior
from tests.reference.dense_priors import DensePrior, DenseRegretBalancing
from tests.reference.kernels import rbf

N, S, NOISE = 6, 3, 0.04
ARMS = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)
SLOPE = 0.01 * torch.arange(N, dtype=torch.float64)
KERNEL = rbf(0.2).requires_grad_(False)
MEANS = [SLOPE, SLOPE + 3 * torch.eye(N).double()[2], SLOPE.flip(0)]
PRIORS = [CandidatePrior(KERNEL, mean, forgetting_rate=r) for mean, r in zip(MEANS, (0, 0.1, 0), strict=True)]


def balancing(replicates=S, width=1.0, priors=PRIORS, **options) -> RegretBalancing:
    return recipes.regret_balancing(
        ARMS, priors, NOISE, horizon=100, replicates=replicates, width=width, **options
    )


def mask(step: int) -> torch.Tensor:
    available = torch.ones(S, N, dtype=torch.bool)
    if step % 2:
        available[torch.arange(S), (step + torch.arange(S)) % N] = False
    return available


def test_equals_the_algorithm_word_for_word_with_every_prior_refitted() -> None:
    policy, K = balancing(), KERNEL(ARMS).to_dense()
    dense = [DensePrior(K, p.mean, p.forgetting_rate, NOISE) for p in PRIORS]
    slow = [DenseRegretBalancing(dense, lambda t: 1.0) for _ in range(S)]
    truth = torch.randn(S, N, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    dropped = 0
    for step in range(1, 61):
        available = mask(step)
        choice = policy.choose(step, available)
        reward = truth[torch.arange(S), choice.arm]
        policy.learn(Observation(step, choice.arm, reward, choice.why))
        for s, run in enumerate(slow):
            arm, followed = run.step(step, available[s], lambda arm, s=s: float(truth[s, arm]))
            assert (int(choice.arm[s]), int(policy.trace()["prior"][s])) == (arm, followed)
            assert set(policy.surviving[s].nonzero().flatten().tolist()) == run.alive
        dropped += int((~policy.surviving).sum())
    assert dropped > 0


def test_a_late_reward_under_drift_is_learned_with_the_bound_of_its_choice() -> None:
    policy, alike = balancing(1), balancing(1)
    choices = [policy.choose(float(t)) for t in (1, 2)]
    for one, order in ((policy, (1, 0)), (alike, (0, 1))):
        for k in order:
            why = choices[k].why
            one.learn(Observation(k + 1.0, choices[k].arm, torch.ones(1).double(), why))
    assert torch.equal(policy._bounds, alike._bounds)
    torch.testing.assert_close(policy.model.marginals(3.0), alike.model.marginals(3.0))


def over_points(replicates=1, **options) -> RegretBalancing:
    believed = ((0.15, 0.0), (0.5, -4.0), (1.0, 0.0))
    priors = [CandidatePrior(lengthscale(scale), mean) for scale, mean in believed]
    options = {"horizon": 60, "width": 2.0, "seed": 2} | options
    return recipes.regret_balancing(LINE, priors, NOISE, replicates=replicates, **options)


def lengthscale(value: float) -> RBFKernel:
    return rbf(value).requires_grad_(False)


LINE = Domain(torch.tensor([[-1.0], [1.0]], dtype=torch.float64))
GRID = torch.linspace(-1, 1, 401).double().unsqueeze(-1)


def test_over_points_it_follows_the_least_played_and_drops_by_reward() -> None:
    policy = over_points()
    slow = DenseRegretBalancing([SimpleNamespace(noise_variance=NOISE)] * 3, lambda t: 2.0)
    X, y = torch.zeros(0, 1).double(), torch.zeros(0).double()
    noise = torch.Generator().manual_seed(5)
    for t in range(1, 41):
        followed, choice = slow.followed(), policy.choose(t)
        kernel, level = lengthscale([0.15, 0.5, 1.0][followed]), [0.0, -4.0, 0.0][followed]
        mean, covariance, *_ = dense_posterior(kernel, X, y, NOISE, torch.cat([choice.arm, GRID]), level)
        sigma = covariance.diagonal().clamp_min(0).sqrt()
        index = mean + 2 * sigma
        assert int(choice.why["prior"]) == followed
        assert index[0] >= index.max() - 1e-3
        assert float(choice.why["bound"]) == pytest.approx(2 * float(sigma[0]), abs=1e-6)
        reward = -3 * (choice.arm[:, 0] - 0.4) ** 2 + NOISE**0.5 * torch.randn(1, generator=noise).double()
        reward = reward - 6.0 * (followed == 2)  # prior 2 is made to look bad
        policy.learn(Observation(t, choice.arm, reward, choice.why))
        slow.learn(t, None, float(reward), 2 * float(sigma[0]))
        X, y = torch.cat([X, choice.arm]), torch.cat([y, reward])
        assert set(policy.surviving[0].nonzero().flatten().tolist()) == slow.alive, t
    assert 0 < len(slow.alive) < 3


@pytest.mark.parametrize("build", [over_points, balancing])
def test_pending_questions_count_as_plays_with_bounds_of_what_was_learned(build) -> None:
    policy, alike = (build(2, width=2.0) for _ in range(2))
    for one in (policy, alike):
        for t in range(1, 8):
            choice = one.choose(t)
            one.learn(Observation(t, choice.arm, choice.arm.double().reshape(2).sin(), choice.why))
    plays, both = policy._plays.clone(), torch.arange(2)
    for choice in policy.choose_many(8, 5):
        prior = choice.why["prior"]
        assert torch.equal(prior, plays.masked_fill(~policy.surviving, torch.inf).argmin(-1))
        plays[both, prior] += 1
        expected = 2.0 * alike.choices.predict(choice.arm, 8)[1][both, prior]
        torch.testing.assert_close(choice.why["bound"], expected)
    assert torch.equal(policy._plays, alike._plays)


def test_over_points_the_theorems_width_is_each_priors_own() -> None:
    policy = over_points(width=None)
    widths = policy.width.at(3, policy.model).flatten().tolist()
    assert widths[0] > widths[1] > widths[2]
