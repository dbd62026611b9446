"""Starts: the same problem from a later step on, in stretches that do not overlap."""

import itertools
from functools import partial

import pytest
import torch

from bandits_torch import make, recipes, run
from bandits_torch.experiments.earned import random_regret
from bandits_torch.experiments.sweep import FromStep, play_starts, starts_of
from bandits_torch.problems import Replay
from bandits_torch.streams import ReplicateStreams


def record(rows=250, arms=4):
    g = torch.Generator().manual_seed(0)
    table = torch.randn(rows, arms, generator=g, dtype=torch.float64)
    table[::7, 1] = torch.nan
    return Replay(table, times=torch.arange(rows).double() ** 1.1)


@pytest.mark.parametrize(
    ("horizon", "count"), [(49, 0), (50, 1), (249, 4), (250, 5), (1000, 10), (12_345, 10)]
)
def test_stretches_cover_the_record_once(horizon, count):
    firsts = starts_of(horizon)
    assert len(firsts) == count
    if count:
        length = horizon // count
        assert length >= 50
        assert all(b - a == length for a, b in itertools.pairwise(firsts))
        assert firsts[0] == 1
        assert horizon - count < firsts[-1] + length - 1 <= horizon


def test_a_later_start_is_the_same_problem_shifted():
    whole = record()
    part = FromStep(whole, 31, 20)
    streams = ReplicateStreams(0, 1, purpose="noise")
    for step in (1, 7, 20):
        torch.testing.assert_close(
            part.expected_rewards(step), whole.expected_rewards(30 + step), equal_nan=True
        )
        assert part.time(step) == whole.time(30 + step)
        assert torch.equal(part.available(step), whole.available(30 + step))
        assert torch.equal(part.noise(step, torch.tensor([2]), streams), torch.zeros(1).double())
    with pytest.raises(ValueError, match="step"):
        part.expected_rewards(21)
    torch.testing.assert_close(random_regret(part, 20), random_regret(whole, 50)[:, 30:])


def test_each_start_is_played_afresh_and_scored_alone():
    problem = record(400)

    def build(name):
        return lambda part, steps: recipes.build(name, part, replicates=1, horizon=steps)

    starts = play_starts(problem, {"ucb": build("gp_ucb")}, problem.horizon, seed=3)
    assert starts.steps == problem.horizon // 6
    first = 1 + 2 * starts.steps
    alone = run(
        build("gp_ucb")(problem, starts.steps), FromStep(problem, first, starts.steps), starts.steps, seed=5
    )
    assert float(starts.regret["ucb"][2]) == float(alone.regret.mean())
    assert len(starts.random) == 6
    in_blocks = play_starts(problem, {"ucb": build("gp_ucb")}, problem.horizon, seed=3, capture=True)
    torch.testing.assert_close(in_blocks.regret, starts.regret)


def test_a_start_pulls_as_the_problem_does_also_if_rewards_are_not_expectation_plus_noise():
    class Clicks(type(make("switching", horizon=10))):
        def pull(self, step, arm, streams):
            return (streams.uniform() < super().expected_rewards(step)[:, 0]).double()

    problem = make("switching", horizon=120, replicates=2, num_arms=4)
    problem.__class__ = Clicks
    part = FromStep(problem, 61, 60)
    for step in (1, 60):
        one, other = (ReplicateStreams(3, 2, purpose="noise") for _ in range(2))
        arm = torch.tensor([1, 2])
        assert torch.equal(part.pull(step, arm, one), problem.pull(60 + step, arm, other))


def test_what_is_measured_beside_the_reward_is_there_from_any_start():
    problem = make("safe-tv-gp", num_arms=8, horizon=120, replicates=2)
    part, arm = FromStep(problem, 61, 60), torch.tensor([3, 5])
    for one, other in zip(
        (
            part.measure(1, arm, ReplicateStreams(0, 2)),
            *part.score(1, arm, None),
            *part.trace(1, arm).values(),
        ),
        (
            problem.measure(61, arm, ReplicateStreams(0, 2)),
            *problem.score(61, arm, None),
            *problem.trace(61, arm).values(),
        ),
        strict=True,
    ):
        assert torch.equal(one, other)
    build = partial(recipes.build, "safe_gp_ucb", replicates=2)
    assert play_starts(problem, {"safe": lambda p, T: build(problem=p, horizon=T)}, 120).steps == 60
