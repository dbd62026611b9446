"""Ranges of hyperparameters in the unit cube and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bandits_torch.integrations.population import Range, Ranges

UNIT = st.floats(0, 1)
RATE = Range(1e-4, 0.02, log=True, both=True)


@pytest.mark.parametrize("log", [False, True])
@given(u=UNIT)
def test_a_place_and_its_value_are_one(log, u):
    axis = Range(1e-4, 0.02, log=log)
    value = axis.decode(torch.tensor([u], dtype=torch.float64))
    assert 1e-4 <= value <= 0.02
    assert float(axis.encode(value)) == pytest.approx(u, abs=1e-9)


def test_half_way_is_the_geometric_mean_on_a_logarithmic_scale_and_the_mean_on_a_linear_one():
    half = torch.tensor([0.5]).double()
    assert Range(0.01, 1.0, log=True).decode(half) == pytest.approx(0.1)
    assert Range(0.01, 1.0).decode(half) == pytest.approx(0.505)


@given(u=UNIT)
def test_multiples_stay_inside_the_range(u):
    u = torch.tensor([u]).double()
    assert Range(4, 14, step=3.0).decode(u) in (6, 9, 12)
    assert Range(0.5, 2.5, step=1.0).decode(u) in (1, 2)
    assert Range(16, 256, log=True, step=1.0).decode(u) in range(16, 257)
    fine = Range(1e-4, 1e-1, log=True, step=1e-5).decode(u) / 1e-5
    assert fine == pytest.approx(round(fine))


def test_both_scales_are_inverse_to_each_other():
    u = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert torch.allclose(RATE.logarithmic(RATE.linear(u)), u)
    assert torch.allclose(RATE.linear(u), (RATE.from_unit(u) - 1e-4) / (0.02 - 1e-4))


def space():
    lr = Range(1e-4, 1.0, log=True, both=True)
    return Ranges({"lr": lr, "width": Range(8, 64, step=1.0), "act": Range(choices=2)})


def test_snapped_points_are_values_and_stay_where_they_are_when_snapped_again():
    once = space().snap(space().sample(20, 0))
    assert torch.allclose(space().snap(once), once)
    assert set(once[:, 2:].sum(-1).tolist()) == {1.0}
    assert all(space().decode(x)["width"] in range(8, 65) for x in once)


def test_features_are_the_columns_and_the_linear_scale_of_those_on_both():
    X = space().sample(5, 1)
    features = space().features(X)
    assert torch.equal(features[:, :4], X)
    assert torch.allclose(features[:, 4], space().axes["lr"].linear(X[:, 0]))


def test_every_other_sample_is_even_on_the_linear_scale():
    lr = [space().decode(x)["lr"] for x in space().sample(200, 2)]
    assert sum(value > 0.5 for value in lr[1::2]) > 40
    assert sum(value > 0.5 for value in lr[::2]) < 20


def test_the_middle_of_numbers_is_0_their_ends_are_1_and_categories_count_for_nothing():
    space = Ranges({"x": Range(), "kind": Range(choices=2), "rate": Range(1e-4, 1.0, log=True)})
    values = [(0.5, 0, 1e-2), (0.5, 1, 1e-2), (0.0, 0, 1.0), (1.0, 1, 1e-2), (0.75, 0, 1e-2)]
    X = torch.stack([space.encode({"x": x, "kind": kind, "rate": rate}) for x, kind, rate in values])
    expected = torch.tensor([0.0, 0.0, 1.0, 0.5, 0.125])
    assert torch.allclose(space.off_middle(X), expected.double())
    assert Ranges({"kind": Range(choices=2)}).off_middle(torch.eye(2).double()).tolist() == [0.0, 0.0]
