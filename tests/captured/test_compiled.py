"""Compiled blocks choose what plain steps choose, leave the policy where these would have, and say what they played."""

import sys

import pytest
import torch

from bandits_torch import make, recipes, run
from bandits_torch.captured import playing
from bandits_torch.captured.compiled_blocks import compiled_blocks
from bandits_torch.experiments import race
from bandits_torch.theory import IGPWidth, RealisedGain
from tests.captured.test_captured_runs import CASES, FACTOR, HORIZON, REPLICATES, books, built, same

numba = pytest.importorskip("numba", reason="the extra `fast` is not installed")

COMPILED = [name for name in CASES if name not in FACTOR and "et_gp_ucb" not in name]


@pytest.fixture(autouse=True)
def compiled_calls(plain_calls, monkeypatch):
    monkeypatch.setattr(playing, "compiled_blocks", compiled_blocks)


def steps_of(history):
    """How many were compiled, and how many were played otherwise within blocks."""
    first, second = history.meta["steps"].split(", ")
    return int(first.split()[0]), int(second.split()[0])


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_run_is_the_plain_run(name):
    plain, problem = built(name)
    expected = run(plain, problem, HORIZON, seed=7)
    policy, problem = built(name)
    history = run(policy, problem, HORIZON, seed=7, capture=True)
    done, otherwise = steps_of(history)
    one_by_one = {"sw_gp_ucb": 1, "tv_gp_ucb": 1, "ui_gp_ucb": 1}.get(
        name.split(",")[0], 0
    )  # the first of their kind
    assert (done, otherwise) == (HORIZON - one_by_one, 0)
    same(history, expected, 1e-9)
    (held, moments), (held_plain, moments_plain) = books(policy), books(plain)
    for ours, theirs in zip(held, held_plain, strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(moments, moments_plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)
    (_, covariance), (_, covariance_plain) = policy.model.joint(), plain.model.joint()
    torch.testing.assert_close(covariance, covariance_plain, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["sw_gp_ucb", "tv_gp_ucb", "gp_ts"])
def test_so_it_is_in_short_blocks(name):
    plain, problem = built(name)
    policy, _ = built(name)
    same(run(policy, problem, HORIZON, seed=7, capture=7), run(plain, problem, HORIZON, seed=7), 1e-9)


@pytest.mark.parametrize("name", ["igp_ucb", "et_gp_ucb, restarts", "igp_ucb, factor"])
def test_without_numba_and_where_the_loop_cannot_blocks_are_plain_calls(name, monkeypatch):
    if name == "igp_ucb":
        monkeypatch.setitem(sys.modules, "numba", None)
    policy, problem = built(name)
    history = run(policy, problem, 40, seed=7, capture=True)
    assert history.meta["steps"] in ("plain calls", "0 compiled, 40 in plain calls")


def test_float32_is_played_as_it_is():
    problem = make("gp", num_arms=12, replicates=REPLICATES).to(torch.float32)
    policy = recipes.build("gp_ucb", problem, replicates=REPLICATES, horizon=40)
    assert steps_of(run(policy, problem, 40, capture=True)) == (0, 40)


class Wider(IGPWidth):
    """Says at what its base's root does not."""

    def at(self, step, model):
        return 2 * super().at(step, model)


def test_a_width_that_says_otherwise_than_its_base_is_not_compiled():
    problem = make("gp", num_arms=12, replicates=REPLICATES)
    histories = []
    for capture in (False, True):
        policy = recipes.build(
            "gp_ucb", problem, replicates=REPLICATES, horizon=40, width=Wider(1.0, None, 0.1, RealisedGain())
        )
        histories.append(run(policy, problem, 40, capture=capture))
    same(*histories)
    assert steps_of(histories[1]) == (0, 40)


def test_auto_plays_what_cannot_be_captured_step_by_step():
    problem = make("gp", num_arms=12, replicates=REPLICATES)

    def policies():
        names = ("random", "igp_ucb")
        return {name: recipes.build(name, problem, replicates=REPLICATES, horizon=30) for name in names}

    ours, theirs = race(policies(), problem, 30, capture="auto"), race(policies(), problem, 30)
    for name in ours:
        same(ours[name], theirs[name], 1e-9)
    assert ours["random"].meta["steps"] == "one by one"
    assert steps_of(ours["igp_ucb"]) == (30, 0)
    with pytest.raises(ValueError, match="RandomPolicy cannot be captured"):
        race(policies(), problem, 30, capture=True)
    with pytest.raises(ValueError, match="capture"):
        run(policies()["igp_ucb"], problem, 30, capture="always")
