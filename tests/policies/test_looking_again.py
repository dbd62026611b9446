"""An arm that becomes best while nobody plays it is found, and no arm goes unexamined for too long."""

import copy
import math

import pytest
import torch

from bandits_torch import AskTell, Domain, recipes
from bandits_torch.models import CandidatePrior, arm_gp_over_priors
from bandits_torch.models.arms.members import ArmMembers, LowRankMembers
from bandits_torch.policies import LookingAgain, LookingAtPoints, ModelAveraging, Observation, Pending
from bandits_torch.policies.looking_again import LookOutcome
from bandits_torch.recipes.averaging import auto_over_points
from tests.reference import plain_looking

RATES = [0.0, 0.01, 0.3]


def members(covariances, build=ArmMembers):
    which = torch.arange(len(covariances))
    noise, rates = torch.ones(len(which)).double(), torch.tensor(RATES[: len(which)]).double()
    return build(covariances.shape[1], covariances, which, noise, rates, replicates=2)


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
    for t in (2, 30, 400):
        first = looks.first(index, mean, weight, looks.tau(t), None)
        assert looks.may_be_due([looks.tau(t)]) or not first.any()
        for s in range(2):
            expected = plain_looking.clocks(
                played[:, s].tolist(), weights[:, s].tolist(), (B @ B.mT).tolist()
            )
            assert looks.unseen[s].tolist() == expected
            arm = plain_looking.due(expected, mean[s].tolist(), weight[s].tolist(), RATES, 3.0, t)
            assert (arm is None and not first[s].any()) or int(first[s].argmax()) == arm
    assert looks.longest.tolist() == looks.unseen.max(-1).values.tolist()


def play(policy, rewards, horizon, available=None):
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


KERNEL = {"kernel": 4e6 * torch.eye(8).double(), "noise_variance": 250_000.0, "prior_mean": 10_000.0}


@pytest.mark.parametrize("told", [{}, KERNEL], ids=["nothing told", "a kernel told"])
def test_an_arm_that_becomes_best_unseen_is_found_in_every_replicate(told):
    played, _ = play(recipes.auto(8, replicates=10, **told), riser, 550)
    assert (played[:150] == 7).sum() < 150  # it had been left
    assert (played[450:] == 7).double().mean(0).min() > 0.8  # 300 steps after it rose


def comes_and_goes(t):
    """Each of eight arms is away for a fifth of the time, two at once."""
    return (torch.arange(8) + t // 25) % 5 != 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("available", "at_once", "late"),
    [(None, 1, 0), (comes_and_goes, 1, 0), (None, 3, 0), (None, 1, 6), (comes_and_goes, 3, 6)],
    ids=["every arm", "masks", "three questions at once", "late rewards", "all of it"],
)
def test_no_settled_arm_that_is_available_goes_unexamined_for_longer_than_promised(available, at_once, late):
    live = AskTell(recipes.auto(8, replicates=3, look_again=4.0))
    looks, open_questions, waits, longest = live.policy.looks, [], torch.zeros(3, 8), 0.0
    g = torch.Generator().manual_seed(5)
    for t in range(1, 351):
        mask = torch.ones(8, dtype=torch.bool) if available is None else available(t)
        if t % at_once == 1 or at_once == 1:
            open_questions += [live.ask(float(t), mask) for _ in range(at_once)]
        while open_questions and open_questions[0].time <= t - late:
            question = open_questions.pop(0)
            noise = 500.0 * torch.randn(3, generator=g).double()
            live.tell(question.id, riser(question.time)[question.arm] + noise)
            due = looks.settled(live.policy.sharing.weights) & (looks.unseen > 2 * looks.tau(t))
            waits = torch.where(due & mask, waits + 1, 0.0)
            longest = max(longest, float(looks.unseen[:, mask].max()))
            # Eight can be due at once, and what is open was chosen before.
            assert waits.max() <= 8 + at_once + late
    assert longest > looks.tau(0)  # so there was something to keep


def test_an_arm_that_is_away_holds_up_no_choice_and_is_due_when_it_returns():
    """The last arm becomes best while it is away; until it returns, the first is."""

    def available(t):
        return torch.tensor([True] * 7 + [t <= 20 or t > 240])

    played, _ = play(recipes.auto(8, replicates=3), riser, 260, available)
    assert ((played[140:240] == 0).double().mean(0) > 0.8).all()
    assert (played[240:] == 7).any(0).all()


def test_at_most_so_many_arms_as_asked_are_looked_at_within_a_deadline():
    count, turn = 2_000, []
    model = members(torch.eye(7).double().unsqueeze(0))
    all_due, few = LookingAgain(5.0, model), LookingAgain(5.0, model, at_once=3)
    for t in range(count):
        assert all_due.tau(t) == 5.0 * math.sqrt(t + 300)
        assert few.tau(t) in (all_due.tau(t), math.inf)
        turn.append(math.isfinite(few.tau(t)))
    for t in range(0, count - 300, 50):
        assert 2 <= sum(turn[t : t + int(all_due.tau(t))]) <= 3
    few.unseen = few.unseen + 1e6
    index, weight = torch.rand(2, 7).double(), torch.ones(2, 1).double()
    for t in range(100):
        assert few.may_be_due([few.tau(t)]) == turn[t]
        first = few.first(index, index, weight, few.tau(t), None)
        assert torch.equal(first, index) != turn[t]


def test_what_it_cannot_do_is_refused_by_name():
    priors = [CandidatePrior(torch.eye(4).double(), 0.0, 0.0, 0.1)]
    model = arm_gp_over_priors(4, priors, 0.1, replicates=1)
    with pytest.raises(ValueError, match="look_again"):
        ModelAveraging(model, look_again=11.0)


@pytest.mark.parametrize(("shared", "every"), [(0.0, 7.0), (0.6, 7.0), (0.8, 14.0)])
def test_where_a_kernel_is_told_that_relates_arms_it_looks_less_often(shared, every):
    kernel = (1 - shared) * torch.eye(5).double() + shared
    kernel[4], kernel[:, 4] = 0.0, 0.0  # an arm whose rewards are known is related to none
    looks = recipes.auto(5, kernel=kernel, noise_variance=0.1).looks
    assert (looks.every, looks.at_once) == (every, 6 if every > 7 else 0)
    assert recipes.auto(5, kernel=kernel, noise_variance=0.1, look_again=3.0).looks.every == 3.0
    assert recipes.auto(5).looks.every == recipes.auto(30).looks.every == 7.0
    assert recipes.auto(120).looks.every == recipes.auto(20, contexts=6).policy.looks.every == 14.0
    assert recipes.auto(torch.rand(5, 2)).looks.every == 8.5
    assert recipes.auto(UNIT).looks.every == 7.0
    assert recipes.auto(UNIT, look_again=0).looks is None


def test_at_rest_looks_at_many_unrelated_arms_cost_no_more_than_learning_them():
    def regret(look_again):
        generator, total = torch.Generator().manual_seed(0), 0.0
        policy, mean = recipes.auto(120, look_again=look_again), torch.rand(120, generator=generator).double()
        for t in range(400):
            arm = policy.choose(float(t)).arm
            total += float(mean.max() - mean[arm])
            noise = 0.3 * torch.randn(1, generator=generator, dtype=torch.float64)
            policy.learn(Observation(float(t), arm, mean[arm] + noise))
        return total

    assert regret(None) < 2 * regret(0.0) < regret(7.0)


def hill(x, at, width=0.15):
    return (-(x - at).square().sum(-1) / (2 * width**2)).exp()


def rising(t, x):
    """A hill at a quarter of the range; after step 100 a higher one at 0.8, where nothing was."""
    return hill(x, 0.25) + (2 * hill(x, 0.8) if t > 100 else 0.0)


UNIT = Domain(torch.tensor([[0.0], [1.0]]).double())


def play_points(policy, horizon, available=lambda t: None, mean=rising):
    played, longest = [], []
    g = torch.Generator().manual_seed(5)
    for t in range(1, horizon + 1):
        x = policy.choose(float(t), available(t)).arm
        reward = 1e3 * (mean(t, x) + 0.05 * torch.randn(len(x), generator=g).double())
        policy.learn(Observation(float(t), x, reward))
        played.append(x)
        longest.append(float(policy.trace()["longest_unseen"].max()))
    return torch.stack(played), longest


def believe_nothing_changes(policy):
    """All weight on the members that never forget, so that every point is settled."""
    members = policy.members
    forgets = (members.forgetting_rate > 0) | members.timescale.isfinite()
    policy.sharing.log_weight = policy.sharing.log_weight.masked_fill(forgets, -100.0).log_softmax(-1)
    return policy.sharing.weights


def small(look_again=3.0):
    return auto_over_points(UNIT, replicates=2, capacity=30, refined=0, look_again=look_again)


def test_a_region_of_a_domain_that_rises_is_found_and_no_place_waits_for_longer_than_promised():
    policy = small()
    played, longest = play_points(policy, 240)
    assert ((played[:100] - 0.8).abs() < 0.2).double().mean() < 0.2  # it had been left
    assert ((played[210:] - 0.8).abs() < 0.2).double().mean(0).min() > 0.7
    for t, unseen in enumerate(longest, 1):
        assert unseen <= 2 * policy.looks.tau(t)  # fewer than eight balls cover the interval
    assert max(longest) > policy.looks.tau(1)  # so there was something to keep


def test_where_everything_moves_the_upper_bound_decides_what_is_played():
    def moving(t, x):
        return hill(x, 0.5 + 0.4 * math.sin(t / 5))

    policy = small(look_again=1.0)
    played, longest = play_points(policy, 80, mean=moving)
    assert max(longest) > policy.looks.tau(80)  # so a look would have been due
    after = played[policy.search.initial :]
    assert not (after == policy.looks.probes.squeeze(-1)).any()


@pytest.mark.parametrize("d", [1, 3])
def test_clocks_of_places_are_those_of_the_words(d):
    domain = Domain(torch.stack([torch.full((d,), -1.0), torch.full((d,), 3.0)]).double())
    members = recipes.auto(domain, replicates=2).members
    looks = LookingAtPoints(1.0, domain, members)
    g = torch.Generator().manual_seed(d)
    played, weights = -1 + 4 * torch.rand(90, 2, d, generator=g).double(), torch.rand(90, 2, 14, generator=g)
    never_forget = (members.forgetting_rate == 0) & members.timescale.isinf()
    weights = torch.where(never_forget, 4 * weights, weights)  # so that some points are settled
    weights = (weights / weights.sum(-1, keepdim=True)).double()
    played[30:] = -1 + 0.2 * (played[30:] + 1)  # in a corner, so that something is due
    outcomes = torch.rand(90, 4, 2, generator=g).double()  # reward, mean, noise and best
    outcomes[:, 2] *= 0.1
    outcomes[:, 3] += 0.3
    kernels = list(zip(members.forgetting_rate.tolist(), members.timescale.tolist(), strict=True))
    scales, probes = members.lengthscale.tolist(), ((looks.probes + 1) / 4).tolist()
    twins = [plain_looking.Places(probes, scales[s], kernels, 1.0) for s in range(2)]
    followed = unsettled = 0
    for t in range(90):
        if t >= 60:
            where, at = looks.due(domain, weights[t], t)
            played[t] = torch.where(where.unsqueeze(-1), at, played[t])
        for s, twin in enumerate(twins):
            clocks, since, at_once = twin.unseen, twin.since, twin.at_once
            assert (looks.unseen[s].tolist(), float(looks.since[s])) == (clocks, since)
            assert looks.at_once[s].nonzero().flatten().tolist() == sorted(at_once)
            if t >= 60:
                waiting = plain_looking.late(clocks, weights[t, s].tolist(), kernels, 1.0, t)
                due = at_once or (waiting if since >= math.sqrt(t + 300) / 8 else set())
                unsettled += sum(clock >= math.sqrt(t + 300) for clock in clocks) - len(waiting)
                assert bool(where[s]) == bool(due)
                if due:
                    first = max(sorted(due), key=lambda i: clocks[i])
                    assert at[s].tolist() == looks.probes[first].tolist()
            followed += len(at_once)
            twin.play(((played[t, s] + 1) / 4).tolist(), weights[t, s].tolist(), outcomes[t, :, s].tolist())
        assert looks.longest.tolist() == looks.unseen.max(-1).values.tolist()
        looked = looks.is_look(played[t], weights[t], t)
        looks.examine(played[t], weights[t], t, LookOutcome(looked, *outcomes[t]))
    assert followed > 10
    assert unsettled > 10


def test_a_look_that_meets_a_slope_is_followed_until_one_pays_more_than_the_best_point_known():
    domain = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
    policy = auto_over_points(domain, capacity=40, refined=0, look_again=3.0)
    looks, g = policy.looks, torch.Generator().manual_seed(0)

    def learn(t, x, reward):
        policy.learn(Observation(float(t), x, torch.tensor([reward]).double()))

    for t in range(1, 50):
        x = policy.choose(float(t)).arm
        hill = float((-((x - 0.2) / 0.15).square().sum() / 2).exp())
        learn(t, x, hill + 0.02 * float(torch.randn((), generator=g)))
    far = int((looks.probes - 0.9).norm(dim=-1).argmin())
    looks.unseen[0, far], looks.since[0] = 60, 60
    x = policy.choose(50.0).arm
    assert torch.equal(x[0], looks.probes[far])
    dull, slope = copy.deepcopy(policy), 0.6
    dull.learn(Observation(50.0, x, torch.tensor([0.03]).double()))
    assert not dull.looks.at_once.any()
    learn(50, x, slope)
    around = looks.probes[looks.at_once[0]]
    assert 1 <= len(around) <= 8
    assert (around - x).norm(dim=-1).max() < 0.5
    x = policy.choose(51.0).arm
    assert (around == x).all(-1).any()
    learn(51, x, 0.0)
    assert not looks.at_once[0][(looks.probes == x).all(-1)].any()  # examined
    x = policy.choose(52.0).arm
    assert (around == x).all(-1).any()
    learn(52, x, 1.8)
    assert not looks.at_once.any()


def test_at_most_eight_places_are_looked_at_within_a_deadline():
    domain = Domain(torch.tensor([[0.0] * 4, [1.0] * 4]).double())
    policy = recipes.auto(domain, look_again=2.0)
    x, looks, weights = torch.full((1, 4), 0.5).double(), [], believe_nothing_changes(policy)
    for t in range(400):
        due, there = policy.looks.due(domain, weights, t)
        looks.append(bool(due[0]))
        policy.looks.examine(torch.where(due.unsqueeze(-1), there, x), weights, t)
    for t in range(300):
        assert sum(looks[t : t + int(policy.looks.tau(t))]) <= 8
    assert sum(looks) > 30


def test_a_context_and_other_bounds_hold_back_what_they_leave_out():
    box = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
    policy = recipes.auto(box, replicates=2)
    looks, weights = policy.looks, believe_nothing_changes(policy)
    looks.unseen, looks.since = looks.unseen + 1e3, looks.since + 1e3
    left = Domain(torch.tensor([[0.0, 0.0], [0.4, 1.0]]).double())
    contexts = torch.tensor([0.1, 0.9]).double()
    for domain in (left, Domain(box.bounds, fixed_features={0: contexts})):
        due, at = looks.due(domain, weights, 50)
        assert due.all()
        assert domain.contains(at).all()
        assert torch.equal(at, domain.fix(at))
        index = looks.unseen.argmax(-1)
        assert index.tolist() == [0, 0]
    near = looks.probes[:, 0] < 0.5
    looks.unseen = torch.where(near, 0.0, looks.unseen)
    due, at = looks.due(Domain(box.bounds, fixed_features={0: contexts}), weights, 50)
    assert due.tolist() == [False, True]  # the first context examines nothing that is due


@pytest.mark.parametrize("over", ["arms", "points"])
def test_what_is_pending_examines_and_an_answer_that_is_given_up_does_not(over):
    policy = recipes.auto(8 if over == "arms" else UNIT, replicates=2)
    looks = policy.looks
    if over == "arms":
        play(policy, riser, 30)
        looks.unseen = torch.where(torch.arange(8) >= 6, 1e6, looks.unseen)
    else:
        play_points(policy, 6)
        believe_nothing_changes(policy)
        looks.unseen, looks.since = looks.unseen + 1e3, looks.since + 1e3
    before = looks.state_dict()
    with policy.expecting(31.0) as expect:
        first = policy.choose(31.0).arm
        expect(Pending(31.0, first))
        second = policy.choose(31.0).arm
    if over == "arms":
        assert [{*pair} for pair in zip(first.tolist(), second.tolist(), strict=True)] == [{6, 7}] * 2
    else:
        assert (looks.probes == first[0]).any()
        assert not (looks.probes == second[0]).any()  # one look in an eighth of the deadline
    assert all(torch.equal(before[name], value) for name, value in looks.state_dict().items())


def test_a_replicate_over_a_domain_that_is_reset_has_nothing_unseen():
    plain = small()
    play_points(plain, 90)
    plain.reset(torch.tensor([True, False]))
    assert (plain.looks.unseen.sum(-1) > 0).tolist() == [False, True]
