"""Races on problems that others published: they are the packages' own, and the page says what the tables hold."""

import sys
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from benchmarks import options
from benchmarks.elsewhere import __main__ as command
from benchmarks.elsewhere.__main__ import write_page


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


def test_the_page_ranks_policies_over_the_problems_played(tmp_path):
    rows = []
    for problem, (good, bad) in {"a": (1.0, 3.0), "b": (2.0, 4.0)}.items():
        for replicate in range(2):
            for policy, error in (("good", good), ("bad", bad)):
                row = {"problem": problem, "policy": policy, "replicate": replicate}
                rows.append(
                    row | dict.fromkeys(("offline_error", "before_change", "regret"), error + replicate)
                )
    pd.DataFrame(rows).assign(seconds=0.02).to_csv(tmp_path / "peaks.csv", index=False)
    rows = [
        {"problem": "c", "policy": p, "replicate": 0, "reward": r} for p, r in (("good", 9.0), ("bad", 5.0))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "c.csv", index=False)
    text = write_page(tmp_path).read_text()
    lines = [line for line in text.splitlines() if line.startswith("| good")]
    assert len(lines) == 4  # three measures of the peaks, and the rewards
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == ["good", "1.00", "1.5 (0.5)", "2.5 (0.5)"]
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == ["good", "1.00", "9.0"]
    assert text.index("| good") < text.index("| bad")


def test_ten_seeds_are_told_apart_and_compared_seed_by_seed(tmp_path):
    rows = []
    for policy, errors in {
        "ours: auto": (1.0, 2.0, 3.0),
        "good": (0.5, 1.4, 2.6),
        "same": (0.5, 2.5, 3.0),
    }.items():
        for replicate, error in enumerate(errors):
            for environment in (1, 2):
                row = {"problem": "a", "policy": policy, "replicate": replicate, "environment": environment}
                values = dict.fromkeys(("offline_error", "before_change", "regret"), error + environment)
                rows.append(row | values | {"seconds": 0.1})
    pd.DataFrame(rows).to_csv(tmp_path / "ten-a.csv", index=False)
    text = " ".join(write_page(tmp_path).read_text().split())
    assert "than: good 0, 0, 1; same 0, 1, 0." in text
    assert "| good | offline error | +0.5 (0.1), more |" in text
    assert "| same | offline error | +0.0 (0.3), level |" in text
    assert "Ten seeds on 1 instances" in text
    assert "of the 14 instances" not in text  # the table is no part of the races with one seed


def test_a_problem_that_is_not_there_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    played = []
    package = SimpleNamespace(ENVIRONMENTS={"testbed": ()}, race=lambda name, replicates: played.append(name))
    monkeypatch.setitem(sys.modules, "benchmarks.elsewhere.bandits", package)
    monkeypatch.setattr(command.pages, "results_folder", lambda program: tmp_path)
    monkeypatch.setattr(command.pages, "save", lambda table, path: path.touch())
    monkeypatch.setattr(command, "write_page", lambda results: results)
    call = partial(CliRunner().invoke, options.command(command.main))
    done = call(["--only", "bandits", "--problems", "testbeds"])
    assert done.exit_code == 2
    assert "testbeds" in done.output
    assert played == []
    for _ in range(2):  # what is kept is not played again
        assert call(["--only", "bandits", "--problems", "testbed"]).exit_code == 0
    assert played == ["testbed"]
