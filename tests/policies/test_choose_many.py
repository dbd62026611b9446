"""Choices with others pending: every policy counts them, and is as before when they are made."""

import copy

import pytest
import torch
from torch.overrides import TorchFunctionMode

from bandits_torch import ArmGP, Domain, IndexPolicy, UpperConfidenceBound, recipes
from bandits_torch.checkpoint import described
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmMembers
from bandits_torch.policies import FixedShare, ModelAveraging, Observation, Pending
from bandits_torch.policies.classical import UCB1, EpsilonGreedy
from bandits_torch.theory import ConstantWidth, IGPWidth, RealisedGain
from tests.reference import all_recipes
from tests.reference.index_policies import ARMS, KERNEL, POLICIES, N, arm_gp, drifting

T = 40
DRAW = {"random", "gp_ts", "hp_gp_ts", "pe_gp_ts", "band_gp_ucb", "r_perp", "predictive_sampling", "exp3_s"}
DRAW |= {"opkb", "ada_opkb", "ada_opkb_calibrated", "opnn", "ada_opnn", "discounted_ts", "epsilon_greedy"}


def taught(policy, steps=6):
    for step in range(steps):
        choice = policy.choose(float(step))
        base = choice.arm.double() if policy.num_arms else choice.arm.double().sum(-1)
        policy.learn(Observation(float(step), choice.arm, torch.sin(step + base), choice.why))
    return policy


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe_is_as_before_and_repeated_calls_are_as_one(name):
    policy = taught(all_recipes.build(name, 2, T)[0])
    policy.choose(7.0)  # bbkb freezes its means
    kept, alike = described(policy.state_dict()), copy.deepcopy(policy)
    streams = [copy.deepcopy(one.state_dict()) for one in policy.random_streams()]
    together = policy.choose_many(7.0, 5)
    if name in DRAW:  # the numbers drawn are all that has changed
        for one, state in zip(policy.random_streams(), streams, strict=True):
            one.load_state_dict(state)
    assert described(policy.state_dict()) == kept
    pending = []
    for choice in together:
        one = alike.choose_many(7.0, 1, None, pending)[0]
        assert torch.equal(one.arm, choice.arm)
        pending.append(Pending(7.0, one.arm, one.why))
    again = {"bkb", "bbkb"}  # they draw dictionaries while they choose
    if name not in DRAW | again:
        torch.testing.assert_close(policy.choose(8.0).arm, alike.choose(8.0).arm)
    first = together[0]
    policy.learn(Observation(7.0, first.arm, first.arm.double() * 0, first.why))


@pytest.mark.parametrize("name", [*all_recipes.OVER_POINTS, "gp_ts", "auto"])
def test_every_recipe_over_points_asks_different_ones_and_is_as_before(name):
    policy = taught(all_recipes.build_over_points(name, 2, T)[0], 8)
    kept = described(policy.state_dict())
    together = torch.stack([choice.arm for choice in policy.choose_many(9.0, 3)])
    assert together.shape == (3, 2, 2)
    assert bool((together[0] != together[1]).any(-1).all())
    assert bool((together[1] != together[2]).any(-1).all())
    assert described(policy.state_dict()) == kept


def test_the_opening_over_points_is_that_of_one_at_a_time():
    one, many = (recipes.auto(Domain(torch.tensor([[0.0], [1.0]]).double()), seed=4) for _ in range(2))
    together = many.choose_many(0.0, 4)
    for step in range(4):
        choice = one.choose(float(step))
        assert torch.equal(choice.arm, together[step].arm)
        one.learn(Observation(float(step), choice.arm, torch.tensor([float(step)]).double(), choice.why))


@pytest.mark.parametrize("kernel", [KERNEL, drifting(KERNEL)])
def test_upper_confidence_bounds_are_of_the_mean_learned_and_the_variance_with_what_is_pending(kernel):
    width = IGPWidth(1.0, 0.3, 0.1, RealisedGain())
    policy = IndexPolicy(arm_gp((1,), kernel=kernel), UpperConfidenceBound, width=width)
    taught(policy)
    beta = float(width(7, policy.model))  # of six rewards learned, and of their gain
    dense = copy.deepcopy(policy.model)
    moment = 9.0 if policy.model.drifts else None
    mean = policy.model.marginals(moment)[0]
    chosen = []
    for choice in policy.choose_many(9.0, 6):
        index = mean + beta * dense.marginals(moment)[1].sqrt()
        assert int(choice.arm) == int(index.argmax())
        assert float(choice.why["index"]) == pytest.approx(float(index.max()))
        chosen.append(int(choice.arm))
        guess = dense.marginals(moment)[0][0, chosen[-1]]
        dense.observe_arms(torch.tensor([chosen[-1]]), guess.reshape(1), moment)
    assert len(set(chosen)) > 1


@pytest.mark.parametrize("name", ["thompson", "drift", "online"])
def test_thompson_sampling_draws_from_what_is_learned(name):
    policy = taught(POLICIES[name]())
    alike = copy.deepcopy(policy)
    together = [choice.arm for choice in policy.choose_many(9.0, 4)]
    assert torch.equal(torch.stack(together), torch.stack([alike.choose(9.0).arm for _ in range(4)]))
    assert described(policy.state_dict()) == described(alike.state_dict())


def drifting_bounds():
    model = arm_gp((1,), kernel=drifting(KERNEL))
    return taught(IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(2.0)))


def test_what_is_later_than_the_choice_counts_as_made_then():
    policy = drifting_bounds()
    arm = policy.choose(6.0).arm
    late, then = (policy.choose_many(6.0, 1, None, [Pending(time, arm)])[0] for time in (99.0, 6.0))
    assert torch.equal(late.arm, then.arm)
    assert torch.equal(late.why["index"], then.why["index"])


def test_an_error_within_leaves_the_policy_as_it_was():
    policy = drifting_bounds()
    kept, pending = described(policy.state_dict()), [Pending(5.0, torch.tensor([1]))]
    for message, asked in {
        r"time must be finite and at or after the latest observation, 5\.0": (3.0, 2, None, pending),
        "available must": (6.0, 2, torch.zeros(N, dtype=torch.bool), pending),
        "count must be an integer >= 1": (6.0, 0),
        "pending must be Pending choices": (6.0, 1, None, [3]),
        "time must be a finite number": (float("nan"), 2),
    }.items():
        with pytest.raises(ValueError, match=message):
            policy.choose_many(*asked)
    assert described(policy.state_dict()) == kept


def mixture_of_arms(kind):
    kernels = torch.stack([KERNEL(ARMS).to_dense().detach(), torch.eye(N).double()])
    noise, rate = torch.tensor([0.1, 0.3]).double(), torch.tensor([0.05, 0.2]).double()
    if kind is ArmMembers:
        model = ArmMembers(ARMS, kernels, torch.tensor([0, 1]), noise, rate, replicates=2)
    else:
        time = ExponentialForgettingKernel(rate, batch_shape=torch.Size([2]))
        kernel = SpatioTemporalKernel(ArmCovarianceKernel(kernels), time)
        model = ArmGP(N, kernel, noise, batch_shape=(2, 2), form=kind)
    return ModelAveraging(model, sharing=FixedShare(torch.ones(2).double(), 2), plausible=0.0)


def given(K, pulled, noise):
    """The covariance (N, N) once these arms have been pulled."""
    A = K[pulled][:, pulled] + noise * torch.eye(len(pulled)).double()
    return K - K[:, pulled] @ torch.linalg.solve(A, K[pulled])


class Counting(TorchFunctionMode):
    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_an_open_question_of_a_mixture_costs_as_much_however_many_are_open_before_it():
    policy, costs = taught(mixture_of_arms(ArmMembers), 9), []
    with policy.expecting(10.0) as expect:
        for k in range(20):
            with Counting() as mode:
                expect(Pending(10.0, torch.tensor([k % N, 4])))
            costs.append(mode.count)
    assert costs[19] <= costs[1]


@pytest.mark.parametrize("kind", [ArmMembers, "covariance", "factor"])
def test_a_mixture_conditions_its_own_covariance(kind):
    policy = taught(mixture_of_arms(kind), 9)
    w, now = policy.sharing.weights, 10.0
    dense = taught(mixture_of_arms("covariance"), 9).model
    mean, C = dense.joint(now)  # (S, P, N), (S, P, N, N)
    centre = (w.unsqueeze(-1) * mean).sum(1)
    off = mean - centre.unsqueeze(1)
    K = (w[..., None, None] * (C + off.unsqueeze(-1) * off.unsqueeze(-2))).sum(1)
    noise = (w * dense.noise_variance).sum(-1)
    for s in range(2):
        pulled: list[int] = []
        for choice in policy.choose_many(now, 5):
            variance = given(K[s], pulled, noise[s]).diagonal()
            index = centre[s] + policy.width * variance.clamp_min(0).sqrt()
            assert float(index[choice.arm[s]]) == pytest.approx(float(index.max()), abs=1e-9)
            pulled.append(int(choice.arm[s]))
        assert len(set(pulled)) > 1
    pulled = [4, 1, 4]
    with policy.expecting(now) as expect:
        for arm in pulled:
            expect(Pending(now, torch.tensor([arm, arm])))
        told = policy._pending_columns.square().sum(0)
    for s in range(2):
        right = (K[s] - given(K[s], pulled, noise[s])).diagonal()
        torch.testing.assert_close(told[s], right, rtol=0, atol=1e-9)


def test_checks_of_a_mixture_come_once_however_many_are_pending():
    policy = taught(all_recipes.build("auto", 1, T)[0], 4)
    asked = []
    policy._optimistic = lambda mean, variance, width: asked.append(1) or mean.amax(-2)
    policy.choose_many(5.0, 8)  # the observations 5 to 12, of which the one after 8 is a check
    assert len(asked) == 1


def test_a_mixture_over_points_conditions_its_own_covariance():
    policy = taught(recipes.auto(Domain(torch.tensor([[0.0, 0.0], [1.0, 2.0]]).double()), replicates=2), 12)
    torch.manual_seed(1)
    points, Z = (torch.rand(2, k, 2).double() * torch.tensor([1.0, 2.0]).double() for k in (4, 3))
    at, w, s = policy._time(13.0), policy.sharing.weights, policy.scale.scale
    whole = torch.cat([points, Z], 1)
    times = torch.full((2, 7), at).double()
    members = policy.members
    mean = members.moments(whole, times)[0]
    off = mean - (w.unsqueeze(-1) * mean).sum(1, keepdim=True)
    C = s[..., None, None] * members.between(whole, times, whole, times) + off.unsqueeze(-1) * off.unsqueeze(
        -2
    )
    K, noise = (w[..., None, None] * C).sum(1), (w * s * members.noise_variance).sum(-1)
    right = torch.stack([given(K[k], [4, 5, 6], noise[k]).diagonal()[:4] for k in range(2)])
    before = policy.mixture().posterior(policy._inputs(points.transpose(0, 1), 13.0).unsqueeze(-2))
    with policy.expecting(13.0) as expect:
        for k in range(3):
            expect(Pending(13.0, Z[:, k]))
        found = policy.mixture().posterior(policy._inputs(points.transpose(0, 1), 13.0).unsqueeze(-2))
    torch.testing.assert_close(found.variance[..., 0, 0].mT, right, rtol=1e-6, atol=1e-9)
    assert torch.equal(found.mean, before.mean)
    assert bool((found.variance < before.variance).all())


def test_classical_bandits_count_a_pull_of_mean_reward():
    policy = UCB1(3, reward_range=(0.0, 1.0))
    for arm, reward in ((0, 0.9), (0, 0.8), (1, 0.7), (2, 0.2)):
        policy.learn(Observation(0.0, torch.tensor([arm]), torch.tensor([reward]).double()))
    count, mean = torch.tensor([2.0, 1.0, 1.0]).double(), torch.tensor([0.85, 0.7, 0.2]).double()
    for k, choice in enumerate(policy.choose_many(1.0, 6)):
        index = mean + torch.sqrt(2 * torch.log(torch.tensor(4.0 + k).double()) / count)
        assert int(choice.arm) == int(index.argmax())
        count[int(choice.arm)] += 1


def test_arms_never_pulled_are_pulled_once_each_and_stay_unknown():
    policy = UCB1(5)
    assert [int(choice.arm) for choice in policy.choose_many(0.0, 5)] == [0, 1, 2, 3, 4]
    policy.learn(Observation(0.0, torch.tensor([3]), torch.tensor([-1e6]).double()))
    policy.learn(Observation(0.0, torch.tensor([4]), torch.tensor([-2e6]).double()))
    assert [int(choice.arm) for choice in policy.choose_many(0.0, 4)][:3] == [0, 1, 2]
    greedy = EpsilonGreedy(4, epsilon=0.0)
    assert [int(choice.arm) for choice in greedy.choose_many(0.0, 4)] == [0, 1, 2, 3]


def test_a_policy_that_says_what_is_pending_where_none_around_it_would_know_is_refused():
    with pytest.raises(TypeError, match="expect"):
        type("Old", (UCB1,), {"expecting": lambda self, time: None})
