"""The search for the best point of a box: in any units, with lowered ends, and on GP-TS's decision sets."""

import itertools
import math

import numpy as np
import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bandits_torch import Domain, OnlineGP, UpperConfidenceBound, recipes
from bandits_torch.acquisition import PathwisePointDraw, PointSearch
from bandits_torch.acquisition.point_search import GridSearch, LoweredEnds
from bandits_torch.policies import Observation

SIDES = {"the same": 1.0, "long": 2.0**20, "very long": 2.0**40, "short": 2.0**-20}
UNITS = {name: (side, 1.0) for name, side in SIDES.items()} | {"small": (1.0, 2.0**-20)}


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
@pytest.mark.parametrize("name", ["long", "short", "small", "very long"])
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


class Flat(AcquisitionFunction):
    """Three, everywhere, for each of two replicates."""

    def __init__(self):
        super().__init__(model=None)

    def forward(self, X):
        return 3.0 + 0.0 * X[..., 0, 0].expand(*X.shape[:-3], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_middle_ends_and_a_side_of_no_width(dtype):
    bounds = torch.tensor([[-1.0, 10.0, 5.0], [3.0, 30.0, 5.0]], dtype=dtype)
    points = [[1.0, 20.0, 5.0], [-1.0, 30.0, 5.0], [3.0, 20.0, 5.0], [2.0, 20.0, 5.0]]
    lost = [0.0, 2 / 3, 1 / 3, 1 / 12]
    # Time counts for nothing.
    X = torch.tensor([[*point, 7.0] for point in points], dtype=dtype)[:, None, None]
    found = LoweredEnds(Flat(), bounds, 0.5)(X)
    assert found.shape == (4, 2)
    expected = 3 - 0.5 * torch.tensor(lost, dtype=dtype).unsqueeze(-1).expand(4, 2)
    torch.testing.assert_close(found, expected)


NOISE = 0.01


def squared_exponential(lengthscale):
    """``lengthscale``: a number, or a tensor with one of each coordinate."""
    each = lengthscale.numel() if isinstance(lengthscale, torch.Tensor) else None
    kernel = ScaleKernel(RBFKernel(ard_num_dims=each)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = lengthscale, 1.5
    return kernel.requires_grad_(False)


def box(*sides):
    return Domain(torch.tensor(sides, dtype=torch.float64).mT)


DOMAINS = {1: box((-1.0, 0.5)), 2: box((0.0, 0.5), (2.0, 2.3))}


def grid_of_the_paper(domain, lipschitz, t):
    """Middles of cells no longer than 2 / (B L_j d t^2)."""
    axes = []
    for low, high, steep in zip(*domain.bounds.tolist(), lipschitz, strict=True):
        count = max(1, math.ceil((high - low) * steep * domain.dim * t**2 / 2))
        axes.append([low + (high - low) * (2 * i + 1) / (2 * count) for i in range(count)])
    return np.array(list(itertools.product(*axes)))


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("B", [1.0, 3.0])
def test_functions_of_that_norm_change_by_at_most_one_over_t_squared_to_the_nearest_point(dim, B) -> None:
    domain, lengthscale = DOMAINS[dim], 0.4
    kernel = squared_exponential(lengthscale)
    policy = recipes.gp_ts(domain, kernel, NOISE, rkhs_bound=B, grid_until=6)
    lipschitz = B * math.sqrt(1.5) / lengthscale
    search = policy.choices.search
    assert search.lipschitz == pytest.approx([lipschitz] * dim, rel=1e-4)
    generator = torch.Generator().manual_seed(0)
    low, high = domain.bounds
    centres = low + (high - low) * torch.rand(12, dim, generator=generator).double()
    weights = torch.randn(12, generator=generator).double()
    weights *= B / (weights @ kernel(centres).to_dense() @ weights).sqrt()
    x = low + (high - low) * torch.rand(2000, dim, generator=generator).double()
    x = torch.cat([x, domain.bounds])
    for t in (1, 2, 5, 6):
        grid = search.at_step(t).points(domain)
        expected = grid_of_the_paper(domain, search.lipschitz, t)
        np.testing.assert_allclose(grid.numpy(), expected, atol=1e-12)
        assert len(grid) <= max(
            1.0, math.prod(math.ceil(lipschitz * float(r) * dim * t**2) for r in high - low)
        )
        nearest = grid[torch.cdist(x, grid, p=1).argmin(-1)]
        assert (x - nearest).abs().sum(-1).max() <= (1 + 1e-4) / (lipschitz * t**2)
        f, at = (kernel(points, centres).to_dense() @ weights for points in (x, nearest))
        assert (f - at).abs().max() <= 1 / t**2
    assert torch.equal(search.at_step(60).points(domain), grid), "after the last step D_t stays"


@pytest.mark.parametrize("dim", [1, 2])
def test_the_policy_plays_the_largest_value_of_its_draw_on_the_grid(dim) -> None:
    domain = DOMAINS[dim]
    policy = recipes.gp_ts(
        domain, squared_exponential(0.4), NOISE, width=1.0, grid_until=8, replicates=2, seed=3
    )
    lipschitz = policy.choices.search.lipschitz
    for t in range(1, 7):
        choice = policy.choose(t)
        seeds = policy.choices.step(t, None, policy.streams).seeds()
        draw = PathwisePointDraw(policy.model, 1.0, seeds=seeds)
        grid = torch.as_tensor(grid_of_the_paper(domain, lipschitz, t))
        values = draw(grid.reshape(-1, 1, 1, dim).repeat(1, 2, 1, 1))
        torch.testing.assert_close(choice.arm, grid[values.argmax(0)])
        policy.learn(Observation(t, choice.arm, (3 * choice.arm).sin().sum(-1), choice.why))
    assert len(grid) > 10


def test_many_points_are_looked_at_in_parts(monkeypatch) -> None:
    def played():
        policy = recipes.gp_ts(DOMAINS[2], squared_exponential(0.2), NOISE, grid_until=5, seed=1)
        for t in range(1, 5):
            choice = policy.choose(t)
            policy.learn(Observation(t, choice.arm, (3 * choice.arm).sin().sum(-1), choice.why))
        return policy.choose(5).arm

    whole = played()
    monkeypatch.setattr("bandits_torch.acquisition.point_search._AT_ONCE", 7)
    torch.testing.assert_close(played(), whole)


def test_a_coordinate_that_is_fixed_is_not_cut() -> None:
    domain = Domain(DOMAINS[2].bounds, fixed_features={1: 2.25})
    policy = recipes.gp_ts(domain, squared_exponential(0.2), NOISE, grid_until=30)
    assert policy.choose(1).arm[0, 1] == 2.25
    assert len(policy.choices.search.at_step(30).points(domain)) < 5000


def test_the_grid_is_the_same_in_any_units_of_the_coordinates() -> None:
    grids = []
    for units in ([1.0, 1.0], [600.0, 1e-3]):
        units = torch.tensor(units).double()
        domain, kernel = Domain(torch.stack([0 * units, units])), squared_exponential(0.3 * units)
        search = recipes.gp_ts(domain, kernel, NOISE, grid_until=4).choices.search
        grids.append(search.at_step(4).points(domain) / units)
    torch.testing.assert_close(*grids)


def test_a_coordinate_along_which_nothing_changes_is_not_cut() -> None:
    kernel = squared_exponential(torch.tensor([0.4, math.inf]).double())
    search = recipes.gp_ts(DOMAINS[2], kernel, NOISE, grid_until=4).choices.search
    assert search.at_step(4).points(DOMAINS[2])[:, 1].unique().tolist() == pytest.approx([2.15])


BAD = {
    r"lipschitz must be a finite number >= 0": lambda: GridSearch(lipschitz=(1.0, -1.0)),
    r"lipschitz must be 1 or 2 numbers": lambda: GridSearch(lipschitz=(1.0, 2.0, 3.0)).check(DOMAINS[2]),
    r"grid_until must be small enough .* 250000 x 250000 = 62500000000, got 500": lambda: GridSearch(
        lipschitz=1.0, until=500
    ).check(box((0.0, 1.0), (0.0, 1.0))),
    r"grid_until must be small enough": lambda: recipes.gp_ts(
        DOMAINS[2], squared_exponential(0.2), NOISE, grid_until=100
    ),
    "grid_until must be None except over a domain": lambda: recipes.gp_ts(
        torch.rand(4, 1).double(), MaternKernel().double(), NOISE, grid_until=5
    ),
    "learn_hyperparameters must be False": lambda: recipes.gp_ts(
        DOMAINS[1], squared_exponential(0.2), NOISE, grid_until=5, learn_hyperparameters=True
    ),
    "until must be": lambda: recipes.gp_ts(DOMAINS[1], squared_exponential(0.2), NOISE, grid_until=0),
    "inequality_constraints must be none": lambda: recipes.gp_ts(
        Domain(DOMAINS[1].bounds, [(torch.tensor([0]), torch.ones(1).double(), -0.5)]),
        squared_exponential(0.2),
        NOISE,
        grid_until=5,
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_what_has_no_such_grid_is_refused(message) -> None:
    with pytest.raises(ValueError, match=message):
        BAD[message]()
