"""A policy that begins anew, in all replicates or in some, is a new one there and goes on elsewhere: every recipe."""

import copy
import math
from collections.abc import Mapping

import pytest
import torch

from bandits_torch import recipes
from bandits_torch.policies import Observation
from tests.reference import all_recipes

S = 3
SOME = torch.tensor([True, False, True])
# What is of all replicates together: what auto has learned of units and the pace of time (see
# tests/policies/test_averaging.py), and when R-PERP draws its orders.
TOGETHER = {"auto", "auto-cycles", "auto-control", "r_perp"}
# What models believe is in the choices; since is a place.
NOT_COMPARED = {"streams", "choices", "model", "since"}


def play(policy, first, steps):
    """The choices of ``steps`` steps; the best arm is each replicate's, and the worst in steps from 0 on."""
    chosen, sign = [], 1 if first else -1
    for step in range(first, first + steps):
        choice = policy.choose(float(step + 1))
        arm = choice.arm
        reward = sign * torch.cos(2.3 * arm.double() + torch.arange(S)) + 0.1 * math.sin(step)
        policy.learn(Observation(float(step + 1), arm, reward, choice.why))
        chosen.append(arm)
    return torch.stack(chosen)


def with_streams(state, other):
    """A state with the random numbers of another."""
    if isinstance(state, Mapping):
        return {
            key: other[key] if "stream" in str(key) else with_streams(value, other[key])
            for key, value in state.items()
        }
    if isinstance(state, list) and isinstance(other, list) and len(state) == len(other):
        return [with_streams(*pair) for pair in zip(state, other, strict=True)]
    return state


def unlike(one, other, those, place="state"):
    """Places at which what a state holds of these replicates is not the same."""
    if isinstance(one, Mapping):
        return [
            found
            for key in one.keys() & other.keys() - NOT_COMPARED
            for found in unlike(one[key], other[key], those, f"{place}[{key!r}]")
        ]
    if isinstance(one, list) and len(one) == len(other) == S:
        pairs = [(one[k], other[k]) for k in range(S) if those[k] and not isinstance(one[k], Mapping)]
        return [place] if any(str(a) != str(b) for a, b in pairs) else []
    if isinstance(one, int) and "clock" in place:
        return [] if bool((torch.as_tensor(other).expand(S)[those] == one).all()) else [place]
    if isinstance(one, torch.Tensor) and one.shape[:1] == (S,):
        other = torch.as_tensor(other)  # a clock of all replicates is a number
        if other.dim() in (0, one.dim()) and other.shape[1:] in (one.shape[1:], ()):
            same = torch.allclose(one[those], other.expand_as(one)[those], equal_nan=True)
            return [] if same else [place]
    return []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", [SOME, None], ids=["some", "all"])
@pytest.mark.parametrize("name", [*recipes.RECIPES, *all_recipes.WITH_SETTINGS])
def test_every_recipe_begins_anew_where_it_is_told_to(name, where):
    if where is not None and name in TOGETHER:
        return
    # Those find changes late.
    before, after = (80, 40) if recipes.registered(name.split("-")[0]).belief is None else (14, 10)
    policy, fresh = (all_recipes.build(name, S, before + after, num_arms=5)[0] for _ in range(2))
    play(policy, 0, before)
    undisturbed = copy.deepcopy(policy)
    # A reset does not turn them back.
    fresh.load_state_dict(with_streams(fresh.state_dict(), policy.state_dict()))
    policy.reset(where)
    fresh.reset(where)  # it may draw
    ours, new, old = (play(one, before, after) for one in (policy, fresh, undisturbed))
    begun = torch.ones(S, dtype=torch.bool) if where is None else where
    for one, arms, those in ((fresh, new, begun), (undisturbed, old, ~begun)):
        assert torch.equal(ours[:, those], arms[:, those])
        assert unlike(policy.state_dict(), one.state_dict(), those) == []
    for note in policy.trace():
        value, anew, on = (
            torch.as_tensor(one.trace()[note]).expand(S) for one in (policy, fresh, undisturbed)
        )
        torch.testing.assert_close(value[begun], anew[begun], msg=note)
        torch.testing.assert_close(value[~begun], on[~begun], msg=note)
