"""RandomPolicy: uniform, replicate by replicate, over the available arms, a box, or what constraints leave of it."""

import pytest
import torch

from bandits_torch.domain import Domain
from bandits_torch.policies.random import RandomPolicy
from bandits_torch.state import differing


def play(policy, steps, available=None):
    return torch.stack([policy.choose(float(t), available).arm for t in range(1, steps + 1)])


def chi_square(arms, allowed, num_arms):
    counts = torch.bincount(arms.flatten(), minlength=num_arms).double()
    assert counts[[a for a in range(num_arms) if a not in allowed]].sum() == 0
    expected = arms.numel() / len(allowed)
    return float(((counts[allowed] - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("mask", [None, [1, 0, 1, 1, 0], [[1, 0, 0, 1, 1], [0, 1, 1, 1, 1]]], ids=str)
def test_arms_are_uniform_over_what_is_available_and_replicates_differ(mask):
    mask = None if mask is None else torch.tensor(mask, dtype=torch.bool)
    arms = play(RandomPolicy(5, 2, seed=3), 8000, mask)
    assert arms.dtype == torch.long
    assert not torch.equal(arms[:, 0], arms[:, 1])
    for k, allowed in enumerate((torch.ones(2, 5) if mask is None else mask.expand(2, 5)).bool()):
        allowed = allowed.nonzero().flatten().tolist()
        # The 99.9 % quantile of chi^2 with as many degrees of freedom.
        assert chi_square(arms[:, k], allowed, 5) < {2: 13.9, 3: 16.3, 4: 18.5}[len(allowed) - 1]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])  # the latter counts no writes
def test_a_mask_emptied_in_place_is_noticed(mode):
    with mode():
        policy, mask = RandomPolicy(3), torch.ones(3, dtype=torch.bool)
        policy.choose(1.0, mask)
        mask.zero_()
        with pytest.raises(ValueError, match="at least one arm"):
            policy.choose(2.0, mask)


BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
BOTH, ONES = torch.tensor([0, 1]), torch.ones(2, dtype=torch.float64)
CORNER = Domain(BOUNDS, [(BOTH, -ONES, -1.0)])  # x + y <= 1: half of the unit square, a quarter of the box


def test_points_are_uniform_over_what_a_constraint_leaves():
    points = play(RandomPolicy(CORNER, 50), 80).reshape(-1, 2)
    assert (points.sum(-1) <= 1).all()
    # Over this triangle each coordinate has mean 1/3 and variance 1/18, and 1/4 of the points have x + y <= 1/2.
    error = (1 / 18 / len(points)) ** 0.5
    assert ((points.mean(0) - 1 / 3).abs() < 4 * error).all()
    assert float((points.sum(-1) <= 0.5).double().mean()) == pytest.approx(
        0.25, abs=4 * (3 / 16 / len(points)) ** 0.5
    )


def test_constraints_that_leave_nothing_are_refused_and_no_stream_advances():
    policy = RandomPolicy(Domain(BOUNDS))
    before = policy.state_dict()
    with pytest.raises(ValueError, match="available must be a domain with a point that meets"):
        policy.choose(1.0, Domain(BOUNDS, [(BOTH, ONES, 4.0)]))
    assert not differing(policy.state_dict(), before)
