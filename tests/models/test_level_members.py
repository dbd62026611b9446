"""Members with a common level against all rewards solved at once, and what arms are compared by."""

import copy
from itertools import product

import numpy as np
import pytest
import torch

from bandits_torch import recipes
from bandits_torch.models import LevelMembers
from bandits_torch.policies import FixedShare, MemberScale, ModelAveraging, Observation
from tests.reference.dense_level import posterior

S, N, CONTROL = 2, 4, 1
NOISE, EPS, LEVEL, SCALE = [0.3, 1.0, 0.1], [0.0, 0.1, 0.02], [50.0, 2.0, 10.0], [8.0, 30.0, 3.0]
KERNEL = [0, 1, 1]


def members(**changes):
    x = torch.linspace(0, 1, N, dtype=torch.float64)
    K = torch.stack([torch.eye(N, dtype=torch.float64), 2 * (-(x - x.unsqueeze(-1)).square()).exp()])
    number = lambda value: torch.tensor(value, dtype=torch.float64)  # noqa: E731
    given = {
        "arms": N,
        "covariances": K,
        "kernel": torch.tensor(KERNEL),
        "noise_variance": number(NOISE),
        "forgetting_rate": number(EPS),
        "level_variance": number(LEVEL),
        "timescale": number(SCALE),
        "control": CONTROL,
        "replicates": S,
    }
    return LevelMembers(**(given | changes))


def played(count, model=None):
    """A model that has learned so many rewards, and what they were."""
    model, random = model or members(), np.random.default_rng(3)
    times = np.cumsum(random.exponential(1.5, count))
    arms, rewards = random.integers(N, size=(count, S)), 5 * random.normal(size=(count, S))
    for arm, reward, time in zip(arms, rewards, times, strict=True):
        model.observe_arms(torch.tensor(arm).unsqueeze(-1), torch.tensor(reward).unsqueeze(-1), float(time))
    return model, arms, rewards, times


def dense(arms, rewards, times, replicate, member, time):
    K = members().covariances[KERNEL[member]].numpy()
    own = NOISE[member], EPS[member], LEVEL[member], SCALE[member]
    return posterior(K, *own, arms[:, replicate], times, rewards[:, replicate], time)


@pytest.mark.parametrize("count", [0, 1, 40])
@pytest.mark.parametrize("ahead", [0.0, 2.5])
def test_they_agree_with_all_rewards_solved_at_once(count, ahead):
    model, arms, rewards, times = played(count)
    time = (float(times[-1]) if count else 0.0) + ahead
    lift, known = model.marginals(time)
    mean, variance = model.rewards(time)
    for s in range(S):
        for p in range(len(KERNEL)):
            m, C = dense(arms, rewards, times, s, p, time)
            np.testing.assert_allclose(lift[s, p], m[:N] - m[CONTROL], rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(mean[s, p], m[:N] + m[N], rtol=1e-8, atol=1e-9)
            total = np.diag(C)[:N] + 2 * C[:N, N] + C[N, N]
            np.testing.assert_allclose(variance[s, p], total, rtol=1e-6, atol=1e-8)
            given_level = C[:N, :N] - np.outer(C[:N, N], C[:N, N]) / C[N, N]
            np.testing.assert_allclose(known[s, p], np.diag(given_level), rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(model.level(time)[s, p], m[N], rtol=1e-8, atol=1e-9)
            for arm in range(N):
                of = model.covariance_with(torch.full((S,), arm), time)
                np.testing.assert_allclose(of[s, p], given_level[arm], rtol=1e-6, atol=1e-8)


def test_members_learn_where_told_and_are_reset_where_told():
    model, *_ = played(10)
    before, fresh = copy.deepcopy(model), members()
    where = torch.tensor([[True, False, True], [False, True, False]])
    model.observe_arms(torch.zeros(S, 1).long(), torch.ones(S, 1).double(), None, where)
    assert torch.equal(model.mean[~where], before.mean[~where])
    assert not torch.isclose(model.mean[where], before.mean[where]).all(-1).any()
    model.reset(where)
    assert torch.equal(model.mean[where], fresh.mean[where])
    assert torch.equal(model.reduction[where], fresh.reduction[where])
    assert torch.equal(model.mean[~where], before.mean[~where])


def test_a_level_that_is_forgotten_is_as_before_the_first_reward_and_arms_are_known_as_well():
    model, arms, rewards, times = played(40)
    where, now = torch.tensor([[True, False, True], [False, True, True]]), float(times[-1]) + 1.0
    before = copy.deepcopy(model)
    model.forget_level(where)
    assert torch.equal(model.marginals(now)[0], before.marginals(now)[0])
    assert all(
        torch.equal(a[~where], b[~where])
        for a, b in zip(model.rewards(now), before.rewards(now), strict=True)
    )
    for s, p in where.nonzero().tolist():
        m, C = dense(arms, rewards, times, s, p, now)
        np.testing.assert_allclose(model.marginals(now)[1][s, p], np.diag(C)[:N], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(model.rewards(now)[0][s, p], m[:N], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(model.rewards(now)[1][s, p], np.diag(C)[:N] + LEVEL[p], rtol=1e-6)


def test_a_level_that_jumps_costs_little():
    """Day and night without a dusk between them: an average over members that follow jumps, and one that does not."""

    class Slow(LevelMembers):
        def forget_level(self, where):
            pass

    def square(t):
        return 10.0 if t % 100 < 50 else -10.0

    assert regret(average(), square) < 0.7 * regret(average(kind=Slow), square)


def average(replicates=4, kind=LevelMembers):
    """A policy over such members, told no unit: three sizes of the arms' parts, two rates, three time-scales."""
    grid = torch.tensor(
        list(product((0.03, 0.3, 3.0), (0.0, 0.01), (1.0, 100.0), (10.0, 40.0, 160.0)))
    ).double()
    sizes, kernel = grid[:, 0].unique(return_inverse=True)
    one = torch.ones(len(grid)).double()
    model = kind(
        N,
        sizes[:, None, None] * torch.eye(N).double(),
        kernel,
        one,
        grid[:, 1],
        level_variance=grid[:, 2],
        timescale=grid[:, 3],
        control=CONTROL,
        replicates=replicates,
    )
    scale = MemberScale(0 * one, one > 0, replicates)
    return ModelAveraging(
        model,
        sharing=FixedShare(one, replicates),
        scale=scale,
        typical_gap=True,
        try_all=True,
        look_again=7.0,
    )


def daily(t):
    return 10 * np.sin(2 * np.pi * t / 100)


def regret(policy, level, first=0, last=400):
    """Of arms whose rewards differ by deviations of the noise, under a level."""
    random = np.random.default_rng(5)
    value, noise = random.normal(size=(4, N)), random.normal(size=(400, 4))
    total = 0.0
    for t in range(first, last):
        arm = policy.choose(float(t)).arm
        paid = torch.tensor(value[np.arange(4), arm] + level(t) + noise[t])
        policy.learn(Observation(float(t), arm, paid))
        total += float((value.max(1) - value[np.arange(4), arm]).mean())
    return total


def test_an_average_over_them_finds_the_best_arm_under_a_daily_level():
    assert regret(average(), daily) < 0.5 * regret(recipes.auto(N, replicates=4), daily)


def test_what_it_predicts_is_what_is_paid():
    """Level, origin and unit are in it; and an origin that is not learned is refused."""
    policy = average()
    for t in range(200):
        arm = policy.choose(float(t)).arm
        policy.learn(
            Observation(float(t), arm, 5000 + 100 * arm + 300 * np.sin(t / 20) + torch.zeros(4).double())
        )
    mean, _ = policy.predict(199.0)
    paid = 5000 + 100 * (N - 1) + 300 * np.sin(199 / 20)  # by the best arm, which is played most
    assert torch.allclose(mean[:, -1], torch.tensor(paid).double(), atol=10.0)
    assert bool((mean.diff() > 0).all())
    with pytest.raises(ValueError, match="scale must be one that learns the origin"):
        ModelAveraging(policy.model, sharing=policy.sharing)
