"""Parameters as points of the unit cube, and the search over those of them that take some values only."""

import itertools
import math

import pytest
import torch
from botorch.acquisition import AnalyticAcquisitionFunction
from botorch.utils.testing import MockModel, MockPosterior

from bandits_torch.domain import Domain
from bandits_torch.mixed_points import Axis, MixedSearch, Space

AXES = {
    "x": Axis(-2.0, 3.0),
    "rate": Axis(1e-6, 1.0, log=True),
    "layers": Axis(1.0, 8.0, step=1.0),
    "units": Axis(1.0, 64.0, log=True, step=1.0),
    "kind": Axis(choices=3),
}


class Hill(AnalyticAcquisitionFunction):
    """-|x - top|^2 in the unit cube, weighted by column; for one replicate, or several with tops of their own."""

    def __init__(self, top, batched=False):
        model = MockModel(MockPosterior(mean=torch.zeros(1, 1).double()))
        model._batch_shape = None
        super().__init__(model)
        self.top = top
        shape = torch.Size([len(top)]) if batched else torch.Size()
        type(model).batch_shape = property(lambda self: self._batch_shape)
        model._batch_shape = shape
        self.weight = torch.linspace(1, 2, top.shape[-1]).double()

    def forward(self, X):
        return -(self.weight * (X.squeeze(-2) - self.top).square()).sum(-1)


@pytest.mark.parametrize("name", AXES)
def test_values_of_an_axis_come_back_and_lie_in_the_unit_interval(name):
    axis = AXES[name]
    values = {
        "x": [-2.0, 0.123, 3.0],
        "rate": [1e-6, 3e-4, 1.0],
        "layers": [1.0, 5.0, 8.0],
        "units": [1.0, 2.0, 63.0, 64.0],
        "kind": [0.0, 1.0, 2.0],
    }[name]
    for value in values:
        u = axis.encode(value)
        assert axis.decode(u) == pytest.approx(value, rel=1e-12)
        assert ((u >= 0) & (u <= 1)).all()
        torch.testing.assert_close(axis.snap(u), u)


def test_every_value_of_a_range_with_steps_has_an_equal_share():
    U = torch.linspace(0, 1, 8001).double()[:-1]
    counts = torch.unique(AXES["layers"].from_unit(U), return_counts=True)[1]
    assert (counts - 1000).abs().max() <= 1


def test_what_is_missing_or_has_no_place_lies_in_the_middle():
    space = Space(AXES)
    point = space.encode({"layers": 3.0})
    for value in (0.0, -1.0, math.inf, math.nan):
        assert torch.equal(space.encode({"layers": 3.0, "rate": value}), point)
    assert point[space.columns["x"]] == 0.5
    assert torch.equal(point[space.columns["kind"]], torch.full((3,), 1 / 3).double())
    assert space.decode(point)["layers"] == 3.0
    assert space.decode(point)["rate"] == pytest.approx(1e-3)


def test_narrower_ranges_and_fixed_values_bound_what_is_sampled():
    space = Space(AXES)
    domain = space.domain({"layers": (3.0, 4.0), "rate": (1e-3, 1e-2)}, {"kind": 2.0})
    for point in space.snap(domain.sample(64, 0)):
        values = space.decode(point)
        assert values["layers"] in (3.0, 4.0)
        assert 1e-3 <= values["rate"] <= 1e-2
        assert values["kind"] == 2.0


@pytest.mark.parametrize("log", [False, True])
def test_every_point_of_a_narrower_range_of_integers_is_rounded_into_it(log):
    space = Space({"n": Axis(1.0, 40.0, log=log, step=1.0)})
    assert space.domain({"n": (1.0, 40.0)}).bounds.flatten().tolist() == [0.0, 1.0]
    for low in range(1, 36):
        high = low + 4
        corners = space.domain({"n": (low, high)}).bounds
        assert [space.decode(corner)["n"] for corner in corners] == [low, high]


def test_a_narrower_range_far_from_0_is_as_narrow_as_it_was_told():
    space = Space({"date": Axis(1.7e9, 1.7e9 + 10)})
    bounds = space.domain({"date": (1.7e9 + 2, 1.7e9 + 3)}).bounds
    torch.testing.assert_close(bounds, torch.tensor([[0.2], [0.3]], dtype=torch.float64), rtol=0, atol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_the_search_over_a_grid_finds_what_trying_every_point_finds(seed):
    space = Space({"a": Axis(0.0, 6.0, step=1.0), "b": Axis(choices=3), "c": Axis(1.0, 9.0, step=2.0)})
    top = torch.rand(1, space.dim, generator=torch.Generator().manual_seed(seed)).double()
    hill = Hill(top)
    every = itertools.product(range(7), range(3), range(1, 10, 2))
    points = torch.stack([space.encode(dict(zip("abc", values, strict=True))) for values in every])
    best = points[hill(points.unsqueeze(1)).argmax()]
    search = MixedSearch(raw_samples=4, num_restarts=1, space=space)
    found, _ = search.maximise(hill, space.domain(), seed=seed)
    torch.testing.assert_close(found[0], best)


def test_numbers_are_searched_again_beside_the_values_chosen():
    space = Space({"n": Axis(0.0, 3.0, step=1.0), "x": Axis(0.0, 10.0)})

    class Ridge(Hill):
        """The best x depends on what n rounds to."""

        def forward(self, X):
            n, x = X.squeeze(-2).unbind(-1)
            return -(n - 0.45).square() - 10 * (x - n).square()

    found, value = MixedSearch(space=space).maximise(Ridge(torch.zeros(1, 2)), space.domain())
    n, x = found[0]
    assert space.decode(found[0])["n"] == 1.0
    assert float(x) == pytest.approx(float(n), abs=1e-4)
    assert float(value) == pytest.approx(-((0.375 - 0.45) ** 2), abs=1e-6)


def test_the_opening_is_of_points_that_may_be_played():
    space = Space(AXES)
    domain, search = space.domain({"layers": (3.0, 4.0)}, {"kind": 2.0}), MixedSearch(initial=3, space=space)
    for step in range(3):
        opening = search.opening(domain, step, 2, 0)
        torch.testing.assert_close(opening, space.snap(domain.samples(3, 0, 2)[step]))
        assert domain.contains(opening).all()


def test_replicates_are_searched_apart():
    space = Space({"n": Axis(0.0, 4.0, step=1.0), "x": Axis()})
    tops = torch.tensor([[0.1, 0.3], [0.9, 0.7]]).double()
    search = MixedSearch(space=space)
    together, _ = search.maximise(Hill(tops, batched=True), space.domain(), replicates=2)
    for k in range(2):
        alone, _ = search.maximise(Hill(tops[k : k + 1]), space.domain())
        torch.testing.assert_close(together[k], alone[0], atol=1e-5, rtol=0)


def test_replicates_with_other_values_are_searched_under_constraints():
    """Constraints allow only one fixed value for all replicates, so each is searched with its own."""
    space = Space({"n": Axis(0.0, 4.0, step=1.0), "x": Axis(), "y": Axis()})
    domain = Domain(space.domain().bounds, [(torch.tensor([1, 2]), -torch.ones(2).double(), -1.0)])
    tops = torch.tensor([[0.1, 0.9, 0.9], [0.9, 0.2, 0.3]]).double()
    search = MixedSearch(space=space)
    together, values = search.maximise(Hill(tops, batched=True), domain, replicates=2)
    assert space.decode(together[0])["n"] != space.decode(together[1])["n"]
    for k in range(2):
        alone, value = search.maximise(Hill(tops[k : k + 1]), domain)
        torch.testing.assert_close(together[k], alone[0], atol=1e-4, rtol=0)
        torch.testing.assert_close(values[k], value[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"low": 1.0, "high": 1.0}, "low, high"),
        ({"low": 0.0, "high": math.inf}, "low, high"),
        ({"low": 0.0, "high": 1.0, "log": True}, "low"),
        ({"step": 0.0}, "step"),
    ],
)
def test_an_axis_refuses_by_name(values, named):
    with pytest.raises(ValueError, match=f"^{named} must be"):
        Axis(**values)
    with pytest.raises(ValueError, match=r"^axes must be"):
        Space({})
