"""Every public constructor and function refuses a bad argument with a ValueError that names it."""

from __future__ import annotations

from functools import partial

import pytest

from tests.fuzz.outcome import REFUSED, drawn, outcome
from tests.fuzz.public import BAD_PRIORS, LEFT_OUT, SPECS, cases, exports, kind_of

EXPORTS = exports()
TRIES = 6  # of each argument here; the report tries more


def test_nothing_public_is_left_out():
    assert set(EXPORTS) == set(SPECS) | set(LEFT_OUT)
    assert not set(SPECS) & set(LEFT_OUT)


@pytest.mark.parametrize("name", sorted(set(SPECS) - {"problems.read_table"}))
def test_the_valid_call_is_valid(name):
    EXPORTS[name](**SPECS[name].valid())


@pytest.mark.parametrize(("name", "argument"), cases())
def test_bad_arguments_are_refused_by_name(name, argument):
    valid = SPECS[name].valid()
    for value in drawn(kind_of(name, argument), TRIES):
        assert outcome(lambda value=value: EXPORTS[name](**valid | {argument: value}), argument) == REFUSED, (
            repr(value)
        )


@pytest.mark.parametrize("build", BAD_PRIORS)
def test_bad_candidate_priors_are_refused_by_name(build):
    priors = [*SPECS["models.arm_gp_over_priors"].valid()["priors"], build()]
    call = partial(
        EXPORTS["models.arm_gp_over_priors"],
        **SPECS["models.arm_gp_over_priors"].valid() | {"priors": priors},
    )
    assert outcome(call, "priors", "noise_variance") == REFUSED
