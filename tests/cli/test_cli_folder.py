"""The folder a race or a sweep writes to: what is another's stays as it is, byte for byte, unless it is given up."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bandits_torch.files import fcntl
from bandits_torch.history import Recorder
from tests.cli.shell import REPORT, call, interrupted

pytestmark = pytest.mark.usefixtures("without_a_page")

RACE = ["--horizon", 20, "--replicates", 2, "--policies", "random,gp_ts", "--option", "num_arms=6"]


def race(out, *arguments, code=0):
    return call("race", *RACE, "--out", out, *arguments, code=code)


def held(folder: Path):
    """Every file below a folder, with what it holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture(scope="module")
def races(tmp_path_factory):
    """The folders of a race that is over, and of one that stopped at step 12 of its second policy, with a checkpoint
    every 5."""
    folder = tmp_path_factory.mktemp("races")
    race(folder / "over")
    interrupted(12, "race", *RACE, "--out", folder / "cut off", "--checkpoint", 5)
    assert sorted(held(folder / "cut off")) == [
        "checkpoints/gp_ts",
        "checkpoints/race.json",
        "checkpoints/random",
    ]
    return folder


@pytest.fixture
def cut_off(races, out):
    """The race that stopped is that of ``out``."""
    return held(shutil.copytree(races / "cut off", out))


@pytest.fixture
def over(races, out):
    """The race that is over is that of ``out``."""
    return held(shutil.copytree(races / "over", out))


def refused(result, words, folder, before):
    assert words in result.stderr
    assert held(folder) == before


# -- a folder of the user's own ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights.bin", "random", "deep/notes.txt"])
@pytest.mark.parametrize("arguments", [["--checkpoint", 5], ["--resume"], ["--checkpoint", 5, "--overwrite"]])
def test_a_folder_of_checkpoints_of_somebody_else_s_is_refused(out, name, arguments):
    path = out / "checkpoints" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    refused(race(out, *arguments, code=2), "which no race of this version wrote", out, held(out))


@pytest.mark.parametrize("name", ["weights.bin", "race.json"])
def test_a_race_without_checkpoints_does_not_touch_that_folder(out, name):
    (out / "checkpoints").mkdir(parents=True)
    (out / "checkpoints" / name).write_text("mine")
    race(out)
    assert sorted(held(out)) == [f"checkpoints/{name}", *REPORT]
    assert held(out)[f"checkpoints/{name}"] == b"mine"


def test_what_is_put_among_the_checkpoints_stays(out, cut_off):
    (out / "checkpoints" / "notes.txt").write_text("mine")
    (out / "checkpoints" / ".random.my.part").write_text("mine")
    race(out, "--resume")
    assert sorted(held(out)) == ["checkpoints/.random.my.part", "checkpoints/notes.txt", *REPORT]


@pytest.mark.parametrize("arguments", [["--resume"], ["--overwrite"]])
def test_a_file_in_a_policy_s_place_is_not_deleted(out, cut_off, arguments):
    (out / "checkpoints" / "gp_ts").write_text("mine")
    result = race(out, *arguments, code=2)
    assert "is not a whole run file" in result.stderr
    assert (out / "checkpoints" / "gp_ts").read_text() == "mine"
    assert held(out)["checkpoints/random"] == cut_off["checkpoints/random"]


def test_a_record_that_names_files_elsewhere_deletes_none(out, cut_off, tmp_path):
    (tmp_path / "mine").write_text("mine")
    record = out / "checkpoints" / "race.json"
    changed = json.loads(record.read_text())
    changed["asked"]["policies"] += ["../../mine", str(tmp_path / "mine")]
    record.write_text(json.dumps(changed))
    race(out, "--overwrite")
    assert (tmp_path / "mine").read_text() == "mine"


# -- another race's checkpoints ------------------------------------------------------------------------


OTHERS = [
    (["--horizon", 25], "horizon was 20 and is 25"),
    (["--policies", "random"], "policies was ['random', 'gp_ts'] and is ['random']"),
    (["--policies", "gp_ucb"], "policies was ['random', 'gp_ts'] and is ['gp_ucb']"),
    (["--policies", "gp_ts,random"], "policies was ['random', 'gp_ts'] and is ['gp_ts', 'random']"),
    (["--replicates", 3], "replicates was 2 and is 3"),
    (["--seed", 1], "seed was 0 and is 1"),
    (["--problem", "gp"], "problem was 'switching' and is 'gp'"),
    (["--option", "gp_ts.delta=0.2"], "option gp_ts.delta was None and is 0.2"),
    (["--option", "lengthscale=0.3"], "option problem.lengthscale was None and is 0.3"),
]


@pytest.mark.parametrize(("other", "words"), OTHERS, ids=lambda value: str(value))
def test_another_race_s_checkpoints_are_not_continued_nor_deleted(out, cut_off, other, words):
    refused(race(out, *other, "--resume", code=2), words, out, cut_off)
    refused(race(out, *other, code=2), "continue it with --resume, or begin afresh", out, cut_off)


@pytest.mark.parametrize("checkpoint", [[], ["--checkpoint", 7]])
def test_another_race_s_checkpoints_are_given_up_when_that_is_said(out, cut_off, checkpoint):
    race(out, "--horizon", 25, "--overwrite", *checkpoint)
    assert sorted(held(out)) == REPORT
    assert not (out / "checkpoints").exists()


def test_checkpoints_are_not_continued_unasked_nor_when_both_are_asked(out, cut_off):
    for arguments in ([], ["--checkpoint", 5]):
        refused(race(out, *arguments, code=2), "continue it with --resume, or begin afresh", out, cut_off)
    both = race(out, "--resume", "--overwrite", code=2)
    refused(both, "resume and overwrite exclude each other", out, cut_off)


def test_other_data_under_the_same_name_are_another_race(tmp_path, out, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(50, 3)).cumsum(0)
    np.savetxt(tmp_path / "my.csv", rows, delimiter=",", header="a,b,c", comments="")
    arguments = ["--data", tmp_path / "my.csv", "--policies", "random,gp_ts", "--out", out]
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "history", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        call("race", *arguments, "--checkpoint", 5, code=130)
    before = held(out)
    (tmp_path / "my.csv").rename(tmp_path / "moved.csv")
    np.savetxt(tmp_path / "my.csv", 2 * rows, delimiter=",", header="a,b,c", comments="")
    refused(call("race", *arguments, "--resume", code=2), "data_sha256 was", out, before)
    moved = [tmp_path / "moved.csv" if one == tmp_path / "my.csv" else one for one in arguments]
    call("race", *moved, "--resume")


# -- nothing to resume ---------------------------------------------------------------------------------


def test_nothing_to_resume_is_said(out):
    result = race(out, "--resume")
    assert result.stderr == f"note: nothing to resume in {out}: the race begins at its first step\n"
    before = held(out)
    again = race(out, "--resume")
    assert again.stderr == f"nothing to resume: the race in {out} is over\n"
    assert held(out) == before


def test_a_race_killed_while_it_tidied_up_is_over(out, over):
    (out / "checkpoints").mkdir()
    (out / "checkpoints" / "notes.txt").write_text("mine")
    before = held(out)
    again = race(out, "--checkpoint", 5, "--resume")
    assert again.stderr == f"nothing to resume: the race in {out} is over\n"
    assert held(out) == before


def test_a_race_killed_before_its_first_word_is_begun(out):
    (out / "checkpoints").mkdir(parents=True)
    (out / "checkpoints" / ".race.json.0a1b2c3d.part").write_text("{")
    race(out, "--resume")
    assert sorted(held(out)) == REPORT


# -- another race's report -----------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("other", "words"), OTHERS[:4], ids=lambda value: str(value))
def test_the_report_of_another_race_is_replaced_only_when_that_is_said(out, over, other, words):
    for more in ([], ["--resume"], ["--checkpoint", 5]):
        refused(race(out, *other, *more, code=2), words, out, over)
    race(out, *other, "--overwrite")
    assert held(out)["run.json"] != over["run.json"]


def test_the_same_race_replaces_its_report(out, over):
    race(out)
    assert held(out)["regret.csv"] == over["regret.csv"]
    assert held(out)["run.json"] != over["run.json"]  # when it was played


FLAGS = [[], ["--resume"], ["--overwrite"], ["--checkpoint", 5]]


@pytest.mark.parametrize("name", REPORT)
@pytest.mark.parametrize("inside", ["", "notes.txt"])
def test_a_file_or_folder_that_no_race_wrote_is_never_replaced(out, name, inside):
    path = out / name / inside
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    for flags in FLAGS:
        refused(race(out, *flags, code=2), f"out holds {name}, which no race of this version", out, held(out))


def test_a_file_put_beside_a_race_that_was_cut_off_is_not_replaced(out, cut_off):
    (out / "regret.csv").write_text("mine")
    for flags in FLAGS:
        refused(race(out, *flags, code=2), "out holds regret.csv, which no race", out, held(out))


def test_a_race_cut_off_while_it_wrote_its_report_goes_on(out, cut_off, monkeypatch):
    def stopped(directory, *_, **__):
        (directory / "regret.csv").write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bandits_torch.cli.play.write_report", stopped)
        race(out, "--resume", code=130)
    race(out, "--resume")
    assert sorted(held(out)) == REPORT


def test_a_rerun_spares_the_record_and_the_report_of_another_race(out, over, tmp_path):
    race(tmp_path / "other", "--seed", 1)
    before = held(tmp_path)
    for folder, words in (
        (out, "out must be another folder than the record's"),
        (tmp_path / "other", "seed was 1"),
    ):
        for more in [[], ["--overwrite"]] if folder == out else [[]]:
            refused(call("rerun", out / "run.json", "--out", folder, *more, code=2), words, tmp_path, before)
    call("rerun", out / "run.json", "--out", tmp_path / "other", "--overwrite")


# -- sweeps, and runs from Python ----------------------------------------------------------------------


def test_the_table_of_another_sweep_is_replaced_only_when_that_is_said(out):
    arguments = ["--problems", "gp", "--policies", "random", "--replicates", 2, "--option", "num_arms=6"]
    call("sweep", *arguments, "--horizon", 5, "--out", out)
    before = held(out)
    for more in ([], ["--resume"]):
        result = call("sweep", *arguments, "--horizon", 6, "--out", out, *more, code=2)
        refused(result, "out holds the sweep.csv of another sweep", out, before)
    call("sweep", *arguments, "--horizon", 6, "--out", out, "--overwrite")
    assert held(out)["sweep.csv"] != before["sweep.csv"]
    assert before.items() - held(out).items() == {("sweep.csv", before["sweep.csv"])}


@pytest.mark.parametrize("finished", [False, True])
def test_a_table_that_no_sweep_wrote_is_never_replaced(out, finished):
    arguments = ["--problems", "gp", "--policies", "random", "--replicates", 2, "--horizon", 5, "--out", out]
    if finished:
        call("sweep", *arguments)
    out.mkdir(exist_ok=True)
    (out / "sweep.csv").write_text("mine")
    for flags in ([], ["--resume"], ["--overwrite"]):
        words = "out holds sweep.csv, which no sweep of this version wrote"
        refused(call("sweep", *arguments, *flags, code=2), words, out, held(out))


def test_a_sweep_says_when_there_is_nothing_to_resume(out):
    arguments = ["--problems", "gp", "--policies", "random", "--replicates", 2, "--horizon", 5]
    result = call("sweep", *arguments, "--out", out, "--resume")
    assert f"note: nothing to resume in {out}" in result.stderr


@pytest.mark.skipif(fcntl is None, reason="this system has no file locks")
@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--resume"], ["--overwrite", "--checkpoint", 5]])
def test_a_race_in_a_folder_where_another_is_playing_is_refused_and_that_one_ends(out, more, monkeypatch):
    whole, refused = Recorder.pulled, []

    def pulled(self, now, *rest):
        if not refused:
            refused.append("a race")
            refused[0] = race(out, *more, code=2).stderr
        whole(self, now, *rest)

    monkeypatch.setattr(Recorder, "pulled", pulled)
    race(out, "--overwrite", "--checkpoint", 5)
    assert refused == [
        f"error: out must be a folder in which no other race is playing now, got {str(out)!r}\n"
    ]
    assert sorted(held(out)) == sorted(REPORT)
    race(out, "--overwrite")
