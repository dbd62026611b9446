"""A sweep that is interrupted ends at once, with all of its processes, and says how to go on: real signals."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SWEEP = ["--problems", "gp", "--policies", "random,gp_ts", "--horizon", "3000"]
# So many that most are left when the first has been seen, however busy the machine is.
SWEEP += ["--replicates", "16", "--block", "1"]


def processes():
    """Processes that run, with their parents."""
    found = subprocess.run(["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
    rows = map(str.split, found.stdout.splitlines())
    return {int(pid): int(parent) for pid, parent, stat in rows if not stat.startswith("Z")}


def children(pid):
    """Processes that have this one for an ancestor."""
    parent, ours = processes(), {pid}
    while more := {p for p, q in parent.items() if q in ours} - ours:
        ours |= more
    return ours - {pid}


def heeding_ctrl_c():
    """A shell's background jobs, and all they start, ignore SIGINT: tests may be such a job."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(out, engine, jobs):
    """A sweep with at least one finished cell, in a process group of its own."""
    command = [sys.executable, "-m", "bandits_torch", "sweep", *SWEEP, "--engine", engine, "--out", str(out)]
    command += ["--jobs", jobs] if engine == "processes" else []
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=heeding_ctrl_c,
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("cells/[!.]*")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    assert process.poll() is None, process.stderr.read()
    return process


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("engine", "jobs", "number", "to_group"),
    [
        ("processes", "2", signal.SIGINT, True),  # Ctrl-C in a terminal
        ("processes", "1", signal.SIGKILL, False),
        ("local", "1", signal.SIGTERM, False),
        pytest.param("processes", "1", signal.SIGTERM, False, marks=pytest.mark.slow),
        pytest.param("local", "1", signal.SIGINT, True, marks=pytest.mark.slow),
    ],
)
def test_a_sweep_ends_soon_after_a_signal_with_all_processes(engine, jobs, number, to_group, tmp_path):
    process = started(tmp_path / "out", engine, jobs)
    workers = children(process.pid)
    assert len(workers) >= (1 if engine == "processes" else 0)
    sent = time.monotonic()
    (os.killpg if to_group else os.kill)(process.pid, number)
    _, said = process.communicate(timeout=30)
    while workers & processes().keys() and time.monotonic() < sent + 30:
        time.sleep(0.02)
    took = time.monotonic() - sent
    assert not workers & processes().keys()
    assert took < 5, took  # about .3 s; the machine may be busy
    if number == signal.SIGKILL:
        return
    assert process.returncode == 128 + number
    finished, cells = map(int, re.search(r"interrupted: (\d+) of (\d+) cells are finished", said).groups())
    assert 1 <= finished == len(list((tmp_path / "out" / "cells").glob("[!.]*"))) < cells == 32
    assert "continue with the same command and --resume" in said
    assert "Traceback" not in said
