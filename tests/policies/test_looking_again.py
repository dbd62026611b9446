"""An arm that becomes best while nobody plays it is found, and no arm goes unexamined for too long."""

import math

import pytest
import torch

from bandits_torch import recipes
from bandits_torch.models import CandidatePrior, arm_gp_over_priors
from bandits_torch.models.arms.arm_members import ArmMembers
from bandits_torch.models.arms.low_rank_members import LowRankMembers
from bandits_torch.policies.averaging import ModelAveraging
from bandits_torch.policies.looking_again import LookingAgain
from bandits_torch.policies.policy import Observation, Pending
from tests.reference import plain_looking


def members(covariances, build=ArmMembers):
    count = len(covariances)
    return build(
        covariances.shape[1],
        covariances,
        torch.arange(count),
        torch.ones(count).double(),
        torch.zeros(count).double(),
        replicates=2,
    )


def roots(seed, rank):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(3, 7, rank, generator=g).double()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("build", [ArmMembers, LowRankMembers])
def test_clocks_and_deadlines_are_those_of_the_words(build, seed):
    B = roots(seed, 2)
    given = B if build is LowRankMembers else B @ B.mT
    looks = LookingAgain(3.0, members(given, build))
    g = torch.Generator().manual_seed(seed)
    played = torch.randint(0, 3, (30, 2), generator=g)
    weights = torch.rand(30, 2, 3, generator=g).double()
    weights = weights / weights.sum(-1, keepdim=True)
    for arm, weight in zip(played, weights, strict=True):
        looks.examine(arm, weight)
    mean = torch.randn(2, 7, generator=g).double()
    index = torch.zeros(2, 7).double()
    for t in (2.0, 30.0, 400.0):
        first = looks.first(index, mean, math.sqrt(t), None)
        for s in range(2):
            expected = plain_looking.clocks(
                played[:, s].tolist(), weights[:, s].tolist(), (B @ B.mT).tolist()
            )
            assert looks.unseen[s].tolist() == expected
            arm = plain_looking.due(expected, mean[s].tolist(), 3.0, t)
            assert (arm is None and not first[s].any()) or int(first[s].argmax()) == arm
    assert looks.longest.tolist() == looks.unseen.max(-1).values.tolist()


def test_a_level_that_all_arms_share_examines_none_of_them():
    shared = torch.eye(7).double().unsqueeze(0) + 100.0
    looks = LookingAgain(3.0, members(shared))
    looks.examine(torch.tensor([0, 1]), torch.ones(2, 1).double())
    assert looks.unseen.sum(-1).tolist() == [6.0, 6.0]


def play(policy, rewards, horizon, available=None):
    """Arms (T, S) and the longest that any was unexamined at each step."""
    played, longest = [], []
    g = torch.Generator().manual_seed(5)
    for t in range(1, horizon + 1):
        choice = policy.choose(float(t), None if available is None else available(t))
        noise = 500.0 * torch.randn(len(choice.arm), generator=g).double()
        policy.learn(Observation(float(t), choice.arm, rewards(t)[choice.arm] + noise, choice.why))
        played.append(choice.arm)
        longest.append(float(policy.trace()["longest_unseen"].max()))
    return torch.stack(played), longest


def riser(t):
    """Eight unrelated arms; at step 150 the last, a mediocre one, becomes best."""
    still = [13_000.0, 11_000.0, 9_000.0, 8_500.0, 11_500.0, 9_500.0, 10_500.0]
    return torch.tensor([*still, 16_000.0 if t > 150 else 10_000.0]).double()


def told(how):
    if how == "the history":
        g = torch.Generator().manual_seed(3)
        return {"history": riser(1) + 500.0 * torch.randn(200, 8, generator=g).double()}
    if how == "a kernel":
        return {"kernel": 4e6 * torch.eye(8).double(), "noise_variance": 250_000.0, "prior_mean": 10_000.0}
    return {}


@pytest.mark.parametrize("how", ["nothing", "a kernel", "the history"])
def test_an_arm_that_becomes_best_unseen_is_found_in_every_replicate(how):
    played, _ = play(recipes.auto(8, replicates=10, **told(how)), riser, 550)
    assert (played[:150] == 7).sum() < 150  # it had been left
    assert (played[450:] == 7).double().mean(0).min() > 0.8  # 300 steps after it rose


def test_without_looking_again_it_is_not():
    policy = recipes.auto(8, replicates=4, look_again=0, history=told("the history")["history"])
    assert "longest_unseen" not in policy.trace()
    for t in range(1, 500):
        choice = policy.choose(float(t))
        policy.learn(Observation(float(t), choice.arm, riser(t)[choice.arm], choice.why))
        assert t <= 150 or not (choice.arm == 7).any()


@pytest.mark.parametrize("every", [4.0, 11.0])
def test_no_arm_goes_unexamined_for_longer_than_promised(every):
    _, longest = play(recipes.auto(8, replicates=3, look_again=every), riser, 700)
    for t, unseen in enumerate(longest, 1):
        assert unseen <= 2 * every * math.sqrt(t) + 8
    assert max(longest) > every  # so there was something to keep


def test_an_arm_that_returns_is_due_and_one_that_is_away_is_not_played():
    def available(t):
        return torch.tensor([True] * 7 + [t <= 20 or t > 400])

    played, _ = play(recipes.auto(8, replicates=3), riser, 440, available)
    assert not (played[20:400] == 7).any()
    assert (played[400:] == 7).any(0).all()


def test_a_pending_pull_examines_and_an_answer_that_is_given_up_does_not():
    policy = recipes.auto(8, replicates=2)
    play(policy, riser, 30)
    policy.looks.unseen = torch.where(torch.arange(8) >= 6, 1e6, policy.looks.unseen)
    before = policy.looks.unseen.clone()
    with policy.expecting(31.0) as expect:
        first = policy.choose(31.0).arm
        expect(Pending(31.0, first))
        second = policy.choose(31.0).arm
    for s in range(2):
        assert {int(first[s]), int(second[s])} == {6, 7}
    assert torch.equal(policy.looks.unseen, before)


def test_what_it_cannot_do_is_refused_by_name():
    with pytest.raises(ValueError, match="look_again"):
        recipes.auto(8, look_again=-1.0)
    priors = [CandidatePrior(torch.eye(4).double(), 0.0, 0.0, 0.1)]
    model = arm_gp_over_priors(4, priors, 0.1, replicates=1)
    with pytest.raises(ValueError, match="look_again"):
        ModelAveraging(model, look_again=11.0)


@pytest.mark.parametrize(("shared", "every"), [(0.0, 11.0), (0.6, 11.0), (0.8, 22.0)])
def test_where_a_kernel_is_told_that_relates_arms_it_looks_half_as_often(shared, every):
    kernel = (1 - shared) * torch.eye(5).double() + shared
    assert recipes.auto(5, kernel=kernel, noise_variance=0.1).looks.every == every
    assert recipes.auto(5, kernel=kernel, noise_variance=0.1, look_again=3.0).looks.every == 3.0
    assert recipes.auto(5).looks.every == 11.0
