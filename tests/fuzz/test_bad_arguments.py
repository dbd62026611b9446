"""Every public constructor and function refuses a bad argument with a ValueError that names it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial

import pytest
from botorch.acquisition import AcquisitionFunction

from bandits_torch import policies
from tests.fuzz.outcome import REFUSED, drawn, outcome
from tests.fuzz.public import (
    BAD,
    BAD_PRIORS,
    GOOD,
    LEFT_OUT,
    cases,
    ends,
    exports,
    kind_of,
    names,
    parameters,
    unknown,
    valid,
)

EXPORTS = exports()
TRIES = 6  # of each argument here; the report tries more


def test_nothing_public_is_left_out():
    assert set(LEFT_OUT) <= set(EXPORTS)
    assert unknown() == []
    for _, arguments, *of in [*GOOD, *BAD]:  # each row is of something
        found = [
            name for name in names() if any(fnmatchcase(name, one) for one in " ".join(of or "*").split())
        ]
        assert found, of
        for argument in arguments.split():
            assert any(argument in parameters(name) for name in found), (argument, of)


@pytest.mark.parametrize("name", sorted(set(names()) - {"problems.read_table"}))
def test_the_valid_call_is_valid(name):
    EXPORTS[name](**valid(name))


@pytest.mark.parametrize(("name", "argument"), cases())
def test_bad_arguments_are_refused_by_name(name, argument):
    """Those drawn, and of numbers the ends and odd ones: hypothesis draws floats and integers that a float can hold."""
    right = valid(name)  # a call that is refused changes nothing of what it was given
    for k, value in enumerate([*drawn(kind_of(name, argument), TRIES), *ends(name, argument)]):
        call = partial(EXPORTS[name], **right | {argument: value})
        assert outcome(call, argument) == REFUSED, f"value {k}: {shown(value)}"


def shown(value):
    try:
        return repr(value)
    except ValueError:  # Python does not write all integers
        return "an integer of many digits"


# Records that policies and the loop make, and acquisition functions, which are built anew at every step: Python's own
# TypeError names what they do not take.
BUILT_OFTEN = {"Choice", "Pending", "ForgettingFit", "History", "Knowledge", "NamedProblem", "Observation"}
BUILT_OFTEN |= {"Question", "Design", "ForgettingRule", "KeepEverything", "RealisedGain", "Recipe"}
BUILT_OFTEN |= {"StepContext"}
BUILT = sorted(
    name
    for name, thing in EXPORTS.items()
    if isinstance(thing, type)
    and not issubclass(thing, AcquisitionFunction)
    and thing.__name__ not in BUILT_OFTEN
)


@pytest.mark.parametrize("name", BUILT)
def test_a_misspelt_argument_is_refused_with_what_was_meant(name):
    given = valid(name) if name in names() else {"data": "no file"} if "data" in parameters(name) else {}
    for meant in [p for p in parameters(name) if len(p) > 3]:
        misspelt = meant[:-2] + meant[-1]
        left = {key: value for key, value in given.items() if key != meant}
        with pytest.raises(ValueError, match=rf"got {misspelt} \(did you mean {meant}\?\)"):
            EXPORTS[name](**left, **{misspelt: given.get(meant)})


@pytest.mark.parametrize("name", BUILT)
def test_too_many_arguments_are_a_value_error(name):
    with pytest.raises(ValueError, match="too many positional arguments"):
        EXPORTS[name](*range(99))


def test_a_type_error_within_a_constructor_stays_what_it_is():
    class Broken(policies.RandomPolicy):
        def __init__(self, choices):
            super().__init__(choices)
            raise TypeError("of another origin")

    with pytest.raises(TypeError, match="another origin") as raised:
        Broken(3)
    assert not isinstance(raised.value, ValueError)


@pytest.mark.parametrize("build", BAD_PRIORS)
def test_bad_candidate_priors_are_refused_by_name(build):
    priors = [*valid("models.arm_gp_over_priors")["priors"], build()]
    call = partial(
        EXPORTS["models.arm_gp_over_priors"], **valid("models.arm_gp_over_priors") | {"priors": priors}
    )
    assert outcome(call, "priors", "noise_variance") == REFUSED
