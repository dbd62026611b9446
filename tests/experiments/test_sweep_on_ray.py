"""A sweep on Ray gives what the local runner gives, bit for bit. One small Ray is started on this machine."""

import importlib.util
import subprocess
import sys

import pytest

from bandits_torch.experiments import ProblemSetting, RecipeSetting, sweep
from bandits_torch.experiments.engines import find_engine
from bandits_torch.history import History

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='no Ray: pip install ".[ray]"')
COMMAND = ["sweep", "--problems", "switching,tv-gp", "--policies", "random,gp_ts", "--horizon", "20"]
COMMAND += ["--replicates", "3", "--block", "2", "--seed", "7", "--option", "num_arms=10"]
COMMAND += ["--jobs", "1", "--out"]


@needs_ray
def test_one_command_sweeps_on_ray_what_the_local_runner_sweeps_bit_for_bit(tmp_path):
    command = [sys.executable, "-m", "bandits_torch", *COMMAND, str(tmp_path), "--engine", "ray"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    problems = {name: ProblemSetting(name, {"num_arms": 10}) for name in ("switching", "tv-gp")}
    policies = {name: RecipeSetting(name) for name in ("random", "gp_ts")}
    how = {"replicates": 3, "block": 2, "seed": 7, "capture": "auto"}  # "auto" is the command's default
    sweep(problems, policies, 20, **how, out=tmp_path / "here")
    on_ray = {path.name: History.load(path) for path in (tmp_path / "cells").iterdir()}
    here = {path.name: History.load(path) for path in (tmp_path / "here").iterdir()}
    assert len(here) == 8
    assert on_ray.keys() == here.keys()
    for name, history in here.items():
        one, other = on_ray[name].to_frame(), history.to_frame()
        assert one.equals(other), name


def test_a_missing_ray_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "ray\[tune\]"'):
        find_engine("ray", 1, None)
