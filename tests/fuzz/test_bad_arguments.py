"""Every public constructor and function, and policies and models in mid-life, refuse what cannot be by its name."""

from functools import partial

import pytest
import torch
from botorch.acquisition import AcquisitionFunction

from bandits_torch import models, policies
from bandits_torch.state import differing
from tests.fuzz import public
from tests.fuzz.bad_values import COVARIANCE, NAN
from tests.fuzz.outcome import REFUSED, outcome, shown
from tests.fuzz.public import cases, exports, fits, kind, names, parameters, valid
from tests.fuzz.said import LIVES

EXPORTS = exports()
ARGUMENTS = [(name, argument) for name in names() for argument in parameters(name)]


def test_every_row_is_of_something():
    assert public.left_out() <= set(EXPORTS)
    assert set(public.OF_TYPE) <= {kind(*one) for one in ARGUMENTS}
    assert nothing(public.GOOD, ARGUMENTS) == []
    for table in (*public.BAD.values(), public.OTHER):
        assert nothing(table, [one for one in ARGUMENTS if public.table_of(*one) is table]) == []


def nothing(rows, arguments):
    patterns = [pattern for _, them in rows for pattern in them.split()]
    return [one for one in patterns if not any(fits(one, *argument) for argument in arguments)]


@pytest.mark.parametrize("name", sorted(set(names()) - {"problems.read_table"}))
def test_the_valid_call_is_valid(name):
    EXPORTS[name](**valid(name))


@pytest.mark.parametrize(("name", "argument"), cases())
def test_bad_arguments_are_refused_by_name(name, argument):
    right = valid(name)  # a call that is refused changes nothing of what it was given
    for k, value in enumerate(public.bad_values(name, argument)):
        call = partial(EXPORTS[name], **right | {argument: value})
        assert outcome(call, argument) == REFUSED, f"value {k}: {shown(value)}"


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


def test_a_message_names_the_kind_of_an_object_and_not_its_address():
    with pytest.raises(ValueError, match=r"policy must be an IndexPolicy .*, got <.*RandomPolicy object>$"):
        policies.LatentRewards(policies.RandomPolicy(3), "binary")


def test_a_type_error_within_a_constructor_stays_what_it_is():
    class Broken(policies.RandomPolicy):
        def __init__(self, choices):
            super().__init__(choices)
            raise TypeError("of another origin")

    with pytest.raises(TypeError, match="another origin") as raised:
        Broken(3)
    assert not isinstance(raised.value, ValueError)


BAD_PRIORS = [
    {"kernel": "rbf"},
    {"kernel": COVARIANCE[:3]},
    *({"mean": mean} for mean in (NAN, torch.zeros(3), "zero")),
    *({"forgetting_rate": rate} for rate in (1.0, -0.1, NAN, "slow")),
    *({"noise_variance": noise} for noise in (0.0, -1.0, NAN)),
]


@pytest.mark.parametrize("given", BAD_PRIORS, ids=str)
def test_bad_candidate_priors_are_refused_by_name(given):
    """A record: the model over it checks it."""
    right = valid("models.arm_gp_over_priors")
    wrong = models.CandidatePrior(**{"kernel": COVARIANCE} | given)
    call = partial(models.arm_gp_over_priors, **right | {"priors": [*right["priors"], wrong]})
    assert outcome(call, "priors", "noise_variance") == REFUSED


@pytest.mark.parametrize("life", LIVES)
def test_what_cannot_be_is_refused_and_changes_nothing(life, full):
    """A policy or model in mid-life is the same to the last bit. The long form says which of them changed it."""
    state, said = LIVES[life]()
    before, wrong = state(), []
    for what, call, may_name in said:
        answer = outcome(call, *may_name)
        if answer != REFUSED:
            wrong.append((what, answer))
        if full and differing(before, state()):
            wrong.append((what, "something has changed"))
            before = state()
    assert not wrong
    assert not differing(before, state()), "--full says by what"
