"""Compiled blocks choose what plain steps choose, leave the policy where these would have, and say what they played."""

import sys

import pytest
import torch

from bandits_torch import ArmGP, ThompsonSampling, UpperConfidenceBound, make, recipes, run
from bandits_torch.captured import blocks
from bandits_torch.captured.blocks import compiled_blocks
from bandits_torch.experiments import race
from bandits_torch.models.arms import covariance_form
from bandits_torch.policies import IndexPolicy, SlidingWindow
from bandits_torch.problems import Replay
from bandits_torch.theory import ConstantWidth, IGPWidth, RealisedGain
from tests.captured.test_captured_runs import (
    CASES,
    FACTOR,
    HORIZON,
    REPLICATES,
    averaging,
    built,
    equal_at_first,
    in_doubt,
    knows_its_scale,
    plain_run,
    same,
    same_run_and_books,
    two_values,
)

numba = pytest.importorskip("numba", reason="the extra `fast` is not installed")

COMPILED = [name for name in CASES if name not in FACTOR and "et_gp_ucb" not in name]


@pytest.fixture(autouse=True)
def compiled_calls(plain_calls, monkeypatch):
    monkeypatch.setattr(blocks, "compiled_blocks", compiled_blocks)


def steps_of(history):
    """How many were compiled, and how many were played otherwise within blocks."""
    first, second = history.meta["steps"].split(", ")
    return int(first.split()[0]), int(second.split()[0])


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_run_is_the_plain_run(name):
    history, policy, plain = same_run_and_books(name, 1e-9, 1e-8)
    one_by_one = name.startswith(("sw_", "tv_", "ui_")) or "drift" in name  # the first of their kind
    assert steps_of(history) == (HORIZON - one_by_one, 0)
    (_, covariance), (_, covariance_plain) = policy.model.joint(), plain.model.joint()
    torch.testing.assert_close(covariance, covariance_plain, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["sw_gp_ucb", "tv_gp_ucb", "gp_ts"])
def test_so_it_is_in_short_blocks(name):
    same(run(*built(name), HORIZON, seed=7, capture=7), plain_run(name)[0], 1e-9)


@pytest.mark.parametrize("name", ["igp_ucb", "gp_ei", "gp_ts", "sw_gp_ucb", "r_gp_ucb"])
def test_so_it_is_where_rows_wait_to_be_folded(name, monkeypatch):
    monkeypatch.setattr(covariance_form, "WAITS_FROM", 0)
    test_a_compiled_run_is_the_plain_run(name)


@pytest.mark.parametrize("blocks", [5, True])
@pytest.mark.parametrize("window", [1, 40])
def test_so_it_is_of_draws_from_a_window(window, blocks):
    def build():
        problem = make("gp", replicates=REPLICATES, num_arms=20, seed=3)
        model = ArmGP(problem.arms, problem.knowledge.kernel, 0.01, batch_shape=(REPLICATES,))
        return IndexPolicy(model, ThompsonSampling, forgetting=SlidingWindow(window), seed=5), problem

    (plain, problem), (policy, _) = build(), build()
    expected, history = run(plain, problem, 120), run(policy, problem, 120, capture=blocks)
    assert steps_of(history) == (119, 0)
    same(history, expected, 1e-9)
    torch.testing.assert_close(policy.model.joint(), plain.model.joint(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["igp_ucb", "gp_ts", "gp_ei", "gp_pi, of rewards", "et_gp_ucb, restarts"])
def test_every_replicate_keeps_its_own_count_of_rewards_after_a_reset_of_some(name):
    runs = []
    for capture in (False, 7):
        policy, problem = built(name)
        run(policy, problem, 20, seed=7, capture=capture)
        policy.reset(torch.tensor([False, True, False]))
        runs.append((run(policy, problem, 30, seed=8, capture=capture), policy))
    (expected, plain), (history, policy) = runs
    same(history, expected, 1e-9)
    assert torch.equal(policy.clock, plain.clock)
    assert policy.clock.unique().numel() > 1


@pytest.mark.parametrize("name", ["igp_ucb", "et_gp_ucb, restarts", "igp_ucb, factor"])
def test_without_numba_and_where_the_loop_cannot_blocks_are_plain_calls(name, monkeypatch):
    if name == "igp_ucb":
        monkeypatch.setitem(sys.modules, "numba", None)
    policy, problem = built(name)
    history = run(policy, problem, 40, seed=7, capture=True)
    assert history.meta["steps"] in ("plain calls", "0 compiled, 40 in plain calls")


@pytest.mark.parametrize(("capture", "steps"), [("auto", "one by one"), (True, "plain calls")])
def test_auto_without_numba_is_in_plain_calls_only_where_asked_for(capture, steps, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    problem = make("gp", num_arms=12, replicates=REPLICATES)
    policy = recipes.build("auto", problem, replicates=REPLICATES, horizon=10)
    assert run(policy, problem, 10, capture=capture).meta["steps"] == steps


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


def same_as_plain(build, horizon=HORIZON, blocks=True):
    """The runs of two policies that ``build`` gives with their problem, plain and compiled, agree; the latter's."""
    (plain, problem), (policy, _) = build(), build()
    expected = run(plain, problem, horizon, seed=7)
    history = run(policy, problem, horizon, seed=7, capture=blocks)
    same(history, expected, 1e-9)
    torch.testing.assert_close(moments_of(policy), moments_of(plain), rtol=1e-8, atol=1e-9)
    states, states_plain = (one.state_dict() for one in (policy, plain))
    for name in ("sharing", "scale", "two_values", "frame", "looks", "range", "pulled"):
        torch.testing.assert_close(states[name], states_plain[name], rtol=1e-8, atol=1e-9, equal_nan=True)
    # A plain step goes on where a compiled one stopped.
    time = problem.time(horizon + 1)
    assert torch.equal(policy.choose(time).arm, plain.choose(time).arm)
    return history, policy


def moments_of(policy):
    return (*policy.model.marginals(), policy.model.covariance_with(torch.arange(policy.replicates)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["switching", "tv-gp", "masked arms", "a kernel told"])
def test_auto_is_compiled_and_chooses_what_plain_steps_choose(name):
    history, _ = same_as_plain(lambda: averaging(name))
    assert steps_of(history) == (HORIZON - 5, 0)
    if name == "switching":
        assert history.trace["resets"].max() > 5  # members did start anew


def test_so_it_is_in_short_blocks_and_with_roughness_in_what_is_told():
    def build():
        problem = make("gp", num_arms=20, replicates=2, seed=4)
        told = {"kernel": problem.knowledge.kernel, "noise_variance": problem.knowledge.noise_variance}
        return recipes.auto(problem.arms, **told, replicates=2, width=0.6, look_again=0.3), problem

    same_as_plain(build, 90, 7)


def test_rewards_in_doubt_are_in_doubt_in_the_compiled_loop(monkeypatch):
    far = {20: [-80.0, -90.0, 0.0], 21: [0.0, -95.0, 99.0], 40: [0.0, 0.0, 400.0], 41: [0.0, 0.0, 420.0]}
    _, policy = same_as_plain(lambda: in_doubt(monkeypatch, far), 60)
    assert policy.range.doubted.tolist() == [1, 1, 2]


def test_rewards_of_two_values_have_no_outliers_in_the_compiled_loop():
    history, _ = same_as_plain(lambda: two_values((40,)), 60)
    assert steps_of(history)[0] > 40


def test_a_block_of_auto_that_the_loop_cannot_play_is_played_as_it_is():
    history, _ = same_as_plain(lambda: averaging("low rank"), 20)  # of 510 arms
    assert history.meta["steps"] == "plain calls"
    history, _ = same_as_plain(equal_at_first, 60)  # no unit until they differ
    assert min(steps_of(history)) > 0


@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_members_that_know_their_scale_and_unit_are_compiled(rate):
    history, _ = same_as_plain(lambda: knows_its_scale(rate, look_again=2.0, try_all=rate > 0), 60)
    assert steps_of(history) == (55, 0)


@pytest.mark.filterwarnings("ignore:.*suggest a value outside")
def test_a_bound_is_the_same_in_any_unit_of_rewards():
    """Variances of 1e-24 are far from 0 where rewards are 1e-12."""

    def played(unit, **options):
        table = torch.rand(60, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        problem = Replay(unit * table, history=unit * table[:5])
        model = ArmGP(12, unit**2 * torch.eye(12).double(), 0.05 * unit**2)
        return run(IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(2.0)), problem, 60, **options)

    runs = [played(1.0), played(2.0**-40), played(2.0**-40, capture=True)]
    assert steps_of(runs[2])[0] > 0
    assert len(runs[0].arms.unique()) == 12
    for history in runs[1:]:
        assert torch.equal(history.arms, runs[0].arms)


def test_a_reward_that_changes_the_unit_is_not_learned_in_a_compiled_block():
    table = torch.randn(60, 5, generator=torch.Generator().manual_seed(2)).double()
    table[[14, 16, 22]] += torch.tensor([[-1e8], [1e8], [1.4e8]])

    def played(capture):
        problem = Replay(table, history=table[:5])
        return run(recipes.auto(5), problem, 40, capture=capture)

    captured, plain = played("auto"), played(False)
    same(captured, plain, 1e-9)
    assert min(steps_of(captured)) > 0
