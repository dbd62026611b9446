"""The first steps of the runs that are kept. The whole of them, bit for bit: ``python -m tests.golden``."""

import pytest

from bandits_torch import recipes
from tests.golden.runs import FIRST, FIRST_POINTS, STEPS, cases, kept, play, told

CASES = {case.name: case for case in cases()}


def some(over_points):
    """The runs over points, or over arms: in the short form, each recipe on one problem."""
    seen, listed = set(), []
    for case in CASES.values():
        if ("dynamic" in case.problem) == over_points:
            own = case.recipe + case.variant
            listed.append(pytest.param(case.name, marks=pytest.mark.slow if own in seen else ()))
            seen.add(own)
    return listed


def test_every_recipe_is_kept():
    assert {case.recipe for case in CASES.values()} == set(recipes.RECIPES)
    assert CASES.keys() == kept().keys()
    assert sum(case.steps == STEPS for case in CASES.values()) >= 2 * len(recipes.RECIPES)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", some(over_points=False))
def test_the_first_arms_are_those_that_are_kept(name):
    first = told(play(CASES[name], FIRST))["first"]
    assert [len(arms) for arms in first] == [FIRST] * 3
    assert first == kept()[name]["first"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", some(over_points=True))
def test_the_first_points_are_those_that_are_kept(name):
    """To 1e-4 of the box: the searches multiply what another processor rounds otherwise."""
    chosen = play(CASES[name], FIRST_POINTS).arms
    for points, before in zip(chosen.tolist(), kept()[name]["first"], strict=True):
        for point, text in zip(points, before.split(" "), strict=True):
            assert point == pytest.approx([float(x) for x in text.split(",")], abs=1e-4)
