"""A policy or model in mid-life refuses what cannot be, by name, and is the same afterwards, to the last bit."""

from __future__ import annotations

import pytest

from bandits_torch.state import differing
from tests.fuzz.outcome import REFUSED, outcome
from tests.fuzz.said import LIVES


@pytest.mark.parametrize("life", LIVES)
def test_what_cannot_be_is_refused_and_changes_nothing(life, full):
    """The long form compares the state after each, and says which of them changed it."""
    state, said = LIVES[life]()
    before, wrong = state(), []
    for what, call, names in said:
        answer = outcome(call, *names)
        if answer != REFUSED:
            wrong.append((what, answer))
        if full and differing(before, state()):
            wrong.append((what, "something has changed"))
            before = state()
    assert not wrong
    assert not differing(before, state()), "--full says by what"
