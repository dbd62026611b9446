"""Hidden risers: what rises, when, and what is counted."""

import pytest
import torch

from bandits_torch.experiments.engines import Block
from benchmarks.auto.environments import DOMAINS, RISERS, Riser

ARMS = [name for name in RISERS if Riser(name).shape not in DOMAINS]


@pytest.mark.parametrize("name", ARMS)
def test_what_rises_was_not_best_and_is_best_after_the_quiet_time(name):
    riser, block = Riser(name), Block(6, 1, 0, 3)
    problem, rise = riser(block), riser.rise(block)
    for s in range(6):
        quiet = int(rise.quiet[s])
        assert riser.quiet <= quiet <= 1.2 * riser.quiet
        assert torch.equal(problem.expected_rewards(quiet)[s], rise.before[s])
        assert torch.equal(problem.expected_rewards(quiet + 1)[s], rise.after[s])
        best = int(rise.after[s].argmax())
        assert best != int(rise.before[s].argmax())
        assert rise.after[s, best] > rise.before[s].max() + 0.5


def test_regret_is_counted_on_the_steps_after_the_change_alone():
    riser, block = Riser("one-of-8 after 100"), Block(4, 1, 0, 3)
    quiet = riser.rise(block).quiet
    steps = torch.arange(1, riser.horizon + 1)
    assert riser.counted(steps.expand(4, -1).double(), block).tolist() == [
        float(sum(range(int(q) + 1, int(q) + 501))) for q in quiet
    ]


def test_a_replicate_alone_is_the_replicate_in_the_batch():
    for name in ARMS[::3]:
        whole, alone = Riser(name).rise(Block(3, 1, 0, 3)), Riser(name).rise(Block(1, 1, 2, 3))
        for ours, one in zip(whole, alone, strict=True):
            assert torch.allclose(ours[2:], one)


@pytest.mark.parametrize("d", [1, 2])
def test_over_a_domain_a_second_hill_rises_where_nothing_was(d):
    riser, block = Riser(f"domain-{d} after 100"), Block(4, 1, 0, 3)
    problem, alone = riser(block), riser(Block(1, 1, 2, 3))
    points = problem.domain.sample(2_000, 0).unsqueeze(1).expand(-1, 4, -1)
    for s, quiet in enumerate(riser.changes(block).tolist()):
        before, after = (problem.expected(step, points)[:, s] for step in (quiet, quiet + 1))
        at = (problem.expected(step, problem.second.expand(1, -1, -1))[0, s] for step in (quiet, quiet + 1))
        assert [float(value) for value in at][1] == 2.0
        assert before[after > 1.0].max() < 0.5
        for step, found in ((quiet, before), (quiet + 1, after)):
            assert 0.9 * problem.best(step)[s] < found.max() <= problem.best(step)[s]
    assert torch.equal(alone.second[0], problem.second[2])
    assert torch.equal(alone.quiet[0], problem.quiet[2])
