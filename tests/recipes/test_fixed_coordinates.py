"""Recipes over a domain with a fixed coordinate of no range."""

import torch

from bandits_torch import Domain, recipes
from tests.reference.kernels import rbf


def test_a_domain_with_a_fixed_coordinate_of_no_range_is_played():
    bounds = torch.tensor([[0.0, 0.4], [1.0, 0.4]]).double()
    arm = recipes.gp_ucb(Domain(bounds, fixed_features={1: 0.4}), rbf(0.3), 0.01).choose(0.0).arm
    assert arm[0, 1] == 0.4
    assert 0 <= arm[0, 0] <= 1
