"""What can be answered without torch is answered without torch, from a catalogue that is current."""

import json
import os
import subprocess
import sys

import pytest

import bandits_torch
from bandits_torch.cli.asked import DEFAULT_POLICIES
from bandits_torch.cli.catalogue import FILE, catalogue, registered
from bandits_torch.naming import did_you_mean

SLOW = ("torch", "botorch", "gpytorch", "matplotlib", "matplotlib.pyplot", "pandas", "numpy")
UNNEEDED = ("rich", "typer", "pydantic", "importlib.metadata")  # tens of milliseconds, each of them
# Runs each of the command lines it reads, and says what each answered and which slow modules it imported.
WATCHED = f"""
import contextlib, io, json, sys
from bandits_torch.cli import main
answers = []
for arguments in json.load(sys.stdin):
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["bandits-torch", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as done:
            code = done.code or 0
    imported = [name for name in {SLOW + UNNEEDED!r} if name in sys.modules]
    answers.append((out.getvalue(), code, err.getvalue(), imported))
print(json.dumps(answers))
"""


def run_watched(*lines, options=(), **environment):
    """Of each command line, in one new process: output, exit code, errors, and the slow modules imported so far."""
    command = [sys.executable, *options, "-c", WATCHED]
    done = subprocess.run(
        command, input=json.dumps(lines), capture_output=True, text=True, env=environment or None
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ANSWERED = [
    ("--help", 0, "race"),
    ("--version", 0, f"bandits_torch {bandits_torch.__version__}\n"),
    ("race --help", 0, "--overwrite"),
    ("sweep --help", 0, "local|processes|ray"),
    ("rerun --help", 0, "run.json of a race"),
    ("race --option windw=3", 2, "did you mean window?"),
    ("race --horizon 0", 2, "'--horizon': 0 is not in the range x>=1"),
    ("race --device quantum", 2, "device must be cpu or cuda, got 'quantum'"),
    ("race --checkpoint 0", 2, "'--checkpoint': 0 is not in the range x>=1"),
    ("race --resume --overwrite", 2, "resume and overwrite exclude each other"),
    ("race --data no/such.csv --policies random", 2, "Path 'no/such.csv' does not exist"),
    ("race --threads 100000", 2, "'--threads': 100000 is not in the range 1<=x<=1024"),
    ("race --problem replay", 2, "data must be given for problem 'replay'"),
    ("sweep --threads 100000", 2, "'--threads': 100000 is not in the range 1<=x<=1024"),
    ("sweep --problems gp,gp", 2, "problems must be different names"),
    ("sweep --engine cloud", 2, "'cloud' is not one of 'local', 'processes', 'ray'"),
    ("sweep --option windw=3", 2, "'windw' is not known here"),
    ("sweep --problems gp --data .", 2, "data must be None for problems that read no file (gp), got '.'"),
    ("sweep --problems replay,gp --data no/such.csv", 2, "Path 'no/such.csv' does not exist"),
    ("sweep --problems gp,replay", 2, "data must be given for problem 'replay'"),
    ("sweep --replicates 0", 2, "'--replicates': 0 is not in the range x>=1"),
    ("rerun no/such/run.json", 2, "Path 'no/such/run.json' does not exist"),
]
ASKS_PLUGINS = [  # which may have more names
    ("list", 0, "sw_gp_ucb"),
    ("list sw_gp_ucb", 0, "window"),
    ("list nothing", 2, "name must be one of those that `bandits-torch list` shows, got 'nothing'\n"),
    ("race --policies frist", 2, "got 'frist'"),
    ("race --problem frist", 2, "got 'frist'"),
    ("sweep --problems gpp", 2, "problem must be a known name, got 'gpp': did you mean gp?"),
    ("sweep --policies et-gp-ucb", 2, "did you mean et_gp_ucb?"),
]


@pytest.mark.parametrize(
    ("lines", "allowed"),
    [(ANSWERED, set()), (ASKS_PLUGINS, {"importlib.metadata"})],
    ids=["alone", "plugins"],
)
def test_help_lists_and_argument_errors_import_nothing_slow(lines, allowed):
    answers = run_watched(*(line.split() for line, _, _ in lines))
    for (line, code, said), (output, returned, errors, imported) in zip(lines, answers, strict=True):
        assert returned == code, line
        assert said in output + errors
        assert set(imported) <= allowed, line
        if code == 2:
            assert output == ""
            assert (errors.startswith("error: ") and errors.count("\n") == 1) or errors.startswith("Usage"), (
                errors
            )


def test_the_catalogue_says_what_the_registrations_say():
    advice = "it is out of date: python -m bandits_torch.cli.catalogue writes it anew"
    assert registered() == FILE.read_text(encoding="utf-8"), advice


def test_the_program_that_writes_the_catalogue_is_imported_once():
    code = "import sys, bandits_torch.cli; print('bandits_torch.cli.catalogue' in sys.modules)"  # runpy warns if so
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n"


def test_the_list_needs_no_docstrings():
    plain, stripped = (run_watched(["list"], ["list", "gp_ts"], options=given) for given in ([], ["-OO"]))
    assert plain == stripped


def test_names_are_imported_when_they_are_asked_for():
    code = (
        "import sys, bandits_torch as b; print('torch' in sys.modules, dir(b)); b.run; b.loop.run; b.theory\n"
    )
    code += "from bandits_torch import *; make; b.nothing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("False [")
    for name in bandits_torch.__all__:
        assert name in done.stdout
        assert getattr(bandits_torch, name) is not None
    assert not any(hasattr(bandits_torch, name) for name in ("nothing.loop", "run.", "", "_version."))
    assert "AttributeError: module 'bandits_torch' has no attribute 'nothing'" in done.stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [("et-gp-ucb", "et_gp_ucb"), ("SW_GP_UCB", "sw_gp_ucb"), ("gp_uc", "gp_ucb"), ("quantum", None)],
)
def test_a_name_that_is_close_is_suggested(given, meant):
    assert did_you_mean(given, catalogue().policies) == (f": did you mean {meant}?" if meant else "")


@pytest.mark.slow
def test_a_race_runs_whatever_the_shell_says_of_windows_and_stripped_of_docstrings(full, tmp_path):
    """Stripped in the long form alone: Python compiles torch and all else anew for it."""
    race = ["race", "--horizon", "5", "--replicates", "1", "--option", "num_arms=10", "--out", str(tmp_path)]
    shell = os.environ | {"MPLBACKEND": "bogus"}
    ((output, code, errors, imported),) = run_watched(race, options=["-OO"] if full else [], **shell)
    assert (code, errors) == (0, "")
    assert "oracle" in output
    assert "torch" in imported  # so that the tests above would see it
    assert "matplotlib.pyplot" not in imported
    assert (tmp_path / "regret.png").exists()
    record = json.loads((tmp_path / "run.json").read_text())
    assert list(record["results"]) == DEFAULT_POLICIES.split(",")
