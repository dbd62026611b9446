"""Rewards in units of their own spread: every recipe learns them rightly, or the pair is refused with the reason."""

import math

import pytest
import torch

from bandits_torch import AskTell, Domain, recipes
from bandits_torch.checkpoint import described
from bandits_torch.models import OutcomeConstraint
from bandits_torch.policies import LatentRewards, Observation
from bandits_torch.policies.wrapping import CentredPolicy, DoublingTrick, StandardisedPolicy, WrappingPolicy
from tests.reference import all_recipes
from tests.reference.kernels import rbf

ARMS = torch.linspace(0, 1, 9).double().unsqueeze(-1)
KERNEL = rbf(0.3)
KNOWN = (ARMS, KERNEL, 0.05)
LOW = {"least_reward": -1.0, "forgetting_rate": 0.1}
WARMTH = OutcomeConstraint("warmth", high=1.0)

REFUSED = {  # why not, by recipe
    "opkb": "turn",
    "ada_opkb": "turn",
    "opnn": "turn",
    "ada_opnn": "turn",
    "master_gp_ucb": "turn",
    "safe_gp_ucb": "limits of the reward",
    "safe_opt": "limits of the reward",
    "log_odds_ucb": "reward_range",
    "auto": "by itself",
}


def played(policy, problem, steps, offset=0.0, scale=1.0):
    live, arms = AskTell(policy, standardise=True), []
    generator = torch.Generator().manual_seed(4)
    for step in range(1, steps + 1):
        question = live.ask(problem.time(step))
        arms.append(question.arm.tolist())
        mean = problem.expected_rewards(step).expand(problem.replicates, -1)
        noise = 0.1 * torch.randn(problem.replicates, generator=generator, dtype=torch.float64)
        reward = mean.gather(-1, question.arm.unsqueeze(-1)).squeeze(-1) + noise
        assert live.tell(question.id, offset + scale * reward)
    return arms


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_recipe_is_played_alike_in_any_unit_or_refused_with_the_reason(name):
    policy, problem = all_recipes.build(name, 2, 40)
    if name in REFUSED:
        with pytest.raises(ValueError, match=f"policy must be .*{REFUSED[name]}"):
            AskTell(policy, standardise=True)
        return
    plain = played(policy, problem, 40)
    again = played(all_recipes.build(name, 2, 40)[0], problem, 40, offset=2.0**12, scale=2.0**9)
    assert plain == again
    assert len({str(arm) for arm in plain}) > 1


def test_mean_rewards_are_in_the_unit_of_rewards():
    live, totals = AskTell(recipes.ucb1(3), standardise=True), torch.zeros(2, 3).double()
    for step in range(30):
        question = live.ask(float(step))
        reward = 500.0 + 20 * int(question.arm) + 7 * math.sin(step)
        live.tell(question.id, reward)
        totals[:, int(question.arm)] += torch.tensor([1.0, reward])
    torch.testing.assert_close(live.policy.mean_rewards()[0], totals[1] / totals[0])


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(recipes.safe_gp_ucb(*KNOWN, **LOW), id="arms"),
        pytest.param(
            recipes.safe_gp_ucb(
                Domain(torch.tensor([[0.0], [1.0]]).double()), KERNEL, 0.05, **LOW, search={"raw_samples": 16}
            ),
            id="points",
        ),
        pytest.param(CentredPolicy(recipes.safe_opt(*KNOWN, **LOW), 0.5), id="centred"),
        pytest.param(DoublingTrick(lambda T: recipes.opkb(*KNOWN, horizon=T)), id="phases"),
        pytest.param(recipes.opkb(*KNOWN, horizon=50, prior_mean=3.0), id="opkb with a prior mean"),
        pytest.param(CentredPolicy(recipes.auto(ARMS), 0.5), id="auto inside"),
        pytest.param(StandardisedPolicy(recipes.gp_ucb(*KNOWN)), id="twice"),
        pytest.param(LatentRewards(recipes.gp_ucb(*KNOWN), "binary"), id="0 and 1"),
        pytest.param(recipes.ucb1(ARMS, reward_range=(0.0, 10.0)), id="range told"),
        pytest.param(recipes.discounted_ts(ARMS, horizon=50, likelihood="bernoulli"), id="bernoulli"),
    ],
)
def test_what_is_told_the_unit_or_learns_it_is_refused_however_it_is_wrapped(policy):
    with pytest.raises(ValueError, match="policy must be one that can learn its rewards again"):
        AskTell(policy, standardise=True)


def test_outcomes_are_learned_in_their_own_unit_while_rewards_are_standardised():
    policy = recipes.safe_gp_ucb(
        *KNOWN, constraints=[WARMTH], safe_arms=torch.arange(9) == 0, forgetting_rate=0.0
    )
    live = AskTell(policy, standardise=True)
    for step in range(8):
        question = live.ask(float(step))
        live.tell(question.id, 1000.0 * step, outcomes={"warmth": 0.1 * step})
    assert float(live.unit[1]) > 1000.0
    told = policy.outcomes["warmth"].train_targets
    torch.testing.assert_close(told, 0.1 * torch.arange(8.0).double().unsqueeze(0))
    assert float(policy.model.train_targets.abs().max()) < 10.0


class Stubborn(WrappingPolicy):
    def __init__(self, policy, nth):
        self._around(policy)
        self.left = nth

    def learn(self, observation):
        self.left -= 1
        if self.left == 0:
            raise ValueError("not this one")
        self.policy.learn(observation)


@pytest.mark.parametrize(("build", "has"), [(recipes.ucb1, False), (recipes.auto, True)])
def test_a_policy_around_another_has_marginals_if_that_one_has(build, has):
    assert hasattr(Stubborn(build(3), 0), "marginals") is has


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_tell_that_raises_changes_nothing(nth):
    """Rewards 1, 2, 4 and 8 change the unit, and with each of them all are learned again."""
    stubborn = Stubborn(recipes.sw_gp_ucb(*KNOWN, horizon=50), nth)
    live = AskTell(stubborn, standardise=True)
    raised = 0
    for step in range(9):
        question = live.ask(float(step))
        before = described(live.state_dict())
        try:
            live.tell(question.id, 3.0 * step)
        except ValueError:
            raised += 1
            assert described(live.state_dict()) == before
            assert live.tell(question.id, 3.0 * step)
    assert raised == 1
    twin = AskTell(recipes.sw_gp_ucb(*KNOWN, horizon=50), standardise=True)
    for step in range(9):
        twin.tell(twin.ask(float(step)).id, 3.0 * step)
    assert torch.equal(twin.unit[1], live.unit[1])
    assert described(twin.policy.policy.state_dict()) == described(stubborn.policy.state_dict())


@pytest.mark.parametrize("reward", [1.7e308, -1e200, math.nan, -math.inf])
@pytest.mark.parametrize("first", [0, 1, 2, 4, 6])
def test_a_reward_that_no_unit_follows_from_is_refused_at_once_with_nothing_changed(first, reward):
    policy = StandardisedPolicy(recipes.gp_ucb(*KNOWN))
    live = AskTell(policy)
    for step in range(first):
        live.tell(live.ask(float(step)).id, math.sin(step))
    before = described(policy.state_dict())
    with pytest.raises(ValueError, match="reward must be"):
        policy.learn(Observation(10.0, torch.tensor([0]), torch.tensor([reward]).double()))
    assert described(policy.state_dict()) == before
    for step in range(11, 90):
        live.tell(live.ask(float(step)).id, math.sin(step))


def test_an_observation_of_another_shape_is_refused_first():
    policy = StandardisedPolicy(recipes.gp_ucb(*KNOWN))
    with pytest.raises(ValueError, match="reward must"):
        policy.learn(Observation(0.0, torch.tensor([0]), torch.zeros(2).double(), {}))
