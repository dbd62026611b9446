"""The classical bandits: each plays as its slow twin from the paper, whatever the unit of rewards."""

import math

import pytest
import torch

from bandits_torch import recipes
from bandits_torch.policies import Observation
from bandits_torch.policies.classical import (
    EXP3S,
    GLRKLUCB,
    UCB1,
    DiscountedThompsonSampling,
    DiscountedUCB,
    EpsilonGreedy,
    LogOddsUCB,
    SlidingWindowUCB,
    tuned_discount,
    tuned_window,
)
from bandits_torch.recipes import Setup
from tests.reference import plain_classical as plain

N, S, T = 4, 3, 150
NAMES = [
    name
    for name, call in recipes.RECIPES.items()
    if call.__module__.endswith(".classical") and recipes.options_of(name).get("reward_range") is None
]  # those that take rewards in any unit
MEANS = torch.tensor([[0.2, 0.5, 0.8, 0.4], [0.9, 0.1, 0.3, 0.3], [0.5, 0.5, 0.4, 0.6]]).double()


def rewards(binary=False, seed=0):
    """(T, S, N): the best arm of each replicate becomes the worst at half time."""
    random = torch.Generator().manual_seed(seed)
    means = torch.stack([MEANS if t < T // 2 else 1 - MEANS for t in range(T)])
    if binary:
        return (torch.rand(T, S, N, generator=random, dtype=torch.float64) < means).double()
    return (means + 0.1 * torch.randn(T, S, N, generator=random, dtype=torch.float64)).clamp(0, 1)


def play(policy, table, twin=None):
    """Arms (T, S); ``twin(replicate, played)`` is asked for each choice before it is made."""
    played = [[] for _ in range(policy.replicates)]
    arms = []
    for t in range(len(table)):
        choice = policy.choose(t + 1.0)
        for k in range(policy.replicates):
            if twin is not None:
                assert int(choice.arm[k]) == twin(k, played[k]), (t, k)
            arm = int(choice.arm[k])
            played[k].append((arm, float(table[t, k, arm])))
        reward = torch.stack([table[t, k, choice.arm[k]] for k in range(policy.replicates)])
        policy.learn(Observation(t + 1.0, choice.arm, reward, choice.why))
        arms.append(choice.arm)
    return torch.stack(arms)


def level(played):
    return len({reward for _, reward in played}) < 2


def in_turn(played):
    """Until two rewards differ every arm is pulled as often as any other."""
    return plain.argmax([-len(plain.of(arm, played)) for arm in range(N)])


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("made", "options", "slow"),
    [
        (UCB1, {}, plain.ucb1),
        (DiscountedUCB, {"discount": 0.9, "exploration": 0.6}, plain.discounted_ucb),
        (SlidingWindowUCB, {"window": 20, "exploration": 0.6}, plain.sliding_window_ucb),
    ],
)
def test_upper_confidence_bounds_play_as_their_plain_twins(made, options, slow, binary):
    def twin(k, played):
        return in_turn(played) if level(played) else slow(played, N, *options.values())

    play(made(N, S, **options), rewards(binary), twin)


@pytest.mark.parametrize("restarts", ["local", "global"])
def test_glr_kl_ucb_plays_as_its_plain_twin_and_finds_the_change(restarts):
    options = {"delta": 0.05, "exploration": 0.1, "restarts": restarts}
    policy = GLRKLUCB(N, S, horizon=T, reward_range=(0.0, 1.0), **options)
    twins = [plain.GLRKLUCB(N, **options) for _ in range(S)]
    known = [0] * S

    def twin(k, played):
        for arm, reward in played[known[k] :]:
            twins[k].learn(arm, reward)
        known[k] = len(played)
        return twins[k].choose()

    table = torch.cat([rewards(True), rewards(True, 1).flip(0), rewards(True, 2)])
    play(policy, table, twin)
    assert policy.trace()["restarts"].tolist() == [one.episode - 1 for one in twins]
    assert (policy.trace()["restarts"] >= 1).any()


@pytest.mark.parametrize("told", [False, True])
def test_log_odds_ucb_plays_as_its_plain_twin(told):
    prior_mean = MEANS[0] if told else 0.0
    policy = LogOddsUCB(N, S, prior_mean=prior_mean)
    own = [math.log(p / (1 - p)) for p in MEANS[0].tolist()]
    middle = math.log(0.475 / 0.525)  # of the average of the chances
    levels = [(own, 2 / 3), ([middle] * N, 1 / 3)]
    if not told:
        levels = [([level] * N, 0.2) for level in (-4.0, -2.5, -1.0, 0.0, 1.5)]
    rates = (0.0, 0.001, 0.01, 0.03, 0.1)
    twins = [plain.LogOddsUCB(levels, (0.1, 0.3, 1.0), rates, 1.25, 0.001) for _ in range(S)]

    games = [[] for _ in range(S)]

    def twin(k, played):
        games[k] = played
        if played:
            twins[k].learn(*played[-1])
        return twins[k].choose()

    table = rewards(True)[T // 2 - 30 : T // 2 + 30]
    table[40:] *= 0.5  # half a success
    play(policy, table, twin)
    for one, played in zip(twins, games, strict=True):
        one.learn(*played[-1])
    weights = torch.tensor([one.weights for one in twins]).double()
    torch.testing.assert_close(policy.state["log_weight"].exp(), weights, rtol=1e-6, atol=1e-9)
    m, v = (
        torch.tensor([[model[key] for model in one.models] for one in twins]).double()
        for key in ("mean", "var")
    )
    expected = (weights.unsqueeze(-1) / (1 + torch.exp(-m / torch.sqrt(1 + math.pi * v / 8)))).sum(1)
    for found, slow in (
        (policy.state["log_odds"], m),
        (policy.state["variance"], v),
        (policy.mean_rewards(), expected),
    ):
        torch.testing.assert_close(found, slow, rtol=1e-6, atol=1e-9)


def test_log_odds_ucb_takes_rewards_and_prior_means_in_the_unit_of_its_range():
    told, table = torch.tensor([0.125, 0.25, 0.75, 0.5]).double(), rewards(True)
    plain_ones = LogOddsUCB(N, S, prior_mean=told)
    others = LogOddsUCB(N, S, prior_mean=2 + 4 * told, reward_range=(2.0, 6.0))
    assert torch.equal(play(plain_ones, table), play(others, 2 + 4 * table))
    torch.testing.assert_close(others.mean_rewards(), 2 + 4 * plain_ones.mean_rewards())
    beyond = LogOddsUCB(N, S, prior_mean=told)
    assert torch.equal(play(LogOddsUCB(N, S, prior_mean=told), table), play(beyond, 3 * table - 1))


def test_exp3_s_has_the_probabilities_of_its_plain_twin():
    policy = EXP3S(N, S, horizon=T, exploration=0.3, sharing=0.02, reward_range=(0.0, 1.0), seed=1)
    twins = [plain.EXP3S(N, 0.3, 0.02) for _ in range(S)]
    table, counts = rewards(), torch.zeros(S, N)
    for t in range(T):
        choice = policy.choose(t + 1.0)
        expected = [twins[k].probabilities()[int(choice.arm[k])] for k in range(S)]
        exact = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(choice.why["probability"], exact, rtol=1e-12, atol=0)
        reward = table[t].gather(-1, choice.arm.unsqueeze(-1)).squeeze(-1)
        for k in range(S):
            twins[k].learn(int(choice.arm[k]), float(reward[k]))
            counts[k, choice.arm[k]] += 1
        policy.learn(Observation(t + 1.0, choice.arm, reward, choice.why))
    assert (counts > 0).all()


def test_exp3_s_draws_with_the_probabilities_it_tells():
    policy = EXP3S(N, 4000, horizon=T, exploration=0.3, reward_range=(0.0, 1.0))
    arm = torch.zeros(4000, dtype=torch.long)
    why = {"probability": torch.full((4000,), 0.25).double()}
    policy.learn(Observation(1.0, arm, torch.ones(4000).double(), why))
    mask = torch.tensor([True, True, False, True])
    choice = policy.choose(2.0, mask)
    shares = torch.bincount(choice.arm, minlength=N) / 4000
    told = [float(choice.why["probability"][choice.arm == i].mean()) for i in (0, 1, 3)]
    assert sum(told) == pytest.approx(1.0)
    assert shares[2] == 0
    for share, p in zip(shares[[0, 1, 3]].tolist(), told, strict=True):
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / 4000)


@pytest.mark.parametrize(("binary", "noise"), [(True, None), (False, None), (False, 0.01)])
def test_thompson_draws_are_quantiles_of_the_plain_posteriors(binary, noise):
    policy = DiscountedThompsonSampling(N, 1, discount=0.9, noise_variance=noise, seed=4)
    table, played = rewards(binary)[:, :1], []
    for t in range(60):
        if len({x for _, x in played}) > 1 and len({a for a, _ in played}) == N:
            before = policy.state_dict()
            u = policy.streams.uniform(N)[0].tolist()
            policy.load_state_dict(before)
            draws = plain.thompson_draws(played, N, 0.9, u, noise, binary)
            choice = policy.choose(t + 1.0)
            assert int(choice.arm) == plain.argmax(draws)
            assert float(choice.why["index"]) == pytest.approx(max(draws), rel=1e-6)
        else:
            choice = policy.choose(t + 1.0)
        reward = table[t, 0, choice.arm]
        played.append((int(choice.arm), float(reward)))
        policy.learn(Observation(t + 1.0, choice.arm, reward, choice.why))


def test_one_reward_that_is_neither_0_nor_1_changes_the_likelihood_of_its_replicate_alone():
    policy = DiscountedThompsonSampling(N, 2, discount=0.9)
    for t, reward in enumerate([[0, 0], [1, 1], [1, 0.5]]):
        policy.learn(Observation(t + 1.0, torch.tensor([t, t]), torch.tensor(reward).double()))
    assert policy.state_dict()["state"]["binary"].tolist() == [1, 0]
    strict = DiscountedThompsonSampling(N, 1, discount=0.9, likelihood="bernoulli")
    with pytest.raises(ValueError, match="reward must be in"):
        strict.learn(Observation(1.0, torch.tensor([0]), torch.tensor([1.5])))


def test_epsilon_greedy_weighs_rewards_as_the_book_does_and_explores_as_often():
    policy, table = EpsilonGreedy(N, S, epsilon=0.2, step_size=0.3, seed=2), rewards()
    for k, arms in enumerate(play(policy, table).mT.tolist()):
        played = [(arm, float(table[t, k, arm])) for t, arm in enumerate(arms)]
        means = [plain.weighted_mean(plain.of(i, played), 0.3) for i in range(N)]
        exact = torch.tensor(means, dtype=torch.float64)
        torch.testing.assert_close(policy.state["sum"][k], exact, rtol=1e-12, atol=1e-14)
    many = EpsilonGreedy(N, 4000, epsilon=0.2)
    for i in range(N):
        many.learn(Observation(1.0 + i, torch.full((4000,), i), torch.full((4000,), float(i)).double()))
    share = float((many.choose(9.0).arm != N - 1).double().mean())
    assert share == pytest.approx(0.2 * 3 / 4, abs=4 * math.sqrt(0.15 * 0.85 / 4000))


def test_memories_are_tuned_as_in_the_paper():
    assert tuned_discount(10_000, 2) == pytest.approx(1 - math.sqrt(2 / 10_000) / 4)
    assert tuned_window(10_000, 2) == math.ceil(2 * math.sqrt(10_000 * math.log(10_000) / 2))
    assert recipes.discounted_ucb(N, horizon=10_000, changes=2).discount == tuned_discount(10_000, 2)
    assert recipes.sliding_window_ucb(N, horizon=10_000, changes=2).window == tuned_window(10_000, 2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("scale", "shift"), [(1024.0, 0.0), (0.25, 0.0), (1000.0, 5000.0)])
def test_choices_do_not_depend_on_the_unit_or_the_zero_of_rewards(name, scale, shift):
    options = {"horizon": T} if "horizon" in recipes.options_of(name) else {}
    quick = dict(recipes.registered(name).quick)
    policies = [recipes.RECIPES[name](Setup(N, replicates=S, seed=3), **options, **quick) for _ in range(2)]
    table = rewards()
    assert torch.equal(play(policies[0], table), play(policies[1], scale * table + shift))
