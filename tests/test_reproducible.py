"""Same seed, same result: whatever the batch around a replicate, or the number of CPU threads.

With more threads, or on a GPU, the last bits of a posterior differ, and arms whose indices are that close; none here.
That two runs of one seed agree is what tests/golden compares.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bandits_torch import recipes, run
from bandits_torch.problems import ContinuousProblem
from bandits_torch.state import differing
from tests.reference import all_recipes, play_all
from tests.reference.kill_runs import record

ROOT = Path(__file__).parent.parent
T, S = 20, 25


def played(name, replicates, first=0):
    policy, problem = all_recipes.build(name, replicates, T, first=first)
    return run(policy, problem, T, seed=7, first_replicate=first)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*recipes.RECIPES, *all_recipes.WITH_SETTINGS])
def test_a_replicate_of_25_is_the_replicate_alone(name):
    together = played(name, S)
    for k in (0, 24):
        alone = played(name, 1, first=k)
        for values in ("arms", "rewards", "expected_rewards", "best"):
            assert torch.equal(getattr(alone, values)[0], getattr(together, values)[k])
        for note, values in alone.trace.items():
            kept = together.trace[note]
            kept = kept[k] if kept.dim() == 2 else kept
            # exp and log round the last elements of a tensor by themselves, not in a vector: by where they lie
            torch.testing.assert_close(values.reshape(-1), kept, rtol=1e-14, atol=0, equal_nan=True, msg=note)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*all_recipes.OVER_POINTS, *all_recipes.OF_THEIR_OWN])
def test_so_it_is_over_points_within_what_a_search_rounds(name, full, monkeypatch):
    monkeypatch.setattr(ContinuousProblem, "best", lambda self, step: torch.ones(1).double())  # takes long

    def over_points(replicates, first=0):
        policy, problem = all_recipes.build_over_points(name, replicates, T, first=first)
        return run(policy, problem, 12, seed=7, first_replicate=first)

    together = over_points(3)
    for k in (0, 2) if full else (2,):
        alone = over_points(1, k)
        torch.testing.assert_close(alone.arms[0], together.arms[k], rtol=0, atol=1e-5)
        for note, values in alone.trace.items():
            kept = together.trace[note]
            kept = kept[k] if kept.dim() == 2 else kept
            torch.testing.assert_close(
                values.reshape(-1), kept, rtol=1e-4, atol=1e-4, equal_nan=True, msg=note
            )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", [*recipes.RECIPES, *all_recipes.WITH_SETTINGS])
def test_without_gradients_it_is_the_same_run(name, mode):
    expected = played(name, 2)
    with mode():
        history = played(name, 2)
    assert not differing(record(expected), record(history))


@pytest.mark.parametrize("name", ["gp_ei", "auto"])
def test_points_are_searched_where_gradients_are_off_and_not_where_they_cannot_be_turned_on(name):
    def over_points():
        return run(*all_recipes.build_over_points(name, 1, 2), 2)

    expected = over_points()
    with torch.no_grad():
        history = over_points()
    assert torch.equal(history.arms, expected.arms)
    assert torch.equal(history.best, expected.best)
    with torch.inference_mode(), pytest.raises(ValueError, match=r"torch\.inference_mode must be off"):
        over_points()


@pytest.mark.slow
def test_one_thread_or_two_play_the_same_arms():
    """Two in a process of their own, whose threads wait passively, or they would burn the cores."""
    one = list(play_all.lines(1))
    command = [sys.executable, "-m", "tests.reference.play_all", "2"]
    waiting = os.environ | {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    two = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=waiting)
    assert two.returncode == 0, two.stderr
    assert [line.split()[0] for line in one] == list(recipes.RECIPES)
    assert one == two.stdout.splitlines()
