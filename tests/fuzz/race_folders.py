"""Attacks on the folder of a race: ``python -m tests.fuzz.race_folders --kills 60``.

* Folders: every way a folder may look (``FOLDERS``) met by every way of asking (``ASKED``). The race runs, or one line
  says why not and nothing is changed; a user's files are as they were either way.
* Changes: a race that was cut off, resumed with one thing changed (``CHANGES``). It is refused with nothing changed.
* Kills: SIGKILL at random moments, the report's writing among them, until the race is over. The table is that of the
  undisturbed race, byte for byte, nothing is left of it, and what the user put among the checkpoints is.
"""

import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from typer.testing import CliRunner

from bandits_torch import cli, loop
from bandits_torch.cli import folder as cli_folder
from bandits_torch.state_files import write_state
from tests.reference.kill_runs import ended

RACE = ["race", "--horizon", "8", "--replicates", "2", "--policies", "random,gp_ts"]
RACE += ["--option", "num_arms=5"]
REPORT = {"regret.csv", "regret.png", "run.json"}
ASKED = [[], ["--checkpoint", "3"], ["--resume"], ["--overwrite"], ["--checkpoint", "3", "--resume"]]
ASKED += [["--checkpoint", "3", "--overwrite"], ["--resume", "--overwrite"]]
MINE = b"the user's own"


class CutOff(KeyboardInterrupt):
    """What cuts a race off in its second policy."""


def call(out, *more, race=RACE):
    """The command line's answer."""
    return CliRunner().invoke(cli.app, [*race, "--out", str(out), *more])


def cut_off(out, race=RACE):
    """Leave the checkpoints of a race whose second policy stopped half-way."""
    whole = loop.Recorder.pulled
    steps = []

    def pulled(self, step, *rest):
        steps.append(step)
        if steps.count(5) == 2:
            raise CutOff
        whole(self, step, *rest)

    loop.Recorder.pulled = pulled
    try:
        call(out, "--checkpoint", "2", race=race)
    finally:
        loop.Recorder.pulled = whole
    assert (out / "checkpoints" / "race.json").exists()


def record(out, text):
    """A folder of checkpoints whose record reads so."""
    cut_off(out)
    content = text if isinstance(text, bytes) else text.encode()
    (out / "checkpoints" / "race.json").write_bytes(content)


def asked_for(out, **changes):
    """Checkpoints whose record says something else was asked."""
    cut_off(out)
    path = out / "checkpoints" / "race.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {"asked": held["asked"] | changes}))


def put(path, content=MINE):
    """A file of the user's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def crafted(path, header, state):
    """A state file of a run that no run wrote."""
    path.unlink(missing_ok=True)
    write_state(path, "run", header, state)


def folders():
    """How a folder may look, by name: functions of ``out`` that make it so."""
    yield "absent", lambda out: None
    yield "empty", lambda out: out.mkdir()
    yield "a file", lambda out: put(out)
    yield "a file above", lambda out: put(out.parent)
    yield (
        "a link to a folder",
        lambda out: ((out.parent / "real").mkdir(), out.symlink_to(out.parent / "real")),
    )
    yield "a dangling link", lambda out: out.symlink_to(out.parent / "nowhere")
    yield "a link to itself", lambda out: out.symlink_to(out)
    yield "over already", lambda out: call(out)
    yield "another race over", lambda out: call(out, "--seed", "1")
    yield "cut off", cut_off
    yield "another race cut off", lambda out: cut_off(out, [*RACE, "--seed", "1"])
    yield "over and cut off", lambda out: (call(out), cut_off(out))
    for name in sorted(REPORT):
        yield f"a user's {name}", lambda out, name=name: put(out / name)
        yield f"a folder {name}", lambda out, name=name: put(out / name / "mine")
    yield "a user's checkpoints", lambda out: put(out / "checkpoints" / "mine")
    yield "checkpoints is a file", lambda out: put(out / "checkpoints")
    yield (
        "checkpoints is a link",
        lambda out: (put(out / "mine" / "x"), (out / "checkpoints").symlink_to(out / "mine")),
    )
    yield "empty checkpoints", lambda out: (out / "checkpoints").mkdir(parents=True)
    yield "mine among them", lambda out: (cut_off(out), put(out / "checkpoints" / "mine"))
    yield "mine in a policy's place", lambda out: (cut_off(out), put(out / "checkpoints" / "gp_ts"))
    yield "empty in a policy's place", lambda out: (cut_off(out), put(out / "checkpoints" / "gp_ts", b""))
    yield (
        "a folder in a policy's place",
        lambda out: (
            cut_off(out),
            (out / "checkpoints" / "gp_ts").unlink(),
            put(out / "checkpoints" / "gp_ts" / "mine"),
        ),
    )
    yield "half a state", lambda out: (cut_off(out), os.truncate(out / "checkpoints" / "random", 500))
    yield (
        "the other policy's state",
        lambda out: (
            cut_off(out),
            shutil.copy(out / "checkpoints" / "random", out / "checkpoints" / "gp_ts"),
        ),
    )
    yield "a crafted state", lambda out: (cut_off(out), crafted(out / "checkpoints" / "gp_ts", {}, {}))
    for text in ("", "{", "[]", "{}", "null", "1", '{"format": "x"}', b"\xff\xfe\x00", "[" * 9999):
        yield f"record {text[:9]!r}", lambda out, text=text: record(out, text)
    begun = '{"format": "bandits_torch race in progress"'
    for asked in ("", ', "asked": null', ', "asked": []', ', "asked": {}', ', "asked": "x"'):
        yield f"record asked{asked}", lambda out, asked=asked: record(out, begun + asked + "}")
    for changes in (
        {"policies": None},
        {"policies": "random"},
        {"policies": [["random"]]},
        {"policies": ["../../mine"]},
        {"policies": ["race.json"]},
        {"options": None},
        {"options": {"random": 3}},
        {"horizon": "8"},
        {"horizon": 1e400},
    ):
        yield f"asked {changes}", lambda out, changes=changes: asked_for(out, **changes)


def held(folder):
    """Everything below a folder: what files hold, where links lead; parts of killed writes left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file() and not path.name.endswith(".part"):
            found[str(path)] = path.read_bytes()
    return found


def try_folders():
    """(Tried, ran, refused, wrong answers)."""
    tried, ran, wrong = 0, 0, []
    for name, make in folders():
        for asked in ASKED:
            with tempfile.TemporaryDirectory() as root:
                out = Path(root) / "über uns" / "out\n2"
                if name != "a file above":
                    out.parent.mkdir()
                make(out)
                before = held(Path(root))
                result = call(out, *asked)
                after = held(Path(root))
            tried, ran = tried + 1, ran + (result.exit_code == 0)
            given_up = {str(out / one) for one in REPORT} if "--overwrite" in asked else set()
            mine = {
                path: MINE for path, content in before.items() if content == MINE and path not in given_up
            }
            lost = [path for path in mine if after.get(path) != MINE]
            said = result.stderr.removeprefix("error: ")
            in_words = said != result.stderr and not re.match(r"\w*(Error|Exception): ", said)
            one_line = result.stderr.count("\n") == 1 and in_words
            whole = isinstance(result.exception, SystemExit | None)
            clean = whole and (
                result.exit_code == 0 or (result.exit_code == 2 and one_line and before == after)
            )
            if lost or not clean:
                wrong.append((name, asked, result.exit_code, result.stderr, lost, repr(result.exception)))
    return tried, ran, tried - ran - len(wrong), wrong


CHANGES = [
    *(["--problem", name, "--option", "num_arms=5"] for name in ("gp", "tv-gp", "rkhs", "cosine")),
    *(["--horizon", number] for number in ("7", "9", "80")),
    *(["--replicates", number] for number in ("1", "3")),
    *(
        ["--policies", names]
        for names in ("random", "gp_ts", "gp_ts,random", "random,gp_ts,gp_ucb", "random,gp_ucb")
    ),
    ["--seed", "1"],
    *(
        ["--option", f"{key}=0.5"]
        for key in ("lengthscale", "problem.noise_scale", "nu", "rkhs_bound", "gp_ts.delta")
    ),
    *(
        ["--option", f"{key}=0.5"]
        for key in ("gp_ts.noise_scale", "width", "gp_ts.prior_mean", "gp_ts.noise_variance")
    ),
    *(["--option", f"gp_ts.{setting}"] for setting in ("width_form=printed", "form=factor", "delta=0.1")),
    *(
        ["--option", f"problem.{setting}"]
        for setting in ("layout=grid", "dim=2", "kernel=matern", "change=flip")
    ),
    ["--option", "switches=[0.5]"],
    ["--option", "switches=[0.3]"],
]


def try_changes():
    """(Tried, refused, wrong answers)."""
    wrong = []
    with tempfile.TemporaryDirectory() as root:
        out = Path(root) / "out"
        cut_off(out)
        before = held(out)
        for change in CHANGES:
            race = [*RACE[:-2], *change] if "num_arms=5" in change else [*RACE, *change]
            for more in (["--resume"], ["--resume", "--checkpoint", "2"]):
                result = call(out, *more, race=race)
                if result.exit_code != 2 or " was " not in result.stderr or held(out) != before:
                    wrong.append((change, more, result.exit_code, result.stderr))
    return 2 * len(CHANGES), 2 * len(CHANGES) - len(wrong), wrong


def start(out, slow):
    """A process that resumes the race in ``out``; its id. Slow ones take their time over files."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        if slow:
            replace, unlink = os.replace, Path.unlink
            os.replace = lambda *names: (time.sleep(0.02), replace(*names))[1]
            Path.unlink = lambda *names, **options: (time.sleep(0.02), unlink(*names, **options))[1]
        status = call(out, "--checkpoint", "1", "--resume").exit_code
    finally:
        os._exit(status)


def try_kills(kills, seed):
    """(Kills, races ended, wrong answers)."""
    chance, wrong, races, spent = random.Random(seed), [], 0, 0
    with tempfile.TemporaryDirectory() as root:
        whole = Path(root) / "whole"
        begun = time.monotonic()
        ended(start(whole, True), 1e9)
        took = time.monotonic() - begun
        table = (whole / "regret.csv").read_bytes()
        while spent < kills:
            out = Path(root) / f"out{races}"
            while True:
                slow = spent % 2 == 1
                patience = chance.uniform(0, 1.2 * took) if spent < kills else 60.0
                status = ended(start(out, slow), patience)
                spent += status is None
                if status not in (None, 0):
                    wrong.append((races, spent, status, call(out, "--resume").stderr))
                if status is not None:
                    break
                if (out / "checkpoints").is_dir() and cli_folder.RaceFolder(out, {})._begun():
                    put(out / "checkpoints" / "mine")
            races += 1
            mine = out / "checkpoints" / "mine"
            names = {path.name for path in out.iterdir()} - ({"checkpoints"} if mine.exists() else set())
            left = [path.name for path in (out / "checkpoints").rglob("*")] if mine.exists() else ["mine"]
            if names != REPORT or (out / "regret.csv").read_bytes() != table or left != ["mine"]:
                wrong.append((races, spent, names, left))
    return spent, races, wrong


def main():
    """Print the counts, and what went wrong; 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tried, ran, refused, wrong = try_folders()
    print(
        f"folders: {tried} tried, {ran} raced, {refused} refused with nothing changed, {len(wrong)} wrong",
        flush=True,
    )
    changed, stopped, unseen = try_changes()
    print(f"changes: {changed} tried, {stopped} refused, nothing changed, {len(unseen)} wrong", flush=True)
    spent, races, broken = try_kills(given.kills, given.seed)
    print(f"kills: {spent} of {races} races, {len(broken)} wrong")
    for row in (*wrong, *unseen, *broken):
        print(*row)
    return 1 if wrong or unseen or broken else 0


if __name__ == "__main__":
    sys.exit(main())
