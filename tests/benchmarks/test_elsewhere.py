"""Races on problems that others published: they are the packages' own, and played once."""

import sys
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from benchmarks import options
from benchmarks.elsewhere import __main__ as command


def test_peaks_are_those_of_the_package():
    pytest.importorskip("gmpb")
    pytest.importorskip("deap")
    import numpy as np
    from gmpb import GMPB, GMPBConfig

    from benchmarks.elsewhere.moving_peaks import PROBLEMS, problem

    assert len(PROBLEMS) == 14
    ours = problem("gmpb-F7", seed=3, environments=3)
    theirs = GMPB(GMPBConfig(d=5, m=10, change_frequency=10), seed=3)
    points = np.random.default_rng(0).uniform(size=(30, 5))
    for step, point in enumerate(points, 1):
        value = float(ours.expected(step, torch.as_tensor(point).reshape(1, 1, 5)))
        assert value == pytest.approx(theirs.evaluate(200 * point - 100), abs=1e-12)
        assert value <= float(ours.best(step))
    ours = problem("deap-2", seed=1, environments=2)
    change = [float(ours.best(step)) for step in (50, 51)]
    assert change[0] != change[1]
    assert all(
        float(ours.expected(step, torch.rand(1, 1, 5).double())) <= float(ours.best(step)) for step in (1, 60)
    )


def test_cma_es_is_told_of_whole_generations():
    pytest.importorskip("gmpb")
    pytest.importorskip("deap")
    from bandits_torch import run
    from benchmarks.elsewhere.moving_peaks import CMAES, problem

    static = problem("deap-1", seed=0, environments=1)
    static.period, static.horizon = 600, 600
    history = run(CMAES(static.domain, 600, 0), static, 600)
    regret = history.regret[0]
    assert regret[-50:].mean() < 0.001 * regret[:50].mean()  # it climbs the tallest peak


def test_a_problem_that_is_not_there_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    played = []

    def race(name, replicates):
        played.append(name)
        return pd.DataFrame({"problem": name, "policy": command.AUTO, "replicate": [0, 1], "reward": 1.0})

    package = SimpleNamespace(ENVIRONMENTS={"testbed": ()}, race=race)
    monkeypatch.setitem(sys.modules, "benchmarks.elsewhere.bandits", package)
    call = partial(CliRunner().invoke, options.command(command.main))
    bandits = ["--out", str(tmp_path), "--only", "bandits", "--problems"]
    done = call([*bandits, "testbeds"])
    assert done.exit_code == 2
    assert "testbeds" in done.output
    assert played == []
    for _ in range(2):  # what is kept is not played again
        assert call([*bandits, "testbed"]).exit_code == 0
    assert played == ["testbed"]
