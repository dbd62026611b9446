"""The search for the best point of a box does not depend on the units of the box and of the values."""

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from bandits_torch import Domain, OnlineGP, UpperConfidenceBound
from bandits_torch.acquisition import PointSearch

UNITS = {"the same": (1.0, 1.0), "long": (2.0**20, 1.0), "short": (2.0**-20, 1.0), "small": (1.0, 2.0**-20)}


def bound(side, reward):
    """An upper confidence bound over a box with sides of this length, in this unit of reward."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = torch.tensor(0.3 * side).double()
    kernel.outputscale = torch.tensor(reward**2).double()
    model = OnlineGP(kernel, 0.01 * reward**2, input_dim=2)
    X = torch.tensor([[0.2, 0.3], [0.7, 0.6], [0.4, 0.9]]).double()
    model.observe(side * X, reward * torch.tensor([[0.5], [1.0], [-0.3]]).double())
    return UpperConfidenceBound(model, width=1.0)


def found(name, **about):
    side, reward = UNITS[name]
    box = torch.tensor([[0.0, 0.0], [side, side]]).double()
    constraints = [(torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]).double(), -0.9 * side)]
    domain = Domain(
        box, constraints if about.get("constrained") else (), {1: 0.45 * side} if about.get("fixed") else {}
    )
    X, value = PointSearch().maximise(bound(side, reward), domain)
    return X / side, value / reward


@pytest.mark.parametrize("about", [{}, {"fixed": True}, {"constrained": True}], ids=str)
@pytest.mark.parametrize("name", ["long", "short", "small"])
def test_the_best_point_is_the_same_in_other_units(name, about):
    X, value = found(name, **about)
    usual, best = found("the same", **about)
    assert torch.allclose(X, usual, atol=1e-4)
    assert torch.allclose(value, best, rtol=1e-6)


def test_small_values_of_one_replicate_among_others():
    model, unit = bound(1.0, 1.0).model.expand(torch.Size([2])), torch.tensor([1.0, 2.0**-20]).double()

    class InUnits(UpperConfidenceBound):
        """Each replicate's values in a unit of its own."""

        def forward(self, X):
            return super().forward(X) * unit

    box = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
    points, values = PointSearch().maximise(InUnits(model, width=1.0), box, replicates=2)
    assert torch.allclose(points[0], points[1], atol=1e-4)
    assert torch.allclose(values / unit, values[0].expand(2), rtol=1e-6)
