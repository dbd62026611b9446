"""The folder a race or a sweep writes to: what is another's stays as it is, byte for byte, unless it is given up."""

import errno
import io
import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from bandits_torch.experiments import report
from bandits_torch.files import atomic_write, fcntl
from bandits_torch.history import Recorder
from bandits_torch.state_files import write_state
from tests.cli.shell import REPORT, call, interrupted

pytestmark = pytest.mark.usefixtures("without_a_page")

RACE = ["--horizon", 20, "--replicates", 2, "--policies", "random,gp_ts", "--option", "num_arms=6"]
SWEEP = ["--problems", "gp", "--policies", "random", "--replicates", 2, "--option", "num_arms=6"]
OVERWRITE, RESUME, CHECKPOINT = ["--overwrite"], ["--resume"], ["--checkpoint", 5]
OTHERS = [  # than the race asked for, and what is said of them
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


class FullDisk(io.BytesIO):
    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def race(out, *arguments, code=0):
    return call("race", *RACE, "--out", out, *arguments, code=code)


def held(folder: Path):
    """Every file below a folder, with what it holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put(out, *names):
    """Files of the user's own."""
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")


@pytest.fixture(scope="module")
def races(tmp_path_factory):
    """The folders of a race that is over, and of one that stopped at step 12 of its second policy."""
    folder = tmp_path_factory.mktemp("races")
    race(folder / "over")
    interrupted(12, "race", *RACE, "--out", folder / "cut off", *CHECKPOINT)
    assert {path.name for path in folder.glob("cut off/*/*")} == {"gp_ts", "race.json", "random"}
    return folder


@pytest.fixture
def out(races, tmp_path, request):
    """A folder that holds a race, ``over`` or ``cut off``, if the test names one, and is not there otherwise."""
    if getattr(request, "param", None):
        shutil.copytree(races / request.param, tmp_path / "out")
    return tmp_path / "out"


def refused(words, folder, *command):
    """The command is refused with these words, and nothing below the folder is changed."""
    before = held(folder)
    assert words in call(*command, code=2).stderr
    assert held(folder) == before


NO_RACE, UNFINISHED = "which no race of this version wrote", "continue it with --resume, or start again"
REFUSED = [  # what the folder holds of a race and of the user's own, what is asked, what is said
    *(
        (None, f"checkpoints/{name}", flags, NO_RACE)
        for name in ("weights.bin", "random", "deep/notes.txt")
        for flags in (CHECKPOINT, RESUME, [*CHECKPOINT, *OVERWRITE])
    ),
    *(
        (begun, name, flags, f"out holds {name.split('/')[0]}, {NO_RACE}")
        for begun, names in {
            None: [*REPORT, *(f"{one}/notes.txt" for one in REPORT)],
            "cut off": REPORT[:1],
        }.items()
        for name in names
        for flags in ([], RESUME, OVERWRITE, CHECKPOINT)
    ),
    *(
        ("cut off", "checkpoints/gp_ts", flags, "it is truncated, or of another kind")
        for flags in (RESUME, OVERWRITE)
    ),
    *(("cut off", None, [*other, *RESUME], words) for other, words in OTHERS),
    *(("cut off", None, flags, UNFINISHED) for flags in ([], CHECKPOINT, *(other for other, _ in OTHERS))),
    ("cut off", None, [*RESUME, *OVERWRITE], "resume and overwrite exclude each other"),
    *(
        ("over", None, [*other, *flags], words)
        for other, words in OTHERS[:4]
        for flags in ([], RESUME, CHECKPOINT)
    ),
]


@pytest.mark.parametrize(("out", "own", "asked", "words"), REFUSED, ids=str, indirect=["out"])
def test_what_is_not_given_up_stays(out, own, asked, words):
    put(out, *([] if own is None else [own]))
    refused(words, out, "race", *RACE, "--out", out, *asked)


@pytest.mark.parametrize(
    ("out", "own", "asked"),
    [
        (None, ["checkpoints/weights.bin"], []),
        (None, ["checkpoints/race.json"], []),
        ("cut off", ["checkpoints/.random.my.part", "checkpoints/notes.txt"], RESUME),
        ("cut off", [], ["--horizon", 25, *OVERWRITE]),
        ("cut off", [], ["--horizon", 25, *OVERWRITE, "--checkpoint", 7]),
        ("over", [], []),
        *(("over", [], [*other, *OVERWRITE]) for other, _ in OTHERS[:4]),
    ],
    indirect=["out"],
)
def test_a_race_leaves_its_report_and_what_is_the_user_s(out, own, asked):
    put(out, *own)
    before = held(out) if out.exists() else {}
    race(out, *asked)
    after = held(out)
    assert sorted(after) == [*own, *REPORT]
    assert after["run.json"] != before.get("run.json")  # when it was played
    assert {after[name] for name in own} <= {b"mine"}
    assert (out / "checkpoints").exists() == bool(own)
    if not asked:
        assert after["regret.csv"] == before.get("regret.csv", after["regret.csv"])


def wrote(content, name="race.json"):
    """A function that writes something else in the place of the record of a race in progress, or of a checkpoint."""
    return lambda out: (out / "checkpoints" / name).write_bytes(content)


def asked_for(**changes):
    """A function that changes what the record of a race in progress says was asked."""

    def change(out):
        record = json.loads((out / "checkpoints" / "race.json").read_text())
        wrote(json.dumps(record | {"asked": record["asked"] | changes}).encode())(out)

    return change


def crafted(out):
    """A state that no run wrote."""
    (out / "checkpoints" / "gp_ts").unlink()
    write_state(out / "checkpoints" / "gp_ts", "run", {})


def a_folder_for_a_state(out):
    (out / "checkpoints" / "gp_ts").unlink()
    put(out, "checkpoints/gp_ts/mine")


def a_link_for_the_checkpoints(out):
    put(out, "elsewhere/mine")
    (out / "checkpoints").symlink_to(out / "elsewhere")


BEGUN = b'{"format": "bandits_torch race in progress"'
RECORDS = [b"", b"{", b"[]", b"{}", b"null", b"1", b'{"format": "x"}', b"\xff\xfe\x00", b"[" * 9999]
RECORDS += [BEGUN + asked + b"}" for asked in (b"", b', "asked": null', b', "asked": []', b', "asked": "x"')]
POLICIES = [None, "random", [["random"]], ["../../mine"], ["race.json"]]
WRONG = [{"options": None}, {"options": {"random": 3}}, {"horizon": "20"}, {"horizon": 1e400}]
WRONG += [{"policies": policies} for policies in POLICIES]
LOOKS = {  # what the folder holds of a race, and what is done to it
    "empty": (None, lambda out: out.mkdir()),
    "a file": (None, lambda out: put(out.parent, out.name)),
    "a dangling link": (None, lambda out: out.symlink_to(out.parent / "nowhere")),
    "a link to itself": (None, lambda out: out.symlink_to(out)),
    "empty checkpoints": (None, lambda out: (out / "checkpoints").mkdir(parents=True)),
    "checkpoints is a file": (None, lambda out: put(out, "checkpoints")),
    "checkpoints is a link": (None, a_link_for_the_checkpoints),
    "a crafted state": ("cut off", crafted),
    "a folder for a state": ("cut off", a_folder_for_a_state),
    "an empty state": ("cut off", wrote(b"", "gp_ts")),
    "half a state": ("cut off", lambda out: os.truncate(out / "checkpoints" / "random", 500)),
    "the other's state": (
        "cut off",
        lambda out: shutil.copy(out / "checkpoints" / "random", out / "checkpoints" / "gp_ts"),
    ),
    **{f"record {record[43:] or record[:9]}": ("cut off", wrote(record)) for record in RECORDS},
    **{f"asked {changes}": ("cut off", asked_for(**changes)) for changes in WRONG},
}


@pytest.mark.parametrize("asked", [CHECKPOINT, RESUME, OVERWRITE], ids=str)
@pytest.mark.parametrize(("out", "look"), LOOKS.values(), ids=LOOKS, indirect=["out"])
def test_however_a_folder_looks_a_race_runs_or_a_line_says_why_not_and_nothing_is_changed(
    out, look, asked, tmp_path
):
    put(tmp_path, "mine")
    look(out)
    before = held(tmp_path)
    result = race(out, *asked, code=None)
    after = held(tmp_path)
    assert {after.get(name) for name, content in before.items() if content == b"mine"} == {b"mine"}
    if result.exit_code:
        assert (result.exit_code, after) == (2, before)
        assert re.fullmatch(r"error: (?!\w*(Error|Exception): ).+\n", result.stderr)
    else:
        assert set(REPORT) <= set(held(out))


@pytest.mark.parametrize("out", ["cut off"], indirect=True)
def test_a_record_that_names_files_elsewhere_deletes_none(out, tmp_path):
    put(tmp_path, "mine")
    asked_for(policies=["random", "gp_ts", "../../mine", str(tmp_path / "mine")])(out)
    race(out, *OVERWRITE)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("out", ["cut off"], indirect=True)
def test_a_race_without_an_option_of_the_one_cut_off_is_another(out):
    words = "option problem.num_arms was 6 and is None"
    refused(words, out, "race", *RACE[:-2], "--out", out, *RESUME)


def test_other_data_under_the_same_name_are_another_race(tmp_path, out, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(50, 3)).cumsum(0)
    np.savetxt(tmp_path / "my.csv", rows, delimiter=",", header="a,b,c", comments="")
    asked = ["race", "--policies", "random,gp_ts", "--out", out, "--data"]
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "history", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        call(*asked, tmp_path / "my.csv", *CHECKPOINT, code=130)
    (tmp_path / "my.csv").rename(tmp_path / "moved.csv")
    np.savetxt(tmp_path / "my.csv", 2 * rows, delimiter=",", header="a,b,c", comments="")
    refused("data_sha256 was", out, *asked, tmp_path / "my.csv", *RESUME)
    call(*asked, tmp_path / "moved.csv", *RESUME)


def test_nothing_to_resume_is_said(out):
    result = race(out, *RESUME)
    assert result.stderr == f"note: nothing to resume in {out}: the race begins at its first step\n"
    for tidied in (True, False):  # or killed while it tidied up
        put(out, *([] if tidied else ["checkpoints/notes.txt"]))
        before = held(out)
        again = race(out, *RESUME, *([] if tidied else CHECKPOINT))
        assert again.stderr == f"nothing to resume: the race in {out} is complete\n"
        assert held(out) == before


@pytest.mark.parametrize("out", ["over"], indirect=True)
def test_a_report_that_lacks_a_file_is_not_over(out):
    (out / "regret.png").unlink()
    put(out, "regret.png/notes.txt")
    refused(f"out holds regret.png, {NO_RACE}", out, "race", *RACE, "--out", out)
    shutil.rmtree(out / "regret.png")
    assert "the race begins at its first step" in race(out, *RESUME).stderr
    assert sorted(held(out)) == REPORT


def test_a_race_killed_before_its_first_word_is_begun(out):
    put(out, "checkpoints/.race.json.0a1b2c3d.part")
    race(out, *RESUME)
    assert sorted(held(out)) == REPORT


def test_a_race_stopped_at_any_write_or_deletion_ends_as_one_that_was_not(races, tmp_path, monkeypatch):
    table, replace, unlink = (races / "over" / "regret.csv").read_bytes(), os.replace, Path.unlink

    def stopped_after(count):
        """A race that goes on and is stopped so many writes and deletions later: its folder, and whether it was."""
        out, left = shutil.copytree(races / "cut off", tmp_path / str(count)), [None] * count
        put(out, "checkpoints/notes.txt")

        def counted(change):
            def changed(*names, **options):
                if not left:
                    raise KeyboardInterrupt
                left.pop()
                change(*names, **options)

            return changed

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", counted(replace))
            patch.setattr(Path, "unlink", counted(unlink))
            return out, race(out, *RESUME, *CHECKPOINT, code=None).exit_code == 130

    for count in range(99):
        out, was_stopped = stopped_after(count)
        race(out, *RESUME)
        assert sorted(held(out)) == ["checkpoints/notes.txt", *REPORT]
        assert (out / "regret.csv").read_bytes() == table
        if not was_stopped:
            break
    assert 10 < count < 99


@pytest.mark.parametrize("out", ["over"], indirect=True)
@pytest.mark.parametrize("k", range(len(REPORT)))
def test_a_report_is_never_a_mixture_of_two_races(out, k, monkeypatch):
    """The disk is full when file k is written, or the race is killed when it is put in its place."""
    before, replace, done = held(out), os.replace, []

    @contextmanager
    def full(path):
        with atomic_write(path) as file:
            if path.name == REPORT[k]:
                file = FullDisk()
            yield file

    def killed(*names):
        done.append(names)
        if len(done) > k:
            raise KeyboardInterrupt
        replace(*names)

    monkeypatch.setattr(report, "atomic_write", full)
    refused("No space left on device", out, "race", *RACE, "--out", out, "--seed", 1, *OVERWRITE)
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", killed)
    race(out, "--seed", 1, *OVERWRITE, code=130)
    assert before.keys() - held(out).keys() == {"run.json"}


@pytest.mark.parametrize("out", ["over"], indirect=True)
def test_a_rerun_spares_the_record_and_the_report_of_another_race(out, tmp_path):
    race(tmp_path / "other", "--seed", 1)
    rerun = ["rerun", out / "run.json", "--out"]
    for flags in ([], OVERWRITE):
        refused("out must be another folder than the record's", tmp_path, *rerun, out, *flags)
    refused("seed was 1", tmp_path, *rerun, tmp_path / "other")
    call(*rerun, tmp_path / "other", *OVERWRITE)


def test_the_table_of_another_sweep_is_replaced_only_when_that_is_said(out):
    sweep = ["sweep", *SWEEP, "--out", out, "--horizon"]
    assert f"note: nothing to resume in {out}" in call(*sweep, 5, *RESUME).stderr
    for flags in ([], RESUME):
        refused("out holds the sweep.csv of another sweep", out, *sweep, 6, *flags)
    before = held(out)
    call(*sweep, 6, *OVERWRITE)
    assert held(out)["sweep.csv"] != before["sweep.csv"]
    assert before.items() - held(out).items() == {("sweep.csv", before["sweep.csv"])}
    for flags in ([], RESUME):  # although all cells are finished
        refused("out holds the sweep.csv of another sweep", out, *sweep, 5, *flags)
    call(*sweep, 5, *OVERWRITE)
    assert held(out)["sweep.csv"] == before["sweep.csv"]
    call(*sweep, 5, *RESUME)
    call(*sweep, 5, *RESUME, "--policies", "random,ucb1")
    refused("out holds the sweep.csv of another sweep", out, *sweep, 5, *RESUME)


@pytest.mark.parametrize("finished", [False, True])
def test_a_table_that_no_sweep_wrote_is_never_replaced(out, finished):
    sweep = ["sweep", *SWEEP, "--horizon", 5, "--out", out]
    if finished:
        call(*sweep)
    put(out, "sweep.csv")
    for flags in ([], RESUME, OVERWRITE):
        refused("out holds sweep.csv, which no sweep of this version wrote", out, *sweep, *flags)


@pytest.mark.skipif(fcntl is None, reason="this system has no file locks")
@pytest.mark.parametrize(
    "first", [["race", *RACE, *OVERWRITE, *CHECKPOINT], ["sweep", *SWEEP, "--horizon", 5]]
)
@pytest.mark.parametrize(
    "second",
    [["race", *RACE], ["race", *RACE, *RESUME], ["race", *RACE, *OVERWRITE, *CHECKPOINT], ["sweep", *SWEEP]],
)
def test_a_race_or_sweep_in_a_folder_where_another_is_playing_is_refused_and_that_one_ends(
    out, first, second, monkeypatch
):
    whole, said = Recorder.pulled, []

    def pulled(self, now, *rest):
        if not said:
            said.append("a second one")
            said[0] = call(*second, "--out", out, code=2).stderr
        whole(self, now, *rest)

    monkeypatch.setattr(Recorder, "pulled", pulled)
    call(*first, "--out", out)
    expected = "a folder in which no other race or sweep is playing now"
    assert said == [f"error: out must be {expected}, got {str(out)!r}\n"]
    assert not (out / "checkpoints").exists()
    race(out, *OVERWRITE)
