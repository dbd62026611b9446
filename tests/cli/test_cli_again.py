"""Races that are run again: from their record, or on from where they were cut off."""

import json
import os
import re
import shutil
import signal
import time
import warnings

import numpy as np
import pytest

from bandits_torch.history import Recorder
from tests.cli.shell import REPORT, call, interrupted
from tests.reference.forked import Forked

pytestmark = pytest.mark.usefixtures("without_a_page")

SMALL = ["--horizon", 40, "--replicates", 2, "--policies", "random,gp_ts,sw_gp_ucb", "--seed", 3]
SMALL += ["--option", "num_arms=8", "--option", "switches=[0.25, 30]", "--option", "sw_gp_ucb.window=6"]


def raced(out, *arguments):
    call("race", *arguments, "--out", out)
    return (out / "regret.csv").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a race that nothing disturbed."""
    out = tmp_path_factory.mktemp("races") / "whole"
    raced(out, *SMALL)
    return out


@pytest.fixture
def record(whole, tmp_path):
    """The record of that race, in a folder that may be changed."""
    return shutil.copytree(whole, tmp_path / "first") / "run.json"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "arguments",
    [
        SMALL,
        ["--policies", "pe_gp_ucb,bkb", "--problem", "hills", "--horizon", 30, "--option", "num_arms=21"],
        ["--policies", "tv_gp_ucb", "--problem", "tv-gp", "--horizon", 30, "--option", "num_arms=8"],
    ],
)
def test_a_record_is_enough_to_run_again(arguments, tmp_path):
    table = raced(tmp_path / "first", *arguments)
    result = call("rerun", tmp_path / "first" / "run.json", "--out", tmp_path / "second")
    assert "regret as recorded" in result.stdout
    assert (tmp_path / "second" / "regret.csv").read_bytes() == table
    call("rerun", tmp_path / "second" / "run.json", "--out", tmp_path / "third")
    assert (tmp_path / "third" / "regret.csv").read_bytes() == table


def test_a_race_on_data_runs_again_wherever_they_are_now_but_on_no_others(tmp_path):
    """The table is raced over as many steps as it has."""
    data, rows = tmp_path / "data.csv", np.random.default_rng(0).normal(size=(50, 4)).cumsum(0)
    np.savetxt(data, rows, delimiter=",", header="a,b,c,d", comments="")
    asked = ["--problem", "replay", "--data", data, "--policies", "gp_ucb", "--option", "warm_up=0.3"]
    table = raced(tmp_path / "first", *asked)
    rerun = ["rerun", tmp_path / "first" / "run.json", "--out", tmp_path / "second"]
    data.rename(tmp_path / "moved.csv")
    assert "data.csv: No such file" in call(*rerun, code=2).stderr
    data.write_text((tmp_path / "moved.csv").read_text() + "1,2,3,4\n")
    assert "data must be the file with SHA-256" in call(*rerun, code=2).stderr
    assert not (tmp_path / "second").exists()
    call(*rerun, "--data", tmp_path / "moved.csv")
    assert (tmp_path / "second" / "regret.csv").read_bytes() == table


def test_other_versions_and_regret_that_differs_from_the_record_s_are_told_and_exit_with_1(record, tmp_path):
    held = json.loads(record.read_text())
    held["results"]["gp_ts"]["cumulative_regret"][1] += 1e-9
    held["versions"]["torch"] = "1.0"
    record.write_text(json.dumps(held))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = call("rerun", record, "--out", tmp_path / "second", code=1)
    assert "regret differs from the record's: gp_ts\n" in result.stdout
    assert re.fullmatch(
        r"warning: '.*json' was written with torch 1.0, now .*in the last bits\n", result.stderr
    )


CHANGES = [{"horizon": "x"}, {"policies": "random"}, {"options": None}, {"options": {}}, {"results": {}}]
CHANGES += [{"versions": None}, {"problem": 3}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((text, "is not a race's run.json") for text in ("{", "[1]", '{"format": "x"}')),
        ({"format_version": 9}, "has race format 9; this version reads 2"),
        *(
            (change, f"error: run.json must hold {next(iter(change))}, as a race writes them")
            for change in CHANGES
        ),
    ],
    ids=str,
)
def test_what_is_no_record_or_was_changed_by_hand_is_refused(content, message, record, tmp_path):
    changed = json.dumps(json.loads(record.read_text()) | content) if isinstance(content, dict) else content
    record.write_text(changed)
    assert message in call("rerun", record, "--out", tmp_path / "out", code=2).stderr
    assert not (tmp_path / "out").exists()


def cut_off(out, every=5):
    """A race that stops at step 17 of its second policy."""
    return interrupted(17, "race", *SMALL, *([] if every is None else ["--checkpoint", every]), "--out", out)


def test_a_race_cut_off_goes_on_and_ends_as_if_it_had_not_been(whole, monkeypatch, tmp_path):
    table = (whole / "regret.csv").read_bytes()
    cut_off(tmp_path / "cut")
    kept = (tmp_path / "cut" / "checkpoints").iterdir()
    assert sorted(path.name for path in kept) == ["gp_ts", "race.json", "random"]
    steps, single, block = [], Recorder.pulled, Recorder.block

    def blocks(self, first, times, *rest):
        steps.extend(range(first, first + len(times)))
        block(self, first, times, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "pulled", lambda self, step, *r: (steps.append(step), single(self, step, *r)))
        patch.setattr(Recorder, "block", blocks)
        assert raced(tmp_path / "cut", *SMALL, "--resume") == table
    assert steps == [*range(16, 41), *range(1, 41)]
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == REPORT


def test_who_stops_a_race_is_told_how_far_it_came_what_is_kept_and_how_to_go_on(tmp_path):
    where = "interrupted in gp_ts, policy 2 of 3, after step 16 of 40: "
    done = cut_off(tmp_path / "kept")
    kept = str(tmp_path / "kept" / "checkpoints")
    assert done.stderr == (
        f"{where}1 policy played and the last checkpoint of gp_ts are kept in {kept!r}; "
        "continue with the same command and --resume\n"
    )
    done = cut_off(tmp_path / "early", every=30)
    assert "after step 16 of 40: 1 policy played is kept in" in done.stderr
    done = cut_off(tmp_path / "lost", every=None)
    assert done.stderr == (
        f"{where}nothing is kept; a race with --checkpoint STEPS can be continued with --resume\n"
    )


def test_who_stops_the_comparison_of_starts_is_told_that_all_is_played(monkeypatch, tmp_path):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("bandits_torch.cli.play.compare", stopped)
    done = call("race", *SMALL, "--checkpoint", 5, "--out", tmp_path, code=130)
    assert done.stderr.startswith("interrupted before the report was written: 3 policies played are kept in")
    monkeypatch.undo()
    played, whole = [], Recorder.pulled
    monkeypatch.setattr(Recorder, "pulled", lambda self, *rest: (played.append(rest), whole(self, *rest)))
    call("race", *SMALL, "--resume", "--out", tmp_path)
    assert not played


LONG = ["--horizon", 3000, "--replicates", 1, "--policies", "random", "--option", "num_arms=4"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return raced(tmp_path_factory.mktemp("whole"), *LONG)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_race_with_words_if_it_can_and_it_goes_on(number, undisturbed, tmp_path):
    process = Forked("race", *map(str, LONG), "--checkpoint", "10", "--out", str(tmp_path))
    while not (tmp_path / "checkpoints" / "random").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, number)
    said = process.wait().stderr
    if number == signal.SIGKILL:
        assert process.returncode == -number
        assert not (tmp_path / "run.json").exists()
    else:
        assert process.returncode == 128 + number
        assert re.match(
            r"interrupted in random, policy 1 of 1, after step \d+ of 3000: the last checkpoint of", said
        )
        assert "Traceback" not in said
    assert raced(tmp_path, *LONG, "--resume") == undisturbed


# -- in blocks -----------------------------------------------------------------------------------------


def test_blocks_give_the_same_results_and_older_records_are_played_step_by_step(record, tmp_path):
    raced(tmp_path / "single", *SMALL, "--no-capture")
    blocks, single = json.loads(record.read_text()), json.loads((tmp_path / "single/run.json").read_text())
    assert (blocks["capture"], single.pop("capture")) == (True, False)
    for name, result in blocks["results"].items():
        total = single["results"][name]["cumulative_regret"]
        assert result["cumulative_regret"] == pytest.approx(total, abs=1e-9)
    (tmp_path / "single/run.json").write_text(json.dumps(single))  # as it was before there were blocks
    again = call("rerun", tmp_path / "single/run.json", "--out", tmp_path / "again")
    assert "regret as recorded" in again.stdout
    assert json.loads((tmp_path / "again/run.json").read_text())["capture"] is False
