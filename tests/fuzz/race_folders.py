"""Attacks on the folder of a race: ``python -m tests.fuzz.race_folders --kills 60``.

* Folders: every way a folder may look (``folder_states``) met by every way of asking (``ASKED``). The race runs, or one
  line says why not and nothing is changed; a user's files are as they were either way.
* Changes: a race that was cut off, resumed with one thing changed (``CHANGES``). It is refused with nothing changed.
* Kills: SIGKILL at random moments, the report's writing among them, until the race is over. The table is that of the
  undisturbed race, byte for byte, nothing is left of it, and what the user put among the checkpoints is.
"""

import argparse
import os
import random
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

from bandits_torch.cli.play import RaceFolder
from tests.fuzz.folder_states import MINE, RACE, REPORT, call, cut_off, folders, put
from tests.reference.kill_runs import ended

ASKED = [[], ["--checkpoint", "3"], ["--resume"], ["--overwrite"], ["--checkpoint", "3", "--resume"]]
ASKED += [["--checkpoint", "3", "--overwrite"], ["--resume", "--overwrite"]]


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
                if (out / "checkpoints").is_dir() and RaceFolder(out, {}).in_progress():
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
    parser.add_argument("--only", choices=["folders", "changes", "kills"])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    wrong = []
    if given.only in (None, "folders"):
        tried, ran, refused, found = try_folders()
        wrong += found
        print(
            f"folders: {tried} tried, {ran} raced, {refused} refused, nothing changed, {len(found)} wrong",
            flush=True,
        )
    if given.only in (None, "changes"):
        tried, refused, found = try_changes()
        wrong += found
        print(f"changes: {tried} tried, {refused} refused, nothing changed, {len(found)} wrong", flush=True)
    if given.only in (None, "kills"):
        kills, races, found = try_kills(given.kills, given.seed)
        wrong += found
        print(f"kills: {kills} of {races} races, {len(found)} wrong")
    for row in wrong:
        print(*row)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
