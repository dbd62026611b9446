"""How the folder of a race may look before the race: tried by ``tests.fuzz.race_folders``."""

import json
import os
import shutil

from bandits_torch.state_files import write_state
from tests.cli import shell

RACE = ["race", "--horizon", "8", "--replicates", "2", "--policies", "random,gp_ts"]
RACE += ["--option", "num_arms=5"]
REPORT = {"regret.csv", "regret.png", "report.html", "run.json"}
MINE = b"the user's own"


def call(out, *more, race=RACE):
    """The command line's answer."""
    return shell.call(*race, "--out", out, *more, code=None)


def cut_off(out, race=RACE):
    """Leave the checkpoints of a race whose second policy stopped half-way."""
    shell.interrupted(5, *race, "--out", out, "--checkpoint", "2")
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
