"""What tests of live systems ask and tell."""

import pytest
import torch

from bandits_torch.ask_tell import AskTell
from bandits_torch.checkpoint import described
from tests.reference import all_recipes

# Learn of the choice since the last reward.
IN_TURN = ("opkb", "ada_opkb", "opnn", "ada_opnn", "master_gp_ucb")


def live(name="gp_ucb", horizon=30):
    return AskTell(all_recipes.build(name, 1, horizon)[0])


def reward_of(question):
    return float(torch.sin(question.time + question.arm.double()))


def alike(steps, reward, *systems, hidden=None, context=None):
    """All are asked the same and told ``reward(arm, step)``, the last without the arms that are hidden from it."""
    for step in steps:
        under = {} if context is None else {"context": context[step % len(context)]}
        asked = [one.ask(float(step), hidden if one is systems[-1] else None, **under) for one in systems]
        for one, question in zip(systems, asked, strict=True):
            assert torch.equal(question.arm, asked[0].arm)
            one.tell(question.id, reward(question.arm, step))


def bits(state):
    """Every number of a state, tensors to the last bit."""
    if isinstance(state, torch.Tensor):
        return (str(state.dtype), tuple(state.shape), state.contiguous().numpy().tobytes())
    if isinstance(state, dict):
        return {key: bits(value) for key, value in state.items()}
    return [bits(value) for value in state] if isinstance(state, (list, tuple)) else repr(state)


def refused(asked, act, message):
    """``act`` is refused with this message, and changes nothing."""
    before = described(asked.state_dict())
    with pytest.raises(ValueError, match=message):
        act()
    assert described(asked.state_dict()) == before
