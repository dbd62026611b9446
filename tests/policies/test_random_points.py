"""RandomPolicy: uniform over the box, over what constraints leave of it, and the same again from a saved state."""

import pytest
import torch

from bandits_torch.domain import Domain
from bandits_torch.policies.random import RandomPolicy

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
BOTH, ONES = torch.tensor([0, 1]), torch.ones(2, dtype=torch.float64)
CORNER = Domain(BOUNDS, [(BOTH, -ONES, -1.0)])  # x + y <= 1: half of the unit square, a quarter of the box


def play(policy, steps):
    return torch.stack([policy.choose(float(t)).arm for t in range(steps)])


def test_points_are_uniform_over_what_a_constraint_leaves():
    points = play(RandomPolicy(CORNER, 50), 80).reshape(-1, 2)
    assert (points.sum(-1) <= 1).all()
    # Over this triangle each coordinate has mean 1/3 and variance 1/18, and 1/4 of the points have x + y <= 1/2.
    error = (1 / 18 / len(points)) ** 0.5
    assert ((points.mean(0) - 1 / 3).abs() < 4 * error).all()
    assert float((points.sum(-1) <= 0.5).double().mean()) == pytest.approx(
        0.25, abs=4 * (3 / 16 / len(points)) ** 0.5
    )


def test_constraints_that_leave_nothing_are_refused():
    policy = RandomPolicy(Domain(BOUNDS))
    with pytest.raises(
        ValueError, match="available must be a domain whose constraints leave some of its box"
    ):
        policy.choose(1.0, Domain(BOUNDS, [(BOTH, ONES, 4.0)]))
