"""Rewards in doubt: the slow twin, what one outlier costs ``auto``, and what really changes is learned."""

from itertools import product

import pytest
import torch

from bandits_torch import Domain, recipes
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.policies import Observation, Pending
from bandits_torch.policies.reward_range import RewardRange
from tests.reference.arm_gp_twins import smooth
from tests.reference.plain_range import PlainRange

ARMS, STEPS, LATE = 12, 50, slice(36, 50)
SIZES = (30.0, -30.0, 100.0, -100.0, 1e4, -1e4)  # of an outlier, in ranges of the rewards


def answers(rewards, told=0.0):
    """What is believed of rewards (T, S), and the range that believed it."""
    judge, believed = RewardRange(rewards, torch.zeros(rewards.shape[1]).long(), told), []
    for step, reward in enumerate(rewards):
        taken = judge.take(Observation(float(step), torch.full_like(reward, step).long(), reward))
        if len(taken) > 1:
            believed = []
        believed += [torch.ones_like(reward).bool() if one is None else one for _, one in taken]
    return torch.stack(believed), judge


@pytest.mark.parametrize("told", [0.0, 3.0])
def test_agrees_with_the_plain_twin(told):
    g = torch.Generator().manual_seed(0)
    rewards = torch.randn(30, 400, generator=g).double()
    rewards = rewards * torch.where(torch.rand(30, 400, generator=g) < 0.1, 50.0, 1.0)
    rewards = rewards + torch.where(torch.rand(30, 400, generator=g) < 0.02, 500.0, 0.0).cumsum(0)
    rewards[:12, :40] = torch.where(rewards[:12, :40].abs() < 10, 0.0, rewards[:12, :40])  # without a range
    rewards[28:, ::7] += 1e5  # confirmed by the last reward
    believed, judge = answers(rewards, told)
    for k in range(400):
        twin, column = PlainRange(told), rewards[:, k].tolist()
        assert believed[:, k].tolist() == twin.judge_first(column[:5]) + [
            twin.believes(y) for y in column[5:]
        ]
        assert judge.doubted[k] == twin.doubted
        assert judge.latest[k] == sum(twin.latest)
        assert judge.borne_out[k] == twin.borne_out
        assert (judge.low[k], judge.high[k]) == (twin.low, twin.high)
    assert 0 < (judge.doubted == 0).sum() < 300  # it has seen both
    assert 0 < judge.borne_out.sum() < 100


@pytest.mark.parametrize("told", [0.0, 3.0])
def test_what_is_said_of_all_rewards_to_come_holds(told):
    """Up to the ends of what is said to be near, and no further: the range that they are compared with may be 0."""
    g = torch.Generator().manual_seed(0)
    first = torch.randn(8, 400, generator=g).double()
    first[:, :20] = 1.0
    _, judge = answers(
        torch.cat([first, torch.where(torch.rand(400, generator=g) < 0.1, 99.0, 0.0)[None]]), told
    )
    width = (judge.high - judge.low).clamp_min(told)
    least, most = judge.low - 3 * width, judge.high + 3 * width
    at_rest = judge.latest == 0
    assert torch.equal(judge.believes_all(least, most), at_rest)
    assert 0 < at_rest.sum() < 400
    wider = width + 1e-6
    assert not judge.believes_all(judge.low - 3 * wider, most).any()
    assert not judge.believes_all(least, judge.high + 3 * wider).any()
    assert not judge.believes_all(least, torch.full_like(most, torch.nan)).any()
    for _ in range(20):
        rewards = torch.where(torch.rand(400, generator=g) < 0.5, least, most)
        believed = judge.believe(rewards, torch.zeros(400).long())
        assert believed[at_rest].all()
        assert not (judge.borne_out | (judge.latest != 0))[at_rest].any()


def test_of_independent_uniform_rewards_as_few_are_in_doubt_as_is_said():
    rewards = torch.rand(6, 400_000, generator=torch.Generator().manual_seed(1)).double()
    believed, _ = answers(rewards)
    first = (~believed[:5]).any(0).double().mean()
    assert float(first) == pytest.approx(2 / 11**3 + 1 / 21**2, rel=0.1)
    assert float((~believed[5]).double().mean()) < 1e-4


def test_the_unit_and_the_origin_of_rewards_change_nothing():
    g = torch.Generator().manual_seed(3)
    size = torch.where(torch.arange(20) % 7 == 4, 40.0, 1.0)
    rewards = size[:, None] * torch.randn(20, 300, generator=g).double()
    plain, _ = answers(rewards)
    assert not bool(plain.all())
    for other in (rewards * 2.0**900, rewards * 2.0**-900, -rewards, 7.0 + 1e3 * rewards):
        assert torch.equal(answers(other)[0], plain)


def world(kind, seeds):
    g = torch.Generator().manual_seed(seeds)
    if kind == "arms":
        f = torch.rand(seeds, ARMS, generator=g).double()
    else:
        phase = 6 * torch.rand(2, seeds, 1, generator=g).double()
        f = torch.sin((3 + phase[0] / 2) * torch.linspace(0, 1, ARMS).double() + phase[1])
    f = f - f.amax(-1, keepdim=True)
    return 1.6 * f / f.abs().amax(-1, keepdim=True), 0.05 * torch.randn(
        seeds, STEPS, ARMS, generator=g
    ).double()


def built(kind, replicates):
    """``auto`` over arms that knows their number, their features, or a kernel and the mean of rewards."""
    if kind == "arms":
        return recipes.auto(ARMS, replicates=replicates)
    x = torch.linspace(0, 1, ARMS).double().unsqueeze(-1)
    if kind == "features":
        return recipes.auto(x, replicates=replicates)
    told = {"kernel": ArmCovarianceKernel(0.35 * smooth(ARMS)), "noise_variance": 0.0025, "prior_mean": -0.8}
    return recipes.auto(ARMS, replicates=replicates, **told)


def regrets(policy, f, noise, bad):
    """Regret of every step, (R, T), where a reward is ``bad`` (R, T) too large."""
    losses = []
    for step in range(noise.shape[1]):
        choice = policy.choose(float(step))
        arm = choice.arm.unsqueeze(-1)
        losses.append(f.amax(-1) - f.gather(-1, arm).squeeze(-1))
        reward = (f + noise[:, step]).gather(-1, arm).squeeze(-1) + bad[:, step]
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
    return torch.stack(losses, -1)


@pytest.mark.parametrize("kind", ["arms", "features", "kernel"])
def test_one_outlier_does_not_spoil_what_auto_learns_of_arms(kind, full):
    """Of either sign, 30 to 10 000 times the range of rewards, as any of the first 21; all in one batch."""
    torch.manual_seed(0)
    seeds, when = (8, range(21)) if full else (3, (0, 1, 3, 4, 5, 8, 14, 20))
    cases = [(None, 0.0), *product(when, SIZES if full else (30.0, -100.0, 1e4))]
    f, noise = world(kind, seeds)
    bad = torch.zeros(len(cases), seeds, STEPS).double()
    for k, (step, size) in enumerate(cases[1:], 1):
        bad[k, :, step] = 1.6 * size
    policy = built(kind, len(cases) * seeds)
    loss = regrets(policy, f.repeat(len(cases), 1), noise.repeat(len(cases), 1, 1), bad.flatten(0, 1))
    late = loss[:, LATE].mean(-1).reshape(len(cases), seeds).mean(-1)
    random = float(-f.mean())
    assert float(late[0]) < 0.05 * random
    assert float(late.max()) < 0.1 * random
    assert float(late[1:].mean()) < float(late[0]) + 0.02 * random
    assert bool((policy.range.doubted.reshape(len(cases), seeds)[1:] >= 1).all())


BOX = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())


def regrets_over_points(middle, noise, bad, seed=0):
    policy, losses = recipes.auto(BOX, replicates=len(middle), seed=seed), []
    for step in range(noise.shape[1]):
        choice = policy.choose(float(step))
        loss = -1.6 * torch.expm1(-4 * (choice.arm.double() - middle).square().sum(-1))
        losses.append(loss)
        reward = noise[:, step] - loss + bad[:, step]
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
    return torch.stack(losses, -1), policy


def test_a_point_whose_reward_is_in_doubt_and_high_is_asked_again_where_it_can_be():
    g, middle = torch.Generator().manual_seed(0), torch.tensor([[0.3, 0.6], [0.5, 0.5]]).double()
    noise, bad = 0.02 * torch.randn(2, 8, generator=g).double(), torch.zeros(2, 8).double()
    bad[0, 7], bad[1, 7] = 90.0, -90.0
    _, policy = regrets_over_points(middle, noise, bad)
    latest = policy.range.arm[0]
    with policy.expecting(8.0) as expect:
        first = policy.choose(8.0).arm
        assert torch.equal(first[0], latest)
        assert not torch.equal(first[1], policy.range.arm[1])
        expect(Pending(8.0, first))
        assert not torch.equal(policy.choose(8.0).arm[0], latest)
    assert torch.equal(policy.choose(8.0).arm[0], latest)
    elsewhere = Domain(torch.stack([latest + 0.01, torch.ones(2).double()]))
    assert elsewhere.contains(policy.choose(8.0, elsewhere).arm).all()
