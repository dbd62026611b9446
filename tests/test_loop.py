"""run: what a History says is what happened."""

import math

import pytest
import torch

from bandits_torch.history import Recorder
from bandits_torch.loop import run
from bandits_torch.policies import Choice, RandomPolicy
from tests.reference.plain_loop import play
from tests.reference.stubs import FixedPolicy, TableProblem

RISING_AND_FALLING = [[[0.0, 1.0, 0.5], [2.0, 1.0, 0.5], [2.0, 1.0, 4.0]]]  # one replicate, 3 steps, 3 arms


@pytest.mark.parametrize("problem_replicates", [1, 4])
@pytest.mark.parametrize("masked", [None, "shared", "own"])
def test_run_equals_the_plain_loop_replicate_by_replicate(problem_replicates, masked):
    generator = torch.Generator().manual_seed(5)
    table = torch.rand(problem_replicates, 7, 6, generator=generator, dtype=torch.float64)
    table[:, 3] = table[:, 2]  # an unchanged step, so that the remembered best is used
    shape = {None: None, "shared": (7, 6), "own": (7, 4, 6)}[masked]
    masks = None if shape is None else torch.rand(shape, generator=generator) < 0.6
    if masks is not None:
        masks[..., 0] = True
    problem = TableProblem(table, None if masks is None else list(masks), noise_scale=0.3)
    history = run(RandomPolicy(6, 4, seed=2), problem, 30, seed=9)
    for k in range(4):
        alone = TableProblem(table[k % problem_replicates].unsqueeze(0), noise_scale=0.3)
        if masks is not None:
            alone.masks = list(masks if masked == "shared" else masks[:, k])
        arms, rewards, expected, best = play(
            RandomPolicy(6, 1, seed=2, first_replicate=k), alone, 30, seed=9, replicate=k
        )
        assert history.arms[k].tolist() == arms
        assert history.rewards[k].tolist() == rewards
        assert history.expected_rewards[k].tolist() == expected
        assert history.best[k].tolist() == best


def test_the_policy_learns_what_it_chose_with_its_reasons():
    policy = FixedPolicy([[0, 2]], 3)
    run(policy, TableProblem(RISING_AND_FALLING), 2)
    assert [o.time for o in policy.observations] == [10.0, 20.0]
    assert [o.why["asked"] for o in policy.observations] == [10.0, 20.0]
    assert [o.arm.tolist() for o in policy.observations] == [[0], [2]]
    assert [o.reward.tolist() for o in policy.observations] == [[0.0], [0.5]]


def test_traces_are_kept_with_nan_where_there_was_none():
    notes = ({"width": 1.5}, {"width": torch.tensor([2.0, 3.0]), "priors": torch.tensor(4)}, {"priors": 3})
    history = run(FixedPolicy([[0, 0, 0], [1, 1, 1]], 3, notes), TableProblem(RISING_AND_FALLING), 3)
    torch.testing.assert_close(
        history.trace["width"],
        torch.tensor([[1.5, 2, math.nan], [1.5, 3, math.nan]], dtype=torch.float64),
        equal_nan=True,
    )
    assert history.trace["priors"].shape == (3,)
    assert history.trace["priors"].tolist()[1:] == [4, 3]


def test_every_step_is_timed():
    history = run(FixedPolicy([[0, 0, 0]], 3), TableProblem(RISING_AND_FALLING), 3)
    assert bool((history.seconds > 0).all())
    assert 0 < history.ms_per_step <= 1e3 * history.meta["wall_seconds"] / 3
    assert history.meta["policy"] == "FixedPolicy"
    assert history.meta["problem"] == "TableProblem"
    assert "torch" in history.meta["versions"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_refused_before_it_is_learnt(bad):
    class Broken(TableProblem):
        def noise(self, step, arm, streams):
            return torch.tensor([0.0, bad if step == 2 else 0.0], dtype=torch.float64)

    policy = FixedPolicy([[0, 0, 0], [1, 1, 1]], 3)
    with pytest.raises(ValueError, match=r"rewards must be finite.*step 2, replicate 1, arm 1, Broken"):
        run(policy, Broken(RISING_AND_FALLING), 3)
    assert len(policy.observations) == 1


def test_a_gpu_run_is_checked_in_blocks_and_at_the_end(monkeypatch):
    class Broken(TableProblem):
        def noise(self, step, arm, streams):
            return torch.tensor([math.nan if step == self.bad else 0.0], dtype=torch.float64)

    problem = Broken(RISING_AND_FALLING)

    class OnAnotherDevice(Recorder):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self._on_cpu = False

    monkeypatch.setattr("bandits_torch.loop.Recorder", OnAnotherDevice)
    for problem.bad, learnt in ((20, 99), (120, 130)):
        policy = FixedPolicy(torch.zeros(1, 130, dtype=torch.long), 3)
        with pytest.raises(ValueError, match=f"step {problem.bad}, replicate 0"):
            run(policy, problem, 130)
        assert len(policy.observations) == learnt


def test_expected_rewards_of_arms_that_are_not_available_may_be_unknown():
    problem = TableProblem([[[0.0, 1.0, math.nan]]], WITHOUT_THE_LAST)
    assert run(FixedPolicy([[0]], 3), problem, 1).best.tolist() == [[1.0]]


def changed(thing, **attributes):
    vars(thing).update(attributes)
    return thing


def of(table=RISING_AND_FALLING, masks=None, horizon=None, **attributes):
    return changed(TableProblem(table, masks, horizon=horizon), **attributes)


def chosen(arm):
    return changed(FixedPolicy([[0]], 3), choose=lambda time, available: Choice(arm))


WITHOUT_THE_LAST = [torch.tensor([True, True, False])]
WRONG_SHAPE = lambda *given: torch.zeros(3)  # noqa: E731
REFUSED = [  # a policy, a problem, how long they are to play, what is said, and how many rewards were learned by then
    (FixedPolicy([[0, 2]], 3), of(masks=WITHOUT_THE_LAST), 2, "arm 2, which is not available, at step 2", 1),
    (FixedPolicy([[0], [0]], 3), of(pull=WRONG_SHAPE), 1, "reward must have shape", 0),
    (FixedPolicy([[0], [0]], 3), of(expected_rewards=WRONG_SHAPE), 1, "expected_rewards must have shape", 0),
    (
        FixedPolicy([[0]], 3),
        of([[[0.0, 1.0, math.nan]]]),
        1,
        "best expected reward must be finite, got nan at step 1",
        0,
    ),
    (chosen(torch.tensor([3])), of(), 1, "arm of step 1 must be int64 from 0 to 2, got .3.", 0),
    (chosen(torch.tensor([-1])), of(), 1, "arm of step 1 must be int64 from 0 to 2", 0),
    (chosen(torch.tensor([0.0])), of(), 1, "arm of step 1 must be int64 from 0 to 2", 0),
    (chosen(torch.tensor([0, 0])), of(), 1, "arm of step 1 must have shape", 0),
    (chosen(torch.tensor(0)), of(), 1, "arm of step 1 must have shape", 0),
    (FixedPolicy([[0] * 5], 3), of(horizon=3), 4, "horizon must be at most the problem's 3, got 4", 0),
    (
        FixedPolicy([[0]] * 2, 3),
        of(RISING_AND_FALLING * 3),
        1,
        "replicates must be 1 or the policy's 2, got 3",
        0,
    ),
    (FixedPolicy([[0]], 4), of(), 1, "policy.num_arms must be the problem's 3, got 4", 0),
    (FixedPolicy([[0]], 3, ({"regret": 1.0},)), of(), 1, "name in trace", 1),
    (FixedPolicy([[0]], 3, ({"x": torch.zeros(3)},)), of(), 1, r"trace\(\)\['x'\] must be a scalar", 1),
]


@pytest.mark.parametrize(("policy", "problem", "horizon", "said", "learned"), REFUSED)
def test_what_cannot_be_played_is_refused_before_it_is_learned(policy, problem, horizon, said, learned):
    with pytest.raises(ValueError, match=said):
        run(policy, problem, horizon)
    assert len(policy.observations) == learned


def test_an_interruption_passes_through_and_the_policy_stands_between_two_steps():
    class Interrupted(TableProblem):
        def expected_rewards(self, step):
            if step == 3:
                raise KeyboardInterrupt
            return super().expected_rewards(step)

    policy = FixedPolicy([[0, 0, 0]], 3)
    with pytest.raises(KeyboardInterrupt):
        run(policy, Interrupted(RISING_AND_FALLING), 3, progress=True)
    assert len(policy.observations) == 2


def test_progress_is_drawn_on_standard_error_and_changes_nothing(capsys, monkeypatch):
    problem = TableProblem(RISING_AND_FALLING, noise_scale=1.0)
    quiet = run(RandomPolicy(3), problem, 50)
    run(RandomPolicy(3), problem, 50, progress=True)
    assert capsys.readouterr() == ("", "")  # not a terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    loud = run(RandomPolicy(3), problem, 50, progress="a title")
    out, err = capsys.readouterr()
    assert out == ""
    assert "a title" in err
    assert torch.equal(quiet.rewards, loud.rewards)
