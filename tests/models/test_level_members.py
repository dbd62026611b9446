"""Policies over members with a common level: what it saves, and rewards in doubt. That the members are right is for
``test_members.py``, what ``auto`` finds and predicts with them for ``test_control.py``."""

from itertools import product

import numpy as np
import pytest
import torch

from bandits_torch.models import LevelMembers
from bandits_torch.policies import FixedShare, MemberScale, ModelAveraging, Observation

N, CONTROL = 4, 1


def test_a_level_that_jumps_costs_little():
    """Day and night without a dusk between them: an average over members that follow jumps, and one that does not."""

    class Slow(LevelMembers):
        def forget_level(self, where):
            return torch.zeros_like(where)

    def square(t):
        return 10.0 if t % 100 < 50 else -10.0

    assert regret(average(), square) < 0.7 * regret(average(kind=Slow), square)


def average(replicates=4, kind=LevelMembers, unit=1.0):
    """A policy over such members, told no unit: three sizes of the arms' parts, two rates, three time-scales. ``unit``
    multiplies their variances."""
    grid = torch.tensor(
        list(product((0.03, 0.3, 3.0), (0.0, 0.01), (1.0, 100.0), (10.0, 40.0, 160.0)))
    ).double()
    sizes, kernel = grid[:, 0].unique(return_inverse=True)
    one = torch.ones(len(grid)).double()
    model = kind(
        N,
        unit * sizes[:, None, None] * torch.eye(N).double(),
        kernel,
        unit * one,
        grid[:, 1],
        level_variance=unit * grid[:, 2],
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


def test_a_reward_in_doubt_changes_no_prediction():
    policy = average()
    regret(policy, daily, last=60)
    before = policy.components(60.0)
    arm, reward = policy.choose(60.0).arm, torch.zeros(4).double()
    reward[0] = 1e6
    policy.learn(Observation(60.0, arm, reward))
    for value, was in zip(policy.components(60.0), before, strict=True):
        torch.testing.assert_close(value[0], was[0])


def test_a_scale_that_does_not_learn_the_origin_is_refused():
    policy = average(replicates=1)
    with pytest.raises(ValueError, match="scale must be one that learns the origin"):
        ModelAveraging(policy.model, sharing=policy.sharing)


def test_members_of_a_hundredfold_variance_predict_the_same_once_their_scale_is_learned():
    one, other = average(), average(unit=100.0)
    paid = [regret(policy, daily, last=60) for policy in (one, other)]
    assert paid[0] == paid[1]
    for value, same in zip(one.marginals(60.0), other.marginals(60.0), strict=True):
        torch.testing.assert_close(value, same)
