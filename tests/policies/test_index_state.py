"""The state of an IndexPolicy: it comes back, it is a copy, and it can be reset, all of it or some replicates."""

import math

import pytest
import torch

from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.state import differing
from bandits_torch.theory.prior_widths import SrinivasBayesianWidth
from bandits_torch.theory.widths import ConstantWidth
from tests.reference.arm_gp_twins import smooth
from tests.reference.index_policies import (
    POLICIES,
    N,
    S,
    play,
)


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_resumed_from_its_state_goes_on_identically(name):
    policy, resumed = POLICIES[name](), POLICIES[name]()
    play(policy, 9)
    resumed.load_state_dict(policy.state_dict())
    assert not differing(resumed.state_dict(), policy.state_dict())
    assert torch.equal(play(resumed, 12, first=10), play(policy, 12, first=10))
    assert not differing(resumed.state_dict(), policy.state_dict())
    assert torch.equal(torch.as_tensor(resumed.trace()["restarts"]), policy.trace()["restarts"])


@pytest.mark.parametrize("name", POLICIES)
def test_a_state_is_a_copy(name):
    policy = POLICIES[name]()
    play(policy, 5)
    state = policy.state_dict()
    again = policy.state_dict()
    play(policy, 5, first=6)
    assert not differing(state, again)


@pytest.mark.parametrize("name", ["ucb", "window", "restart", "event", "drift", "drift and window"])
def test_after_a_reset_it_plays_as_a_new_one(name):
    policy, fresh = POLICIES[name](), POLICIES[name]()
    for used in (policy, fresh):
        used.acquisition, used.width = UpperConfidenceBound, SrinivasBayesianWidth(N, 0.1)
    play(policy, 10)
    policy.reset()
    assert policy.trace()["restarts"].eq(0).all()
    assert torch.equal(play(policy, 10, first=11), play(fresh, 10, first=11))


@pytest.mark.parametrize("name", ["ucb", "window", "restart", "event", "factor"])
def test_after_a_reset_of_some_replicates_these_play_as_new_and_the_others_on(name):
    policy, fresh, undisturbed = (POLICIES[name]() for _ in range(3))
    for used in (policy, fresh, undisturbed):
        used.acquisition, used.width = UpperConfidenceBound, SrinivasBayesianWidth(N, 0.1)
    play(policy, 10)
    play(undisturbed, 10)
    which = torch.tensor([True, False, True])
    policy.reset(which)
    arms, new, old = (play(used, 10, first=11) for used in (policy, fresh, undisturbed))
    assert torch.equal(arms[:, which], new[:, which])
    assert torch.equal(arms[:, ~which], old[:, ~which])
    assert torch.equal(policy.trace()["restarts"][~which], undisturbed.trace()["restarts"][~which])
    assert torch.equal(policy.trace()["restarts"][which], fresh.trace()["restarts"][which])


def test_the_trace_tells_the_width_used():
    policy = POLICIES["restart"]()
    assert "width" not in policy.trace()
    for step, clock in enumerate([1, 2, 3, 4, 1, 2], start=1):
        play(policy, 1, first=step)
        expected = math.sqrt(2 * math.log(N * math.pi**2 * clock**2 / (6 * 0.1)))
        assert float(policy.trace()["width"]) == pytest.approx(expected)


def test_arms_without_coordinates_can_be_played():
    policy = IndexPolicy(
        ArmGP(N, ArmCovarianceKernel(smooth(N)), 0.1, batch_shape=(S,)),
        UpperConfidenceBound,
        width=ConstantWidth(1.0),
    )
    assert policy.num_arms == N
    assert play(policy, 5).shape == (5, S)
