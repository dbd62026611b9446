"""Recipes over a domain with a fixed coordinate of no range."""

import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import Domain, recipes
from tests.reference.kernels import rbf


def test_a_domain_with_a_fixed_coordinate_of_no_range_is_played():
    bounds = torch.tensor([[0.0, 0.4], [1.0, 0.4]]).double()
    arm = recipes.gp_ucb(Domain(bounds, fixed_features={1: 0.4}), rbf(0.3), 0.01).choose(0.0).arm
    assert arm[0, 1] == 0.4
    assert 0 <= arm[0, 0] <= 1


def test_the_width_over_a_domain_is_the_same_in_any_units_of_its_coordinates():
    widths = []
    for units in ([1.0, 1.0], [600.0, 1e-3]):
        units = torch.tensor(units).double()
        kernel = RBFKernel(ard_num_dims=2).double()
        kernel.lengthscale = 0.3 * units
        policy = recipes.gp_ucb(Domain(torch.stack([0 * units, units])), kernel, 0.01)
        widths.append(policy.width(torch.tensor(5.0), policy.model))
    torch.testing.assert_close(widths[1], widths[0], rtol=1e-3, atol=0)
