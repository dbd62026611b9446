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


def improvement(kind, arms, rewards):
    return score(kind, *posterior(arms, rewards), max(rewards) if rewards else PRIOR_MEAN)


def built(kind, incumbent="reward"):
    options = {"incumbent": incumbent} | ({"margin": MARGIN} if kind == "gp_pi" else {})
    return getattr(recipes, kind)(FEATURES, COVARIANCE, NOISE, prior_mean=PRIOR_MEAN, replicates=2, **options)


@pytest.mark.parametrize("kind", ["gp_ei", "gp_pi"])
def test_every_choice_is_the_formulas_with_the_largest_reward_of_each_replicate(kind) -> None:
    policy, held = built(kind), ([], [])
    generator = torch.Generator().manual_seed(3)
    for step in range(25):
        arm = policy.choose(float(step)).arm
        for k in range(2):
            assert improvement(kind, *zip(*held[k], strict=True) if held[k] else ([], [])).argmax() == arm[k]
        reward = torch.randn(2, generator=generator).double() + torch.tensor([0.0, 4.0]) + 0.1 * arm
        policy.learn(Observation(float(step), arm, reward))
        for k in range(2):
            held[k].append((int(arm[k]), float(reward[k])))


def test_a_reward_with_a_noise_variance_of_its_own_is_an_incumbent_too() -> None:
    policy, rewards = built("gp_ei"), torch.tensor([9.0, -1.0]).double()
    own = {"noise_variance": torch.tensor([NOISE, NOISE]).double()}
    policy.learn(Observation(0.0, torch.tensor([2, 2]), rewards, **own))
    assert policy.state_dict()["largest"][:, 2].equal(rewards)
    for k in range(2):
        best = improvement("gp_ei", [2], [float(rewards[k])]).max()
        assert float(policy.choose(1.0).why["index"][k].exp()) == pytest.approx(float(best))


@pytest.mark.parametrize("kind", ["gp_ei", "gp_pi"])
def test_a_reward_learned_in_some_replicates_is_the_incumbent_of_these_alone(kind) -> None:
    policy, where = built(kind), torch.tensor([True, False])
    policy.learn_where(Observation(0.0, torch.tensor([4, 4]), torch.tensor([3.0, 3.0]).double()), where)
    index = policy.choose(1.0).why["index"]
    assert float(index[1]) == pytest.approx(float(built(kind).choose(1.0).why["index"][1]))
    learned = built(kind)
    learned.learn(Observation(0.0, torch.tensor([4, 4]), torch.tensor([3.0, 3.0]).double()))
    assert float(index[0]) == pytest.approx(float(learned.choose(1.0).why["index"][0]))


@pytest.mark.parametrize("kind", ["gp_ei", "gp_pi"])
def test_rewards_of_arms_that_are_not_available_are_no_incumbents(kind) -> None:
    policy, others = built(kind), torch.arange(9) != 2
    for arm, reward in ((2, 9.0), (5, 1.0)):
        learned = torch.tensor([arm, arm]), torch.tensor([reward, reward]).double()
        policy.learn(Observation(float(arm), *learned))
    for available, best in ((None, 9.0), (others, 1.0), (others & (torch.arange(9) != 5), None)):
        mean, deviation = posterior([2, 5], [9.0, 1.0])
        mask = torch.ones(9, dtype=torch.bool) if available is None else available
        best = float(mean[mask].max()) if best is None else best
        choice = policy.choose(9.0, available)
        expected = score(kind, mean, deviation, best)
        assert choice.arm.tolist() == [int(expected.masked_fill(~mask, -1.0).argmax())] * 2
        assert float(choice.why["index"][0].exp()) == pytest.approx(float(expected[mask].max()), rel=1e-6)


@pytest.mark.parametrize("kind", ["gp_ei", "gp_pi"])
def test_improvement_over_the_largest_mean_is_over_that_of_what_can_be_played(kind) -> None:
    policy = built(kind, "mean")
    for step in range(7):
        arm = policy.choose(float(step)).arm
        policy.learn(Observation(float(step), arm, torch.randn(2).double()))
    mean, variance = policy.model.marginals()
    for mask in (torch.ones(2, 9, dtype=torch.bool), mean < mean.amax(-1, keepdim=True)):
        best = mean.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
        expected = score(kind, mean, variance.sqrt(), best).masked_fill(~mask, -1.0).argmax(-1)
        assert torch.equal(policy.choose(8.0, mask).arm, expected)
    assert torch.equal(policy.choose(8.0).arm, policy.choose(8.0, torch.ones(9, dtype=torch.bool)).arm)


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
