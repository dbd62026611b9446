"""SIGKILL at random moments, in writes too, and the run goes on as if nothing had been: a few kills of the 200."""

import random

import pytest

from tests.reference import kill_runs


def test_killed_runs_are_taken_up_exactly(tmp_path, monkeypatch):
    """Of two kills of a recipe the second waits for a write."""
    monkeypatch.setattr(kill_runs, "HORIZON", 40)
    chance = random.Random(0)
    found = [kill_runs.kill(name, 2, tmp_path, chance) for name in ("sw_gp_ucb", "ada_opkb", "bbkb")]
    assert [exact for _, _, exact in found] == [2, 2, 2]
    assert sum(in_write for in_write, _, _ in found) > 0


@pytest.mark.slow
def test_a_resume_that_is_not_exact_would_be_seen(tmp_path, monkeypatch):
    undisturbed = kill_runs.play("gp_ts")
    kill_runs.play("gp_ts", tmp_path / "run")
    assert kill_runs.steps_saved(tmp_path / "run", undisturbed) == kill_runs.HORIZON
    undisturbed.rewards[1, 7] += 1e-15
    assert kill_runs.steps_saved(tmp_path / "run", undisturbed) is None
    assert not kill_runs.same(kill_runs.play("gp_ts"), undisturbed)
