"""Ranges of hyperparameters in the unit cube and back."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bandits_torch.integrations.population import Categories, Numbers, Space

UNIT = st.floats(0, 1)


@pytest.mark.parametrize("scale", ["linear", "log", "both"])
@given(u=UNIT)
def test_a_place_and_its_value_are_one(scale, u):
    numbers = Numbers(1e-4, 0.02, scale)
    value = numbers.decode([u], 0.1)
    assert type(value) is float
    assert 1e-4 <= value <= 0.02
    assert numbers.encode(value) == pytest.approx([u], abs=1e-9)


def test_half_way_is_the_geometric_mean_on_a_logarithmic_scale_and_the_mean_on_a_linear_one():
    assert Numbers(0.01, 1.0, "log").decode([0.5], 0.1) == pytest.approx(0.1)
    assert Numbers(0.01, 1.0).decode([0.5], 0.1) == pytest.approx(0.505)


@given(u=UNIT)
def test_integers_are_ints_of_the_range_and_multiples_stay_inside_it(u):
    value = Numbers(3, 14, step=3, whole=True).decode([u], 3)
    assert type(value) is int
    assert value in (3, 6, 9, 12)
    assert type(Numbers(16, 256, "both").decode([u], 32)) is int
    assert type(Numbers(16, 256, "both").decode([u], 32.0)) is float
    assert Numbers(1e-4, 1e-1, "log", step=1e-5).decode([u], 0.1) / 1e-5 == pytest.approx(
        round(Numbers(1e-4, 1e-1, "log", step=1e-5).decode([u], 0.1) / 1e-5)
    )


def test_values_outside_are_taken_for_the_nearest_inside():
    assert Numbers(0.0, 1.0).encode(7) == [1.0]
    assert Numbers(0.1, 1.0, "log").encode(0.0) == [0.0]


def test_categories_are_told_apart_by_type_and_come_back_as_they_were_given():
    function = math.sin
    kinds = Categories((1, True, "1", None, function))
    for place, value in enumerate(kinds.values):
        columns = kinds.encode(value)
        assert columns == [float(place == k) for k in range(5)]
        assert kinds.decode(columns, 1) is value
    assert kinds.encode("2") == [0.0] * 5


def test_both_scales_are_inverse_to_each_other():
    numbers = Numbers(1e-4, 0.02, "both")
    u = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert torch.allclose(numbers.logarithmic(numbers.linear(u)), u)
    by_hand = [(numbers.decode([float(x)], 0.1) - 1e-4) / (0.02 - 1e-4) for x in u]
    assert torch.allclose(numbers.linear(u), torch.tensor(by_hand).double())


def space():
    return Space(
        {
            "lr": Numbers(1e-4, 1.0, "both"),
            "one": Numbers(3.0, 3.0),
            "width": Numbers(8, 64, whole=True),
            "act": Categories(("relu", "tanh")),
            "only": Categories(("x",)),
        }
    )


def test_a_space_decodes_what_it_encodes_and_leaves_what_cannot_be_chosen():
    values = {"lr": 0.01, "one": 3.0, "width": 17, "act": "tanh", "only": "x"}
    point = torch.tensor(space().encode(values)).double()
    assert len(point) == space().dim == 4
    assert space().decode(point, values) == pytest.approx(values)


def test_snapped_points_are_values_and_stay_where_they_are_when_snapped_again():
    like = {"lr": 0.1, "one": 3.0, "width": 9, "act": "relu", "only": "x"}
    X = space().sample(20, 0)
    once = space().snap(X, like)
    assert torch.equal(once[:, 0], once[:, 0].clamp(0, 1))
    assert torch.allclose(space().snap(once, like), once)
    assert set(once[:, 2:].sum(-1).tolist()) == {1.0}
    assert all(space().decode(x, like)["width"] in range(8, 65) for x in once)


def test_features_are_the_columns_and_the_linear_scale_of_those_on_both():
    X = space().sample(5, 1)
    features = space().features(X)
    assert torch.equal(features[:, :4], X)
    assert torch.allclose(features[:, 4], Numbers(1e-4, 1.0, "both").linear(X[:, 0]))


def test_every_other_sample_is_even_on_the_linear_scale():
    lr = [space().decode(x, {"lr": 0.1})["lr"] for x in space().sample(200, 2)]
    assert sum(value > 0.5 for value in lr[1::2]) > 40
    assert sum(value > 0.5 for value in lr[::2]) < 20


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Numbers(2.0, 1.0), "low must be at most high"),
        (lambda: Numbers(math.nan, 1.0), "low"),
        (lambda: Numbers(0.0, math.inf), "high"),
        (lambda: Numbers(0.0, 1.0, "log"), "above 0"),
        (lambda: Numbers(0.0, 1.0, "ln"), "scale must be 'linear', 'log' or 'both'"),
        (lambda: Numbers(0.0, 1.0, step=-1.0), "step"),
        (lambda: Categories(()), "at least one value"),
        (lambda: Space({"a": Numbers(1.0, 1.0)}), "something to choose"),
    ],
)
def test_what_is_no_range_is_refused_by_name(build, said):
    with pytest.raises(ValueError, match=said):
        build()


def test_the_middle_of_numbers_is_0_their_ends_are_1_and_categories_count_for_nothing():
    space = Space({"x": Numbers(0.0, 1.0), "kind": Categories(("a", "b")), "rate": Numbers(1e-4, 1.0, "log")})
    values = [(0.5, "a", 1e-2), (0.5, "b", 1e-2), (0.0, "a", 1.0), (1.0, "b", 1e-2), (0.75, "a", 1e-2)]
    X = torch.tensor([space.encode({"x": x, "kind": kind, "rate": rate}) for x, kind, rate in values])
    expected = torch.tensor([0.0, 0.0, 1.0, 0.5, 0.125])
    assert torch.allclose(space.off_middle(X.double()), expected.double())
    categories = Space({"kind": Categories(("a", "b"))})
    assert categories.off_middle(torch.eye(2).double()).tolist() == [0.0, 0.0]
