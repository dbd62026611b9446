"""A package of another: installed from the template, it is listed, raced, swept, resumed and tested by its laws."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.reference.forked import Forked

ROOT = Path(__file__).parents[2]
SMALL = ["--horizon", "24", "--replicates", "2"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A folder of its own that the template is installed into, without a network."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples" / "plugin", folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", folder / "site", folder / "source"], check=True)
    return folder


def run(folder, *command, code=0):
    done = Forked(*map(str, command), cwd=folder, site=folder / "site").wait()
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_anew(folder, *command):
    """In a process that starts, as a user's does."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder / 'site'}"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_listed(plugin):
    listed = run_anew(plugin, "bandits_torch", "list")
    assert re.search(r"^seesaw +A slope", listed, re.M)
    assert re.search(r"^halving_gp_ucb +GP-UCB that drops", listed, re.M)
    assert re.search(r"^fading +of the plug-in", listed, re.M)
    assert re.search(r"^most +60$", run(plugin, "list", "halving_gp_ucb"), re.M)
    for name in ("seesaw", "seesaw_bandits:Seesaw"):
        assert re.search(r"^period +100$", run(plugin, "list", name), re.M)
    assert re.search(r"^most +60$", run(plugin, "list", "seesaw_bandits:halving_gp_ucb"), re.M)


def test_it_is_raced_by_either_name_and_raced_again(plugin, tmp_path):
    names = ["halving_gp_ucb", "seesaw_bandits:halving_gp_ucb"]
    race = ["race", "--problem", "seesaw_bandits:Seesaw", "--policies", ",".join([*names, "random"]), *SMALL]
    race += ["--option", "num_arms=7", *(part for name in names for part in ("--option", f"{name}.most=10"))]
    run(plugin, *race, "--checkpoint", 10, "--out", tmp_path / "race")
    assert not (tmp_path / "race" / "checkpoints").exists()
    record = json.loads((tmp_path / "race" / "run.json").read_text())
    assert record["policies"] == [*names, "random"]
    assert [record["options"][name] for name in names] == [{"most": 10}, {"most": 10}]
    one, other = (record["results"][name]["cumulative_regret"] for name in names)
    assert one == other
    again = run(plugin, "rerun", tmp_path / "race" / "run.json", "--out", tmp_path / "again")
    assert "regret as recorded" in again


def test_it_is_swept_and_a_sweep_goes_on(plugin, tmp_path):
    """By processes, which are started anew and find it themselves."""
    sweep = ["sweep", "--problems", "seesaw,cosine", "--policies", "halving_gp_ucb,random", *SMALL]
    sweep += ["--out", tmp_path]
    run(plugin, *sweep, "--engine", "processes", "--jobs", "1")
    first = pd.read_csv(tmp_path / "sweep.csv").drop(columns="ms_per_step")
    cells = sorted((tmp_path / "cells").iterdir())
    shutil.rmtree(cells[0]) if cells[0].is_dir() else cells[0].unlink()
    run(plugin, *sweep, "--resume")
    second = pd.read_csv(tmp_path / "sweep.csv").drop(columns="ms_per_step")
    pd.testing.assert_frame_equal(first, second)
    assert set(second.problem) == {"seesaw", "cosine"}


def test_its_laws_hold(plugin):
    assert "11 passed, 1 skipped" in run_anew(
        plugin, "pytest", "-q", "-p", "no:cacheprovider", "source/tests"
    )


@pytest.mark.parametrize("name", ["seesaw_bandits:nothing", "no_such_module:thing", "seesaw_bandits:Halving"])
def test_what_is_not_there_is_one_line(plugin, name):
    for command in (["race", "--problem", "seesaw", "--horizon", "24", "--policies", name], ["list", name]):
        said = run(plugin, *command, code=2)
        assert said.startswith("error: ")
        assert name in said
        assert said.count("\n") == 1
