"""The state of an IndexPolicy: it comes back, it is a copy, and it can be reset, all of it or some replicates."""

import math

import pytest
import torch

from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.state import differing
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
