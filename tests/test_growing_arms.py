"""Arms that come while a live system runs are as if they had been there and never played; those that go are never
asked again. One law over every recipe."""

import copy
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bandits_torch import AskTell, load_policy, recipes, save_policy
from bandits_torch.policies import Observation
from bandits_torch.state import differing
from tests.reference import all_recipes

S, BEFORE, AFTER, MORE = 2, 40, 30, 3
HORIZON = BEFORE + AFTER
REFUSE = {  # and a word of why
    "bkb": "SketchedGP",
    "bbkb": "SketchedGP",
    "opkb": "designs over the arms it began with",
    "ada_opkb": "designs over the arms it began with",
    "opnn": "designs over the arms it began with",
    "ada_opnn": "designs over the arms it began with",
    "ada_opkb_calibrated": "designs over the arms it began with",
    "r_perp": "batches of the arms it began with",
}
# Where a new arm is not as one that was there: exp3_s gives it the average weight.
OTHERWISE = {"exp3_s"}
OWN = {"auto": {"look_again": 0.0}}  # a new arm's clock begins when it comes: a test of its own
GROW = [name for name in recipes.RECIPES if name not in REFUSE]
X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
KERNEL = RBFKernel().double()
KERNEL.lengthscale = 0.2


def pair(name, replicates=S):
    """A policy over the first of the arms of a problem, one that has all from the start, and what new arms are told."""
    warnings.simplefilter("ignore")
    origin = all_recipes.build(name, replicates, HORIZON)[0].origin
    setup, options = origin.setup, origin.options | OWN.get(name, {})
    arms = setup.choices
    n = len(arms) - MORE
    few, told = {"choices": arms[:n]}, {"features": arms[n:]}
    if setup.priors:  # one mean for all arms each
        setup = replace(setup, priors=[replace(one, mean=0.1 * k) for k, one in enumerate(setup.priors)])
    if setup.prior is not None:
        setup = replace(setup, prior=replace(setup.prior, mean=0.1))
    if isinstance(setup.prior_mean, Tensor) and setup.prior_mean.dim():
        few["prior_mean"], told["prior_mean"] = setup.prior_mean[:n], setup.prior_mean[n:]
    if isinstance(setup.kernel, Tensor):
        few["kernel"], told["covariance"] = setup.kernel[:n, :n], setup.kernel
    small = origin.recipe(replace(setup, **few), **options)
    return small, origin.recipe(replace(setup, grown_from=n), **options), told


def reward_of(arm, generator):
    return (
        0.3 * torch.randn(len(arm), generator=generator, dtype=torch.float64) + (arm == 2) - 0.5 * (arm == 5)
    )


def told_both(live, twin, steps, generator, start=0, mask=None):
    """Both learn what the live one asks, and were asked at the same times."""
    asked = []
    for step in range(start, start + steps):
        question = live.ask(step + 1.0)
        why = live.state_dict()["open"][-1][3]
        chosen = twin.choose(step + 1.0, mask)
        asked.append((question.arm, chosen.arm))
        reward = reward_of(question.arm, generator)
        assert live.tell(question.id, reward)
        twin.learn(Observation(step + 1.0, question.arm, reward, why))
    return asked


def same_draws(twin, policy):
    """The twin goes on with the random numbers of the other, of which it has used as many, or others."""
    own, other = twin.state_dict(), policy.state_dict()
    twin.load_state_dict(with_streams_of(own, other))


def with_streams_of(own, other, key=""):
    if "streams" in str(key):
        return other
    if isinstance(own, dict):
        return {name: with_streams_of(value, other.get(name, value), name) for name, value in own.items()}
    if isinstance(own, list) and len(own) == len(other):
        return [with_streams_of(one, two) for one, two in zip(own, other, strict=True)]
    return own


@pytest.mark.parametrize("name", GROW)
def test_a_new_arm_is_as_if_it_had_been_there_and_never_played(name):
    small, twin, told = pair(name)
    live, generator = AskTell(small), torch.Generator().manual_seed(1)
    n = small.num_arms
    hidden = torch.arange(n + MORE) < n
    told_both(live, twin, BEFORE, generator, mask=hidden)
    late = live.ask(BEFORE + 0.5)
    why = live.state_dict()["open"][-1][3]

    assert live.add_arms(MORE, **told) == tuple(range(n, n + MORE))
    assert live.num_arms == n + MORE
    reward = reward_of(late.arm, generator)
    assert live.tell(late.id, reward)  # asked of the smaller set
    twin.learn(Observation(BEFORE + 0.5, late.arm, reward, why))
    same_draws(twin, live.policy)
    if name == "gp_ts":
        twin.model.rebuild()  # a root of the covariance taken anew, as the other's is: the draws are the same then
    if hasattr(twin, "marginals") and name not in ("cgp_ucb", "tv_cgp_ucb"):
        at = BEFORE + 0.75
        for ours, theirs in zip(live.policy.marginals(at), twin.marginals(at), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    if name not in OTHERWISE:
        asked = told_both(live, twin, AFTER, generator, start=BEFORE + 1)
        assert all(torch.equal(ours, theirs) for ours, theirs in asked)
    else:
        told_both(live, twin, AFTER, generator, start=BEFORE + 1)


@pytest.mark.parametrize("name", REFUSE)
def test_who_cannot_take_up_arms_says_why_and_stays_as_it_was(name):
    small, _, told = pair(name)
    live = AskTell(small)
    for step in range(5):
        question = live.ask(step + 1.0)
        live.tell(question.id, torch.zeros(S, dtype=torch.float64))
    before, again = live.state_dict(), copy.deepcopy(live)
    with pytest.raises(ValueError, match=REFUSE[name]):
        live.add_arms(MORE, **told)
    assert not differing(before, live.state_dict())
    assert torch.equal(live.ask(9.0).arm, again.ask(9.0).arm)


def test_the_page_lists_those_who_refuse():
    page = (Path(__file__).parent.parent / "docs" / "live.md").read_text(encoding="utf-8")
    section = page.split("## Arms that come and go")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    named = {word for row in rows for word in re.findall(r"`(\w+)`", row) if word in recipes.RECIPES}
    assert named == set(REFUSE) | OTHERWISE


@pytest.mark.parametrize("name", [*GROW, "bkb", "bbkb"])
def test_a_retired_arm_is_never_asked_again_and_its_late_reward_counts(name):
    small, _, _ = pair(name)
    live, generator = AskTell(small), torch.Generator().manual_seed(2)
    for step in range(10):
        question = live.ask(step + 1.0)
        live.tell(question.id, reward_of(question.arm, generator))
    late = live.ask(11.0)
    gone = sorted({int(late.arm[0]), 2})
    live.retire_arms(gone)
    assert live.retired == tuple(gone)
    before = live.policy.state_dict()
    assert live.tell(late.id, reward_of(late.arm, generator))
    if name != "random":
        assert differing(before, live.policy.state_dict())
    for step in range(12, 30):
        question = live.ask(float(step))
        assert not set(question.arm.tolist()) & set(gone)
        live.tell(question.id, reward_of(question.arm, generator))
    live.add_arms(gone)
    assert live.retired == ()


@pytest.mark.parametrize("name", [name for name in all_recipes.KINDS if name not in REFUSE])
def test_a_system_that_has_grown_is_taken_up_by_one_that_began_as_it_did(name, tmp_path):
    small, _, told = pair(name)
    fresh = AskTell(copy.deepcopy(small))
    live, generator = AskTell(small), torch.Generator().manual_seed(3)
    for step in range(8):
        question = live.ask(step + 1.0)
        live.tell(question.id, reward_of(question.arm, generator))
    open_before = live.ask(9.0)
    live.add_arms(
        1, **{key: value[..., :1, :] if key == "features" else value[..., :1] for key, value in told.items()}
    )
    live.add_arms(
        2, **{key: value[..., 1:, :] if key == "features" else value[..., 1:] for key, value in told.items()}
    )
    live.retire_arms([1, small.num_arms])
    live.ask(10.0)
    save_policy(tmp_path / "live.state", live)
    load_policy(tmp_path / "live.state", fresh)
    assert not differing(live.state_dict(), fresh.state_dict())
    assert fresh.num_arms == small.num_arms + 3
    assert fresh.retired == live.retired == (1, small.num_arms)
    for one in (live, fresh):
        assert one.tell(open_before.id, torch.ones(S, dtype=torch.float64))
    for step in range(11, 20):
        ours, theirs = live.ask(float(step)), fresh.ask(float(step))
        assert torch.equal(ours.arm, theirs.arm)
        for one, question in ((live, ours), (fresh, theirs)):
            one.tell(question.id, (question.arm == 3).double())
    assert not differing(live.state_dict(), fresh.state_dict())
