"""Hidden risers: what rises, when, and what is counted."""

import pytest
import torch

from bandits_torch.experiments.cells import Block
from benchmarks.auto.risers import RISERS, Riser


@pytest.mark.parametrize("name", RISERS)
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
    for name in RISERS[::3]:
        whole, alone = Riser(name).rise(Block(3, 1, 0, 3)), Riser(name).rise(Block(1, 1, 2, 3))
        for ours, one in zip(whole, alone, strict=True):
            assert torch.allclose(ours[2:], one)
