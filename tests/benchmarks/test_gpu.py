"""The command for a GPU: every line of it runs in small on the CPU, and its verdicts follow from its rows."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from bandits_torch import run
from benchmarks.gpu import command
from benchmarks.gpu.command import criteria, main
from benchmarks.gpu.pages import PAGES
from benchmarks.gpu.stepping import Settings

# What a machine with a GPU may lack.
BLOCKER = """
import sys
for name in ("rich", "typer", "matplotlib", "hypothesis", "pyarrow", "ray", "xdist"):
    sys.modules[name] = None
from benchmarks.gpu.command import main
sys.exit(main(["--rehearse", "--minutes", "30", "--out", sys.argv[1]]))
"""


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """One rehearsal, where no more can be imported than torch, gpytorch, botorch, numpy and pandas; it takes two
    minutes, and on a busy machine as long as it takes."""
    out = tmp_path_factory.mktemp("gpu")
    command = [sys.executable, "-c", BLOCKER, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1900)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, json.loads((out / "results.json").read_text())


@pytest.mark.slow
def test_a_rehearsal_runs_every_page_to_its_end_with_the_needed_packages_alone(rehearsed):
    out, told = rehearsed
    assert set(told["pages"]) == {*PAGES, "tests", "same_choices"}
    assert all(told["pages"].values())
    assert not [name for name, note in told["notes"].items() if "failed" in note or "stopped" in note]
    assert not (out / "errors.log").exists()
    assert all(path.stat().st_size < 2**24 for path in out.iterdir())


@pytest.mark.slow
def test_a_rehearsal_chooses_the_same_and_meets_nothing(rehearsed):
    _, told = rehearsed
    rows = told["pages"]["same_choices"]
    assert all(row["same"] for row in rows)
    assert sum(row.get("captured_same", False) for row in rows) >= 9
    assert {said for _, said, _ in told["criteria"]} == {"rehearsed", "not measured"}


def test_without_a_gpu_nothing_is_measured(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_all_pages_fit_into_the_time_there_is():
    seconds = sum(seconds for _, seconds in PAGES.values()) + command._TESTS + command._CHOICES
    assert seconds <= 60 * 8.7


def test_a_page_that_hangs_in_a_row_is_cut_and_keeps_what_it_had(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_GRACE", 0.05)
    book = command.Notebook(tmp_path, {"rehearsal": True})

    def hangs(settings):
        yield {"first": 1}
        try:
            time.sleep(30)
        except Exception:  # as a page does that goes on with its next case
            yield {"second": 2}

    begun = time.perf_counter()
    command.measured(book, "hangs", hangs, Settings("cpu", True, begun + 2.0))
    command.measured(book, "next", lambda settings: iter([{"third": 3}]), Settings("cpu", True))
    told = json.loads((tmp_path / "results.json").read_text())
    assert told["pages"] == {"hangs": [{"first": 1}], "next": [{"third": 3}]}
    assert "middle of a row" in told["notes"]["hangs"]["stopped"]
    assert time.perf_counter() - begun < 25


def test_without_pytest_the_tests_are_left_out_and_the_report_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert main(["--rehearse", "--out", str(tmp_path), "--pages", "thompson"]) == 0
    assert "pytest is not installed" in (tmp_path / "report.md").read_text()


def test_where_arms_differ_the_distance_of_their_indices_is_told():
    here = command._played("igp_ucb", "cpu", 6)
    other = here.arms.clone()
    other[:, 4] = (other[:, 4] + 1) % 30
    told = command._compared("igp_ucb", here, replace(here, arms=other), "")
    policy, problem = command._built("igp_ucb", "cpu", 6)
    run(policy, problem, 4, seed=7)
    assert torch.equal(policy.choose(problem.time(5)).arm, here.arms[:, 4])
    mean, variance = policy.marginals(problem.time(5))
    index = mean + policy.used_width.reshape(-1, 1) * variance.sqrt()
    first, second = (index.gather(-1, arms[:, 4:5]).squeeze(-1) for arms in (here.arms, other))
    gap = float(((first - second) / index.abs().amax(-1)).max())
    assert told == {"same": False, "first_step": 5, "gap": pytest.approx(gap, rel=1e-9)}


def verdicts(**measured):
    return {verdict.asked: verdict.said for verdict in criteria(measured)}


def test_verdicts_follow_from_the_rows():
    none = verdicts()
    assert set(none.values()) == {"not measured"}
    row = {"replicates": 25, "steps": 30_000, "wall_seconds": 2.9}
    asked = next(name for name in none if name.startswith("25 replicates"))
    assert verdicts(igp_30000=[row])[asked] == "met"
    assert verdicts(igp_30000=[row | {"wall_seconds": 3.1}])[asked] == "MISSED"
    assert verdicts(igp_30000=[row | {"steps": 100}])[asked] == "not measured"
    share = {"form": "covariance", "arms": 10_000, "replicates": 1, "plain_share": 0.2}
    asked = next(name for name in none if "10000 arms, 1 replicates" in name)
    assert verdicts(saturation=[share | {"captured_share": 0.61}])[asked] == "met"
    assert verdicts(saturation=[share | {"captured_share": 0.59}])[asked] == "MISSED"
    waits = {"plain_waits": 0.0, "captured_waits": 0.0}
    assert verdicts(saturation=[waits])["no host wait in a step"] == "met"
    assert verdicts(saturation=[waits | {"captured_waits": 0.25}])["no host wait in a step"] == "MISSED"
    faster = {"arms": 10_000, "observations": 1_000, "times_faster": 200.0, "times_faster_captured": 301.0}
    asked = next(name for name in none if "(10000 arms" in name)
    assert verdicts(against_botorch=[faster])[asked] == "met"
    asked = next(name for name in none if name.startswith("CPU and GPU"))
    rows = [{"recipe": "a", "same": True}, {"recipe": "b", "same": False, "gap": 1e-12}]
    assert verdicts(same_choices=rows)[asked] == "met"
    assert verdicts(same_choices=[*rows, {"recipe": "c", "same": False, "gap": 1e-3}])[asked] == "MISSED"
    assert verdicts(same_choices=[*rows, {"recipe": "d", "error": "no"}])[asked] == "MISSED"
    asked = "the tests pass on the GPU"
    assert verdicts(tests=[{"tests": "x", "passed": 3, "failed": 0, "whole": True}])[asked] == "met"
    assert verdicts(tests=[{"tests": "x", "passed": 3, "failed": 1, "whole": True}])[asked] == "MISSED"
