"""Captured steps give what plain steps give, and leave the policy where plain steps would have left it."""

import functools
from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import make, recipes, run
from bandits_torch.captured import play_captured
from bandits_torch.captured.blocks import PlainCalls, ProblemInputs
from bandits_torch.captured.steps import AveragingSteps
from bandits_torch.history import Recorder
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import ArmMembers, LevelMembers
from bandits_torch.models.arms import covariance_form
from bandits_torch.policies import ModelAveraging, Observation
from bandits_torch.problems import Replay, StationaryProblem
from bandits_torch.state_files import described
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory import GPTSWidth, GrowthBound, SrinivasRKHSWidth

HORIZON, REPLICATES = 150, 3
TOLERANCE = 1e-11
OFTEN = {"delta": 0.5, "noise_scale": 0.05}  # restarts, in each replicate at steps of its own
LARGEST = {"incumbent": "reward"}
# Name: recipe, problem, its options, the recipe's options.
CASES = {
    "igp_ucb": ("igp_ucb", "gp", {"num_arms": 30}, {}),
    "igp_ucb, told the noise": ("igp_ucb", "gp", {"num_arms": 30}, {"noise_scale": 0.3}),
    "igp_ucb, printed": ("igp_ucb", "gp", {"num_arms": 30}, {"width_form": "printed"}),
    "igp_ucb, prior mean": ("igp_ucb", "gp", {"num_arms": 30}, {"prior_mean": 0.4}),
    "gp_ucb, constant": ("gp_ucb", "gp", {"num_arms": 30}, {"width": 2.0}),
    "gp_ucb, growth of the gain": (
        *("gp_ucb", "gp", {"num_arms": 30}),
        {"width": SrinivasRKHSWidth(2.0, 0.1, GrowthBound("matern", 1, 2.5))},
    ),
    "gp_ts, growth of the gain": (
        *("gp_ts", "gp", {"num_arms": 30}),
        {"width": GPTSWidth(2.0, 0.3, 0.1, GrowthBound("squared_exponential", 1), form="printed")},
    ),
    "gp_ucb, masked arms": ("gp_ucb", "variance-starvation", {"num_arms": 30}, {}),
    "gp_ts": ("gp_ts", "gp", {"num_arms": 30}, {}),
    "gp_ei": ("gp_ei", "gp", {"num_arms": 30}, {}),
    "gp_pi, every other arm": ("gp_pi", "gp", {"num_arms": 30}, {"prior_mean": 0.4}),
    "gp_ei, drift": ("gp_ei", "tv-gp", {"num_arms": 12}, {}),
    "gp_ei, of rewards, drift": ("gp_ei", "tv-gp", {"num_arms": 12}, LARGEST),
    "gp_ei, of rewards, every other arm": ("gp_ei", "gp", {"num_arms": 30}, LARGEST),
    "gp_pi, of rewards": ("gp_pi", "gp", {"num_arms": 30}, LARGEST),
    "sw_gp_ucb": ("sw_gp_ucb", "switching", {"num_arms": 30, "horizon": HORIZON}, {"window": 40}),
    "sw_gp_ucb, short window": ("sw_gp_ucb", "gp", {"num_arms": 30}, {"window": 3}),
    "sw_gp_ucb, window of 1": ("sw_gp_ucb", "gp", {"num_arms": 30}, {"window": 1}),
    "r_gp_ucb": ("r_gp_ucb", "gp", {"num_arms": 30}, {"interval": 50}),
    "r_gp_ucb, every step": ("r_gp_ucb", "gp", {"num_arms": 30}, {"interval": 1}),
    "tv_gp_ucb": ("tv_gp_ucb", "tv-gp", {"num_arms": 30}, {}),
    "ui_gp_ucb": ("ui_gp_ucb", "tv-gp", {"num_arms": 30}, {}),
    "et_gp_ucb, restarts": ("et_gp_ucb", "gp", {"num_arms": 30}, OFTEN),
    "et_gp_ucb, drift": ("et_gp_ucb", "tv-gp", {"num_arms": 12}, OFTEN),
    "et_gp_ucb, none": ("et_gp_ucb", "gp", {"num_arms": 30}, {}),
    "igp_ucb, factor": ("igp_ucb", "gp", {"num_arms": 30}, {"form": "factor"}),
    "sw_gp_ucb, factor": ("sw_gp_ucb", "gp", {"num_arms": 30}, {"form": "factor", "window": 20}),
    "tv_gp_ucb, factor": ("tv_gp_ucb", "tv-gp", {"num_arms": 30}, {"form": "factor"}),
    "ui_gp_ucb, factor": ("ui_gp_ucb", "tv-gp", {"num_arms": 30}, {"form": "factor"}),
    "et_gp_ucb, factor": ("et_gp_ucb", "gp", {"num_arms": 30}, OFTEN | {"form": "factor"}),
}


AVERAGING = {  # problem, its options, what auto is told of it
    "switching": ("switching", {"num_arms": 20, "horizon": HORIZON}, ()),
    "tv-gp": ("tv-gp", {"num_arms": 12}, ()),
    "low rank": ("gp", {"num_arms": 510}, ()),
    "masked arms": ("variance-starvation", {"num_arms": 14}, ()),
    "a kernel told": ("gp", {"num_arms": 20}, ("kernel", "noise_variance")),
    "a shared level": ("switching", {"num_arms": 8, "horizon": HORIZON}, ("shared_level",)),
}


def averaging(name, device="cpu"):
    problem, options, told = AVERAGING[name]
    problem = make(problem, replicates=3, seed=3, **options).to(device)
    told = {what: getattr(problem.knowledge, what, True) for what in told}
    return recipes.auto(problem.arms, **told, replicates=3), problem


def built(name, replicates=REPLICATES, first=0, device="cpu"):
    recipe, problem, of_problem, options = CASES[name]
    problem = make(problem, replicates=replicates, seed=3, first_replicate=first, **of_problem).to(device)
    if "drift" in name:
        kernel = SpatioTemporalKernel(RBFKernel().double(), ExponentialForgettingKernel(0.1))
        problem.knowledge = replace(problem.knowledge, kernel=kernel.to(device))
    if "every other arm" in name:
        problem.available = lambda step: torch.arange(problem.num_arms, device=device) % 2 == step % 2
    policy = recipes.build(
        recipe, problem, replicates=replicates, horizon=HORIZON, seed=5, first_replicate=first, **options
    )
    return policy, problem


@functools.cache
def _played(name, waits_from):
    policy, problem = built(name)
    return run(policy, problem, HORIZON, seed=7), policy


def plain_run(name):
    """History and policy of plain steps, which several tests compare with and none changes."""
    return _played(name, covariance_form.WAITS_FROM)


@functools.cache
def plain_auto(name, horizon=HORIZON):
    policy, problem = averaging(name)
    return run(policy, problem, horizon, seed=7), policy


def in_doubt(monkeypatch, far, **told):
    means = torch.randn(3, 12, generator=torch.Generator().manual_seed(0)).double()
    problem = StationaryProblem(torch.arange(12).double().unsqueeze(-1), means, 0.1)
    noise = problem.noise
    monkeypatch.setattr(
        problem, "noise", lambda step, *rest: noise(step, *rest) + torch.tensor(far.get(step, 0.0)).double()
    )
    return recipes.auto(12, replicates=3, **told), problem


def equal_at_first(rounding=0.0):
    """``auto`` and a problem without noise, most of whose arms pay the same: there is no unit until one differs."""
    functions = torch.where(torch.arange(12) < 8, 3.0, 5.0).double().unsqueeze(0)
    functions[:, 2:8:3] += rounding
    problem = StationaryProblem(torch.arange(12).double().unsqueeze(-1), functions, 0.0)
    return recipes.auto(problem.arms, replicates=1), problem


def two_values(third=()):
    """``auto`` on a table of zeros and ones, and three halves in the rows of ``third``."""
    table = (torch.rand(80, 6, generator=torch.Generator().manual_seed(1)) < 0.15).double()
    table[list(third)] += 0.5
    return recipes.auto(6), Replay(table, history=table[:5])


def knows_its_scale(rate=None, **options):
    problem = make("gp", replicates=2, num_arms=12, seed=3)
    covariance = problem.knowledge.kernel(problem.arms).to_dense().detach()
    kernel, noise = torch.zeros(3, dtype=torch.long), torch.tensor([0.01, 0.1, 1.0]).double()
    rates = noise / 10 if rate is None else rate + 0 * noise
    model = ArmMembers(12, covariance.unsqueeze(0), kernel, noise, rates, replicates=2)
    return ModelAveraging(model, typical_gap=True, **options), problem


def same(ours, theirs, tolerance=TOLERANCE):
    """Two histories agree: the arms to the last, numbers up to rounding, the seconds not at all."""
    assert torch.equal(ours.arms, theirs.arms)
    assert torch.equal(ours.rewards, theirs.rewards)
    assert torch.equal(ours.expected_rewards, theirs.expected_rewards)
    assert torch.equal(ours.best, theirs.best)
    assert torch.equal(ours.times, theirs.times)
    assert set(ours.trace) == set(theirs.trace)
    for name, value in ours.trace.items():
        assert value.shape == theirs.trace[name].shape, name
        torch.testing.assert_close(
            value, theirs.trace[name], rtol=tolerance, atol=tolerance, equal_nan=True, msg=name
        )


def books(policy):
    model = policy.model
    arm, reward, time, valid = model.held()
    moments = (*model.marginals(), model.information_gain, model.log_likelihood)
    return (arm * valid, reward * valid, time * valid, model.num_observations), moments


def never_looks(monkeypatch):
    """Blocks look at no value, as on a GPU, though they are plain calls."""
    monkeypatch.setattr(PlainCalls, "blind", True)


FACTOR = [name for name in CASES if "factor" in name]
REFUSED = "ui_gp_ucb, factor"  # where no value may be looked at


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in CASES if name != REFUSED])
def test_a_captured_run_is_the_plain_run(name, replayed):
    same_run_and_books(name)
    assert replayed.again or "every step" in name


@pytest.mark.parametrize("name", ["igp_ucb", "gp_ts", "sw_gp_ucb", "et_gp_ucb, restarts"])
def test_so_it_is_where_rows_wait_to_be_folded(name, replayed, monkeypatch):
    monkeypatch.setattr(covariance_form, "WAITS_FROM", 0)
    same_run_and_books(name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FACTOR)
def test_so_it_is_where_blocks_may_look(name):
    same_run_and_books(name)


def same_run_and_books(name, tolerance=TOLERANCE, books_tolerance=1e-9):
    """A captured run is the plain run; its history, and both policies after it."""
    expected, plain = plain_run(name)
    captured, problem = built(name)
    history = run(captured, problem, HORIZON, seed=7, capture=True)
    same(history, expected, tolerance)
    (held, moments), (held_plain, moments_plain) = books(captured), books(plain)
    torch.testing.assert_close(held, held_plain, rtol=0, atol=0)
    torch.testing.assert_close(moments, moments_plain, rtol=books_tolerance, atol=books_tolerance / 10)
    assert torch.equal(captured.restarts, plain.restarts)
    if "of rewards" in name:
        assert torch.equal(captured.largest, plain.largest)
    assert torch.equal(torch.as_tensor(captured.clock), torch.as_tensor(plain.clock))
    if name == "et_gp_ucb, restarts":
        assert plain.restarts.sum() >= 2
        assert (plain.clock < HORIZON).any()
    return history, captured, plain


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in CASES if name != REFUSED])
def test_plain_steps_go_on_where_captured_ones_stopped_and_the_other_way_round(name, replayed):
    expected, _ = plain_run(name)
    arms = in_parts(*built(name), ((40, 8), (15, False), (HORIZON - 55, 5)))
    assert torch.equal(arms, expected.arms.mT)


def in_parts(policy, problem, parts):
    """The arms of steps in parts, each (how many, plain or in blocks of how many)."""
    streams, arms, done = ReplicateStreams(7, REPLICATES), [], 0
    for count, capture in parts:
        arms.append(continued(policy, problem, done, count, streams, capture))
        done += count
    return torch.cat(arms)


def continued(policy, problem, done, count, streams, capture):
    """The arms (count, S) of the steps after ``done``, plain or in blocks of ``capture``."""
    arms = torch.zeros(done + count, policy.replicates, dtype=torch.long)

    def plain(step):
        time, available = problem.time(step), problem.available(step)
        choice = policy.choose(time, available)
        arms[step - 1] = choice.arm
        reward = problem.pull(step, choice.arm, streams)
        policy.learn(Observation(time, choice.arm, reward, choice.why))

    if not capture:
        for step in range(done + 1, done + count + 1):
            plain(step)
        return arms[done:]

    class Kept(Recorder):
        def block(self, first, times, rows, seconds):
            arms[first - 1 : first - 1 + len(times)] = rows["arm"]

    end = done + count
    play_captured(
        policy, problem, end, done, streams, Kept(policy, problem, end), plain, lambda step: None,
        lambda step: end - step, capture,
    )  # fmt: skip
    return arms[done:]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("name", AVERAGING)
def test_a_captured_run_of_auto_is_the_plain_run(name, look, request):
    if not look:
        request.getfixturevalue("replayed")
    horizon = 40 if name == "low rank" else HORIZON
    expected, plain = plain_auto(name, horizon)
    captured, problem = averaging(name)
    same(run(captured, problem, horizon, seed=7, capture=True), expected, 0.0)
    state, plain_state = described(captured.state_dict()), described(plain.state_dict())
    assert {k: v for k, v in state.items() if plain_state[k] != v} == {}
    if name == "switching":
        assert expected.trace["resets"].max() > 5  # members did start anew


def plain_and_captured(build, capture=True, horizon=60):
    (plain, problem), (captured, other) = build(), build()
    expected = run(plain, problem, horizon, seed=7)
    same(run(captured, other, horizon, seed=7, capture=capture), expected, 0.0)
    assert described(plain.state_dict()) == described(captured.state_dict())
    return plain, captured


@pytest.mark.parametrize(
    ("far", "doubted"),
    [({}, [0, 0, 0]), ({2: 600.0, 20: [-80.0, -90.0, 0.0], 21: [0.0, -95.0, 99.0], 45: 9e9}, [3, 3, 2])],
)
def test_blocks_test_for_outliers_only_where_a_reward_can_be_one(far, doubted, replayed, monkeypatch):
    kinds, key = [], AveragingSteps.key

    def noted(steps):
        kinds.append((steps.model.now, steps.takes_all))
        return key(steps)

    monkeypatch.setattr(AveragingSteps, "key", noted)
    plain, _ = plain_and_captured(lambda: in_doubt(monkeypatch, far), 8)
    assert all(takes_all for now, takes_all in kinds if now > 25) == (far == {})
    assert sum(takes_all for _, takes_all in kinds) > len(kinds) // 3
    assert plain.range.doubted.tolist() == doubted


def test_a_level_that_jumps_is_forgotten_in_blocks(replayed, monkeypatch):
    """Noise that all arms share is such a level."""
    forgotten, forget = [], LevelMembers.forget_level

    def noted(members, where):
        forgotten.append((members.blind, where.any()))
        return forget(members, where)

    monkeypatch.setattr(LevelMembers, "forget_level", noted)
    far = {step: 4.0 * (step // 15 % 2) for step in range(61)}
    plain_and_captured(lambda: in_doubt(monkeypatch, far, shared_level=True), 8)
    assert (False, True) in [(blind, bool(any_)) for blind, any_ in forgotten]
    assert (True, True) in [(blind, bool(any_)) for blind, any_ in forgotten]


@pytest.mark.parametrize("third", [(), (40,)])
def test_rewards_of_two_values_have_no_outliers_in_blocks(third, replayed):
    plain, _ = plain_and_captured(lambda: two_values(third), 8)
    assert bool(plain.two_values.second.isinf()) == bool(third)


def test_blocks_test_for_looks_only_where_an_arm_can_be_due(replayed, monkeypatch):
    kinds, key = [], AveragingSteps.key

    def noted(steps):
        kinds.append(steps.looks)
        return key(steps)

    def often():
        policy, problem = averaging("a kernel told")
        policy.looks.every, policy.looks.at_once = 1.5, 1
        return policy, problem

    monkeypatch.setattr(AveragingSteps, "key", noted)
    plain_and_captured(often, 8)
    assert 0 < sum(kinds) < len(kinds)
    never, problem = averaging("a kernel told")
    never.looks.every = 1e9
    assert not torch.equal(run(never, problem, 60, seed=7).arms, run(*often(), 60, seed=7).arms)


@pytest.mark.parametrize("rounding", [0.0, 1e-9])
def test_rewards_that_differ_in_captured_steps_alone_give_auto_its_unit(rounding, replayed):
    plain, _ = plain_and_captured(lambda: equal_at_first(rounding))
    early, problem = equal_at_first(rounding)
    run(early, problem, 8, seed=7)
    assert not (early.frame.unit > 1e-6).any()
    assert (plain.frame.unit > 1.0).all()


def test_members_that_know_their_scale_are_averaged_the_same(replayed):
    plain_and_captured(knows_its_scale)


def test_captured_steps_are_given_widths_to_the_last_digit():
    policy, problem = averaging("tv-gp")
    policy.width, policy.wide = 0.3, 0.7
    run(policy, problem, 9, seed=7)
    steps = AveragingSteps(policy)
    steps.begin(2, 2)
    times = [problem.time(step) for step in (10, 11)]
    assert steps.most(times) == 2
    given = ProblemInputs(problem, ReplicateStreams(7, REPLICATES)).given(10, 2)
    assert steps.given(times, given)["width"].tolist() == [0.3, 0.7]


def test_auto_goes_on_plainly_where_captured_steps_stopped_and_the_other_way_round(replayed):
    expected, plain = plain_auto("tv-gp", 40)
    mixed, problem = averaging("tv-gp")
    arms = in_parts(mixed, problem, ((3, 8), (1, False), (10, 4), (7, False), (19, 8)))
    assert torch.equal(arms, expected.arms.mT)
    state, plain_state = described(mixed.state_dict()), described(plain.state_dict())
    assert {k: v for k, v in state.items() if plain_state[k] != v} == {}


def test_what_is_recorded_of_auto_gives_it_where_scales_are_unknown_again(replayed, monkeypatch):
    off = {42: [0.0, 0.0, 3e9], 66: [0.0, 5e9, 0.0], 90: [4e9, 0.0, 0.0]}
    far = off | {step + 1: reward for step, reward in off.items()}
    plain, _ = plain_and_captured(lambda: in_doubt(monkeypatch, far), horizon=173)
    assert (plain.frame.unit > 1e9).all()
    assert min(replayed.again[True], replayed.again[False]) > 1


def test_what_is_recorded_of_auto_gives_it_where_time_is_rescaled_after_a_long_pause(replayed, monkeypatch):
    _, problem = averaging("tv-gp")
    monkeypatch.setattr(type(problem), "time", lambda self, step: step + 1e4 * (step > 60))
    plain_and_captured(lambda: averaging("tv-gp"), horizon=160)
    assert replayed.again


def test_blocks_of_any_length_give_the_same_run():
    expected, _ = plain_run("sw_gp_ucb")
    for length in (1, 2, 7, 150, 1000):
        same(run(*built("sw_gp_ucb"), HORIZON, seed=7, capture=length), expected)


def varies(problem, what):
    """The problem with masks of two shapes or none; or masks and rewards written into one tensor at every step."""
    drawn = torch.Generator().manual_seed(0)
    masks = torch.rand(HORIZON + 1, REPLICATES, problem.num_arms, generator=drawn) < 0.5
    masks[..., 0] = True
    if what == "masks":
        problem.available = lambda step: (None, masks[step], masks[step, 0])[step // 3 % 3]
        return problem
    functions = torch.randn(HORIZON + 1, *problem.functions.shape, generator=drawn).double()
    mask, rewards = masks[0].clone(), functions[0].clone()
    problem.available = lambda step: mask.copy_(masks[step])
    problem.expected_rewards = lambda step: rewards.copy_(functions[step])
    return problem


@pytest.mark.parametrize("what", ["masks", "one tensor"])
@pytest.mark.parametrize("name", ["igp_ucb", "auto", "ucb1"])
def test_blocks_see_the_masks_and_rewards_of_every_step(what, name):
    runs = []
    for capture in (False, True):
        problem = make("gp", replicates=REPLICATES, num_arms=12, seed=3)
        policy = recipes.build(name, problem, replicates=REPLICATES, horizon=60)
        runs.append(run(policy, varies(problem, what), 60, seed=7, capture=capture))
    same(*runs)


def test_bad_rewards_are_found_at_the_end_of_a_block():
    policy, problem = built("igp_ucb")
    problem.functions[1, :] = torch.nan
    with pytest.raises(ValueError, match=r"rewards must be finite, got nan at step 1, replicate 1"):
        run(policy, problem, HORIZON, seed=7, capture=True)
