"""Expected and probable improvement over the largest reward, against a dense model and the formulas."""

import pytest
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from gpytorch.kernels import RBFKernel
from torch.distributions import Normal

from bandits_torch import ArmGP, AskTell, Domain, recipes
from bandits_torch.arm_context import ArmContext
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import SketchedGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.policies import (
    ContextualPolicy,
    IndexPolicy,
    Observation,
    PeriodicRestart,
    RewardImprovementPolicy,
)
from bandits_torch.policies.choices.contexts import pairs_of
from bandits_torch.policies.index import Improvement
from tests.reference.dense_priors import DensePrior

NOISE, PRIOR_MEAN, MARGIN = 0.3, 0.7, 0.2
torch.manual_seed(0)
FEATURES = torch.rand(9, 2, dtype=torch.float64)
DISTANCE = torch.cdist(FEATURES, FEATURES)
COVARIANCE = torch.exp(-0.5 * (DISTANCE / 0.4) ** 2)


def posterior(arms, rewards):
    prior = DensePrior(COVARIANCE, torch.tensor(PRIOR_MEAN, dtype=torch.float64), 0.0, NOISE)
    mean, variance, _ = prior.fit(arms, rewards, [0.0] * len(arms), 0.0)
    return mean, variance.sqrt()


def score(kind, mean, deviation, best):
    """Expected improvement (Mockus 1975), or the probability of one by the margin (Kushner 1964)."""
    normal = Normal(torch.zeros(()).double(), torch.ones(()).double())
    if kind == "gp_pi":
        return normal.cdf((mean - best - MARGIN) / deviation)
    u = (mean - best) / deviation
    return deviation * (u * normal.cdf(u) + normal.log_prob(u).exp())


def improvement(kind, incumbent, held, mask):
    """Of all arms, -1 where the mask is False, over the best that can be played: rewards (arm, reward), or means."""
    mean, deviation = posterior(*zip(*held, strict=True)) if held else posterior([], [])
    rewards = [reward for arm, reward in held if mask[arm] and incumbent == "reward"]
    best = max(rewards) if rewards else mean[mask].max()
    return score(kind, mean, deviation, best).masked_fill(~mask, -1.0)


def built(kind, incumbent="reward"):
    options = {"incumbent": incumbent} | ({"margin": MARGIN} if kind == "gp_pi" else {})
    return getattr(recipes, kind)(FEATURES, COVARIANCE, NOISE, prior_mean=PRIOR_MEAN, replicates=2, **options)


@pytest.mark.parametrize("incumbent", ["mean", "reward"])
@pytest.mark.parametrize("kind", ["gp_ei", "gp_pi"])
def test_every_choice_is_the_formulas_under_any_mask_whoever_has_learned(kind, incumbent) -> None:
    """Rewards come to all replicates or to the first alone, now and then with a noise variance of their own."""
    policy, held = built(kind, incumbent), ([], [])
    generator = torch.Generator().manual_seed(3)
    for step in range(30):
        mask = torch.rand(2, 9, generator=generator) < (0.3 if step % 2 else 2.0)
        mask[:, step % 9] = True
        choice = policy.choose(float(step), mask if step % 2 else None)
        expected = torch.stack([improvement(kind, incumbent, held[k], mask[k]) for k in range(2)])
        assert torch.equal(expected.gather(-1, choice.arm.unsqueeze(-1)).squeeze(-1), expected.amax(-1))
        torch.testing.assert_close(choice.why["index"].exp(), expected.amax(-1), rtol=1e-6, atol=1e-12)
        arm = choice.arm if step % 3 else torch.randint(9, (2,), generator=generator)
        reward = torch.randn(2, generator=generator).double() + torch.tensor([0.0, 4.0]) + 0.1 * arm
        own = torch.full((2,), NOISE).double() if step % 5 == 3 else None
        where = torch.tensor([True, step % 4 != 2])
        if where.all():
            policy.learn(Observation(float(step), arm, reward, noise_variance=own))
        else:
            policy.learn_where(Observation(float(step), arm, reward), where)
        for k in range(1 + int(where[1])):
            held[k].append((int(arm[k]), float(reward[k])))


def test_a_retired_arm_is_no_incumbent_and_one_that_comes_later_has_no_reward_yet() -> None:
    live = AskTell(recipes.gp_ei(FEATURES, RBFKernel().double(), NOISE, incumbent="reward"))
    for arm, reward in ((0, 9.0), (1, -1.0)):
        live.policy.learn(Observation(0.0, torch.tensor([arm]), torch.tensor([reward]).double()))
    live.retire_arms([0])
    live.add_arms(1, features=torch.tensor([[5.0, 5.0]]).double())
    live.ask(1.0)
    mask = torch.arange(10) > 0
    mean, variance = live.policy.marginals(1.0)
    expected = score("gp_ei", mean, variance.sqrt(), -1.0)
    index = live.policy.choose(1.0, mask).why["index"]
    assert float(index.exp()) == pytest.approx(float(expected[:, mask].max()), rel=1e-6)


def test_over_a_domain_the_point_has_more_improvement_than_any_of_a_grid() -> None:
    kernel = RBFKernel()
    kernel.lengthscale = 0.3
    domain = Domain(torch.tensor([[0.0], [1.0]]).double())
    policy = recipes.gp_ei(domain, kernel.double(), 0.1, incumbent="reward")
    for step, x in enumerate((0.1, 0.5, 0.9)):
        point = torch.tensor([[x]], dtype=torch.float64)
        policy.learn(Observation(float(step), point, torch.tensor([2.0 * x - x**2]).double()))
    chosen = policy.choose(3.0)
    mean, variance = policy.marginals(3.0, torch.linspace(0, 1, 401).double().unsqueeze(-1))
    grid = score("gp_ei", mean, variance.sqrt(), 0.99).log()
    assert float(chosen.why["index"]) >= float(grid.max()) - 1e-9


def test_a_restart_forgets_the_reward_that_ended_the_interval_and_no_other() -> None:
    model = ArmGP(3, torch.eye(3).double(), NOISE, batch_shape=(1,))
    acquisition = Improvement(LogExpectedImprovement, 0.0)
    policy = RewardImprovementPolicy(model, acquisition, forgetting=PeriodicRestart(2))
    for step in range(3):
        policy.learn(Observation(float(step), torch.tensor([step]), torch.tensor([5.0 + step]).double()))
    assert policy.largest.tolist() == [[-torch.inf, -torch.inf, 7.0]]


@pytest.mark.parametrize("model", [SketchedGP, WeightedGP])
def test_any_model_over_arms_has_a_largest_mean(model) -> None:
    policy = IndexPolicy(model(FEATURES, RBFKernel(), NOISE), Improvement(LogExpectedImprovement, 0.0))
    policy.learn(Observation(1.0, torch.tensor([4]), torch.tensor([3.0]).double()))
    assert policy.choose(2.0, torch.arange(9) == 2).arm.tolist() == [2]


DRIFT = SpatioTemporalKernel(RBFKernel().double(), ExponentialForgettingKernel(0.3))


@pytest.mark.parametrize("incumbent", ["mean", "reward"])
@pytest.mark.parametrize("kind", ["gp_ei", "gp_pi"])
def test_under_drift_means_are_compared_at_the_time_of_the_choice(kind, incumbent) -> None:
    """Of arms, and of the points of a domain that were observed. Without a reward, the incumbent is a mean, too."""
    options = {"margin": MARGIN} if kind == "gp_pi" else {}
    learned, time, mask = torch.tensor([3]), 6.0, torch.arange(9) != 3
    policy = getattr(recipes, kind)(FEATURES, DRIFT, NOISE, incumbent=incumbent, **options)
    policy.learn(Observation(0.0, learned, torch.tensor([4.0]).double()))
    mean, variance = policy.marginals(time)
    expected = score(kind, mean, variance.sqrt(), mean[:, mask].max())[:, mask].max()
    assert float(policy.choose(time, mask).why["index"].exp()) == pytest.approx(float(expected), rel=1e-6)
    if incumbent == "reward":
        return
    domain = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
    policy = getattr(recipes, kind)(domain, DRIFT, NOISE, search={"raw_samples": 64}, **options)
    for arm, reward in ((3, 4.0), (5, 1.0)):
        policy.learn(Observation(0.0, FEATURES[arm : arm + 1], torch.tensor([reward]).double()))
    mean, variance = policy.marginals(time, torch.cat([FEATURES[[3, 5]], policy.choose(time).arm]))
    best = score(kind, mean, variance.sqrt(), mean[:, :2].max())[:, -1]
    assert float(policy.choose(time).why["index"].exp()) == pytest.approx(float(best), rel=1e-3)


def test_under_contexts_the_incumbent_is_the_best_arm_in_the_present_one() -> None:
    contexts = torch.tensor([[0.0], [1.0]]).double()
    model = ArmGP(pairs_of(FEATURES, contexts), RBFKernel(), NOISE, batch_shape=(1,))
    acquisition = Improvement(LogExpectedImprovement, 0.0)
    policy = ContextualPolicy(model, acquisition, choices=FEATURES, context_dim=1, contexts=contexts)
    first, second = ArmContext(contexts[0]), ArmContext(contexts[1], available=torch.arange(9) != 4)
    policy.learn(
        Observation(0.0, torch.tensor([4]), torch.tensor([3.0]).double(), policy.choose(0.0, first).why)
    )
    mean, variance = policy.marginals(1.0, second)
    expected = score("gp_ei", mean, variance.sqrt(), mean[:, second.available].max())[
        :, second.available
    ].max()
    assert float(policy.choose(1.0, second).why["index"].exp()) == pytest.approx(float(expected), rel=1e-6)
