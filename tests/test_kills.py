"""SIGKILL at random moments, in writes too, and the run goes on as if nothing had been: a few kills of the 200."""

import re
import subprocess
import sys
from pathlib import Path

from tests.reference import kill_runs

ROOT = Path(__file__).parent.parent


def kills(*arguments):
    command = [sys.executable, "-m", "tests.reference.kill_runs", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_killed_runs_are_taken_up_exactly():
    done = kills("--kills", "6", "--recipes", "sw_gp_ucb,ada_opkb,bbkb")
    assert done.returncode == 0, done.stdout + done.stderr
    killed, in_write, _, exact = map(
        int, re.search(r"^all +(\d+) +(\d+) +(\d+) +(\d+)$", done.stdout, re.M).groups()
    )
    assert killed == exact == 6
    assert in_write > 0


def test_a_resume_that_is_not_exact_would_be_seen(tmp_path, monkeypatch):
    undisturbed = kill_runs.play("gp_ts")
    kill_runs.play("gp_ts", tmp_path / "run")
    assert kill_runs.steps_saved(tmp_path / "run", undisturbed) == kill_runs.HORIZON
    undisturbed.rewards[1, 7] += 1e-15
    assert kill_runs.steps_saved(tmp_path / "run", undisturbed) is None
    assert not kill_runs.same(kill_runs.play("gp_ts"), undisturbed)
