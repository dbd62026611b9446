"""Every public constructor and function refuses a bad argument with a ValueError that names it."""

from __future__ import annotations

from functools import partial

import pytest

from tests.fuzz.bad_values import ODD_NUMBERS
from tests.fuzz.outcome import REFUSED, drawn, outcome
from tests.fuzz.public import (
    BAD_PRIORS,
    LEFT_OUT,
    SPECS,
    cases,
    exports,
    kind_of,
    names,
    numeric_cases,
    unknown,
    valid,
)

EXPORTS = exports()
TRIES = 6  # of each argument here; the report tries more


def test_nothing_public_is_left_out():
    assert set(LEFT_OUT) <= set(EXPORTS)
    assert set(SPECS) <= set(names())
    assert unknown() == []


@pytest.mark.parametrize("name", sorted(set(names()) - {"problems.read_table"}))
def test_the_valid_call_is_valid(name):
    EXPORTS[name](**valid(name))


@pytest.mark.parametrize(("name", "argument"), cases())
def test_bad_arguments_are_refused_by_name(name, argument):
    for value in drawn(kind_of(name, argument), TRIES):
        call = partial(EXPORTS[name], **valid(name) | {argument: value})
        assert outcome(call, argument) == REFUSED, repr(value)


@pytest.mark.parametrize(("name", "argument"), numeric_cases())
def test_odd_numbers_are_refused_by_name(name, argument):
    """Drawn values do not reach so far: hypothesis draws floats and integers that a float can hold."""
    for k, value in enumerate(ODD_NUMBERS):
        call = partial(EXPORTS[name], **valid(name) | {argument: value})
        assert outcome(call, argument) == REFUSED, f"number {k} of them"  # Python does not write them all


@pytest.mark.parametrize("build", BAD_PRIORS)
def test_bad_candidate_priors_are_refused_by_name(build):
    priors = [*valid("models.arm_gp_over_priors")["priors"], build()]
    call = partial(
        EXPORTS["models.arm_gp_over_priors"],
        **valid("models.arm_gp_over_priors") | {"priors": priors},
    )
    assert outcome(call, "priors", "noise_variance") == REFUSED
