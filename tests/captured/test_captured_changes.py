"""Plain and captured steps in one run, checkpoints between them, and tensors that stay where a graph reads them."""

import signal

import pytest
import torch

from bandits_torch import ArmGP, IndexPolicy, ThompsonSampling, UpperConfidenceBound, make, recipes, run
from bandits_torch.captured import blocks
from bandits_torch.captured.blocks import compiled_blocks
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models.arms import arm_gp, belief
from bandits_torch.policies import EventTriggeredRestart, PeriodicRestart
from bandits_torch.state import differing
from bandits_torch.theory import ConstantWidth
from tests.captured.test_captured_runs import HORIZON, averaging, built, plain_auto, plain_run, same


class Stopped(KeyboardInterrupt):
    pass


def interrupted(make_one, path, first, then, at, monkeypatch):
    """The run stopped after step ``at``, captured or not, and gone on with from its checkpoint, captured or not."""
    policy, problem = make_one()
    options = {"seed": 7, "checkpoint": path, "every": 30}

    def stops(self, step):
        if step > at:
            raise Stopped

    with monkeypatch.context() as stopped:
        stopped.setattr(type(problem), "available", stops)
        with pytest.raises(Stopped):
            run(policy, problem, HORIZON, capture=first, **options)
    return run(*make_one(), HORIZON, capture=then, **options)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    "name", ["sw_gp_ucb", "tv_gp_ucb", "et_gp_ucb, restarts", "et_gp_ucb, none", "gp_ts", "sw_gp_ucb, factor"]
)
def test_a_checkpoint_is_taken_up_captured_or_not_as_asked(name, first, then, tmp_path, monkeypatch):
    expected, _ = plain_run(name)
    resumed = interrupted(lambda: built(name), tmp_path / "run", first, then, 70, monkeypatch)
    same(resumed, expected)


@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True), (True, True)])
def test_so_is_one_of_auto(first, then, tmp_path, monkeypatch):
    expected, _ = plain_auto("tv-gp")
    same(
        interrupted(lambda: averaging("tv-gp"), tmp_path / "run", first, then, 70, monkeypatch), expected, 0.0
    )


def drawn(interval):
    problem = make("gp", replicates=3, num_arms=30, seed=3)
    model = ArmGP(problem.arms, problem.knowledge.kernel, 0.01, batch_shape=(3,))
    return IndexPolicy(model, ThompsonSampling, forgetting=PeriodicRestart(interval), seed=5), problem


def test_a_root_made_anew_after_a_restart_is_another_function(replayed):
    policy, problem = drawn(40)
    same(run(policy, problem, HORIZON, seed=7, capture=True), run(*drawn(40), HORIZON, seed=7))
    assert replayed.again
    assert torch.equal(policy.restarts, torch.full((3,), HORIZON // 40))


@pytest.mark.parametrize(("noise_scale", "restarts"), [(0.02, True), (10.0, False)])
def test_a_replicate_that_restarts_begins_with_the_prior_variance_of_then(noise_scale, restarts, replayed):
    """Which grows with time under a Wiener process."""
    histories = []
    for capture in (False, 8):
        problem = make("switching", replicates=3, num_arms=12, horizon=HORIZON, seed=3)
        kernel = SpatioTemporalKernel(problem.knowledge.kernel, WienerKernel(0.02))
        model = ArmGP(problem.arms, kernel, 0.01, batch_shape=(3,))
        rule = EventTriggeredRestart(0.5, noise_scale=noise_scale)
        policy = IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(2.0), forgetting=rule)
        histories.append(run(policy, problem, HORIZON, seed=7, capture=capture))
    same(*histories)
    assert (policy.restarts.sum() > 0) == restarts


def test_room_made_anew_of_the_same_size_is_another_function(replayed):
    """Under fast drift the points that fade make room for as many new ones."""
    problem = make("gp", replicates=3, num_arms=30, seed=3)
    kernel = SpatioTemporalKernel(problem.knowledge.kernel, ExponentialForgettingKernel(0.5))
    histories = []
    for capture in (False, True):
        model = ArmGP(problem.arms, kernel, 0.01, batch_shape=(3,), form="factor")
        policy = IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(2.0))
        histories.append(run(policy, problem, HORIZON, seed=7, capture=capture))
    same(*histories)
    assert replayed.again


def changing(name, monkeypatch, capture):
    """A run in which the factor form gives way to the covariance form: its history, and after which step it did."""
    monkeypatch.setattr(arm_gp, "covariance_pays", lambda *_: False)
    monkeypatch.setattr(belief, "covariance_pays", lambda mean, drifts, room, rows: rows > 8)
    policy, problem = built(name)
    after, change = [], policy.model.belief._change_over

    def noted(form):
        after.append(policy.model.belief._learned)
        change(form)

    monkeypatch.setattr(policy.model.belief, "_change_over", noted)
    return run(policy, problem, HORIZON, seed=7, capture=capture), after


@pytest.mark.parametrize("capture", [7, True])
@pytest.mark.parametrize("numba", [False, True])
@pytest.mark.parametrize("name", ["gp_ucb, constant", "igp_ucb, prior mean", "sw_gp_ucb", "tv_gp_ucb"])
def test_captured_steps_change_form_after_the_step_that_plain_steps_would(name, numba, capture, monkeypatch):
    if numba:
        pytest.importorskip("numba", reason="the extra `fast` is not installed")
        monkeypatch.setattr(blocks, "compiled_blocks", compiled_blocks)
    expected, step = changing(name, monkeypatch, False)
    history, after = changing(name, monkeypatch, capture)
    assert after == step
    assert 10 < step[0] < HORIZON
    same(history, expected, 1e-9)


def test_draws_that_begin_in_the_factor_form_are_captured(monkeypatch):
    monkeypatch.setattr(arm_gp, "covariance_pays", lambda *_: False)
    same(run(*built("gp_ts"), HORIZON, seed=7, capture=True), run(*built("gp_ts"), HORIZON, seed=7))


@pytest.mark.parametrize("name", ["ucb1", "tv_gp_ucb", "auto"])
def test_an_interrupt_waits_for_the_end_of_its_block(monkeypatch, name):
    """And leaves the policy after a whole step."""
    problem = make("switching", num_arms=5, horizon=96)
    interrupted, other = (recipes.build(name, problem, replicates=2, horizon=96) for _ in range(2))
    draw, calls = blocks.pulled, []

    def pulled(*given):
        calls.append(given)
        if len(calls) == 45:
            signal.raise_signal(signal.SIGINT)
        return draw(*given)

    monkeypatch.setattr(blocks, "pulled", pulled)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(interrupted, problem, 96, capture=True)
    reached = int(str(stopped.value).split()[2])
    assert reached >= 45
    run(other, problem, reached, capture=True)
    found = differing(interrupted.state_dict(), other.state_dict())
    assert [one for one in found if ".observations." not in one] == []  # which have room for a longer run
