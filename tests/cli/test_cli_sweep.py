"""The sweep of the command line."""

import pandas as pd
import pytest

from bandits_torch.experiments import ProblemSetting, RecipeSetting, sweep
from tests.cli import shell

SMALL = ["--problems", "gp,switching", "--policies", "random,sw_gp_ucb", "--horizon", 12, "--replicates", 3]
SMALL += ["--option", "num_arms=8"]


def call(*arguments, code=0):
    return shell.call("sweep", *arguments, code=code)


def test_a_sweep_writes_a_table_for_each_problem_and_every_total(tmp_path):
    result = call(*SMALL, "--block", 2, "--option", "sw_gp_ucb.window=5", "--seed", 4, "--out", tmp_path)
    for name in ("gp", "switching"):
        assert f"{name}: 12 steps, 3 replicates, seed 4" in result.output
    assert result.output.count("random (expected)") == 2
    rows = pd.read_csv(tmp_path / "sweep.csv")
    assert rows.groupby(["problem", "policy"]).size().tolist() == [3, 3, 3, 3]
    assert len(list((tmp_path / "cells").iterdir())) == 8

    problems = {name: ProblemSetting(name, {"num_arms": 8}) for name in ("gp", "switching")}
    policies = {"random": RecipeSetting("random"), "sw_gp_ucb": RecipeSetting("sw_gp_ucb", {"window": 5})}
    histories = sweep(problems, policies, 12, replicates=3, block=2, seed=4)
    for (problem, policy), group in rows.groupby(["problem", "policy"]):
        expected = histories[problem][policy].regret.sum(-1).tolist()
        assert group["cumulative_regret"].tolist() == pytest.approx(expected, rel=1e-9)


def test_finished_cells_are_used_again_only_when_that_is_asked_for(tmp_path, monkeypatch):
    call(*SMALL, "--out", tmp_path)
    first = pd.read_csv(tmp_path / "sweep.csv")
    for flags in ([], ["--overwrite"]):
        again = call(*SMALL, "--out", tmp_path, *flags, code=2)
        assert "error: out holds 4 finished cells of this sweep" in again.stderr
    monkeypatch.setattr("bandits_torch.experiments.engines.play", None)  # nothing is left to play
    call(*SMALL, "--out", tmp_path, "--resume")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "sweep.csv"), first)


def test_what_a_killed_sweep_left_of_its_writes_is_removed(tmp_path):
    call(*SMALL, "--out", tmp_path)
    before = sorted(tmp_path.rglob("*"))
    cell = next((tmp_path / "cells").iterdir())
    cell.unlink()
    for path in (cell, tmp_path / "sweep.csv", tmp_path / "mine"):
        path.with_name(f".{path.name}.0123abcd.part").write_bytes(b"half")
    call(*SMALL, "--out", tmp_path, "--resume")
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / ".mine.0123abcd.part"])


def test_a_failed_cell_is_named_and_the_others_kept(tmp_path):
    result = call(*SMALL, "--option", "sw_gp_ucb.window=0", "--out", tmp_path, code=1)
    assert "failed: gp, sw_gp_ucb, replicates 0 to 2: ValueError: window must be" in result.stderr
    assert set(pd.read_csv(tmp_path / "sweep.csv")["policy"]) == {"random"}


def test_a_sweep_that_is_refused_makes_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("bandits_torch.experiments.engines.cores", lambda: 2)
    said = call(*SMALL, "--engine", "processes", "--jobs", 3, "--out", tmp_path / "out", code=2).stderr
    assert said == "error: jobs must be at most 2: 1 thread each on the 2 CPUs there are, got 3\n"
    assert not (tmp_path / "out").exists()


def test_data_go_to_the_problems_that_read_them(tmp_path):
    table = tmp_path / "table.csv"
    rows = [",".join(str((n * step) % 7) for n in (1, 2, 3)) for step in range(40)]
    table.write_text("\n".join(["a,b,c", *rows]))
    result = call(
        *("--problems", "replay,gp", "--policies", "random", "--horizon", 50, "--replicates", 2),
        *("--data", table, "--out", tmp_path),
    )
    assert "replay: 32 steps, 2 replicates" in result.output
    assert "gp: 50 steps, 2 replicates" in result.output


def test_cells_of_other_data_at_the_same_path_are_not_used_again(tmp_path):
    table, out = tmp_path / "table.csv", tmp_path / "out"
    asked = ["--problems", "replay", "--policies", "random", "--replicates", 1, "--data", table, "--out", out]

    def lost(unit, *flag, code=0):
        rows = [",".join(str(unit * ((n * step) % 7)) for n in (1, 2, 3)) for step in range(40)]
        table.write_text("\n".join(["a,b,c", *rows]))
        said = call(*asked, *flag, code=code).stderr
        return said if code else pd.read_csv(out / "sweep.csv")["cumulative_regret"].tolist()

    first = lost(1)
    assert lost(1, "--resume") == first
    assert "out holds the sweep.csv of another sweep" in lost(100, "--resume", code=2)
    assert lost(100, "--overwrite") == pytest.approx([100 * one for one in first])
