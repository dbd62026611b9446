"""A policy or model in mid-life refuses what cannot be, by name, and is the same afterwards, to the last bit."""

from __future__ import annotations

import pytest

from bandits_torch import AskTell, recipes
from bandits_torch.state import differing
from tests.fuzz.living import (
    MODELS,
    MORE,
    OVER_POINTS,
    model_of,
    policy_of,
    policy_over_points,
    state_of,
)
from tests.fuzz.outcome import REFUSED, outcome
from tests.fuzz.said import times_to_policy, to_ask_tell, to_model, to_policy

DRIFTING = {"tv_gp_ucb": {"forgetting_rate": 0.1}, "ui_gp_ucb": {}}


def assert_refused_and_unchanged(state, said):
    before = state()
    wrong = []
    for what, call, names in said:
        answer = outcome(call, *names)
        if answer != REFUSED:
            wrong.append((what, answer))
        if differing(before, state()):
            wrong.append((what, "something has changed"))
            before = state()
    assert not wrong


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_policy_refuses_what_cannot_be(name):
    policy = policy_of(name)
    policy.choose(4.0)  # draws ahead what the choice below would draw
    said = list(to_policy(policy))
    assert_refused_and_unchanged(policy.state_dict, said)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_ask_tell_refuses_what_cannot_be(name):
    asked = AskTell(policy_of(name))
    asked.ask(4.0)
    assert_refused_and_unchanged(asked.state_dict, list(to_ask_tell(asked)))


@pytest.mark.parametrize("name", OVER_POINTS)
def test_policy_over_points_refuses_what_cannot_be(name):
    policy = policy_over_points(name)
    assert_refused_and_unchanged(policy.state_dict, list(to_policy(policy)))


@pytest.mark.parametrize("options", MORE.values(), ids=MORE)
def test_policy_that_learns_more_refuses_what_cannot_be(options):
    policy = policy_of("sw_gp_ucb", **options)
    assert_refused_and_unchanged(policy.state_dict, list(to_policy(policy)))


@pytest.mark.parametrize("name", DRIFTING)
def test_drifting_policy_refuses_times_that_cannot_be(name):
    policy = policy_of(name, **DRIFTING[name])
    said = list(times_to_policy(policy))
    assert_refused_and_unchanged(policy.state_dict, said)


@pytest.mark.parametrize("name", MODELS)
def test_model_refuses_what_cannot_be(name):
    model = model_of(name)
    assert_refused_and_unchanged(lambda: state_of(model), to_model(name, model))
