"""The attacks of ``tests.fuzz.race_folders``, a part of them; the whole is run by hand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import race_folders

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("without_a_page")


def test_no_change_slips_into_a_race_that_is_resumed(monkeypatch):
    monkeypatch.setattr(race_folders, "CHANGES", race_folders.CHANGES[::6])
    tried, refused, wrong = race_folders.try_changes()
    assert wrong == []
    assert tried == refused > 8


@pytest.mark.slow
def test_killed_races_end_as_undisturbed_ones_and_leave_nothing():
    command = [sys.executable, "-m", "tests.fuzz.race_folders", "--only", "kills", "--kills", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.fullmatch(r"kills: [3-9] of \d races, 0 wrong\n", done.stdout), done.stdout + done.stderr


def test_every_way_a_folder_may_look_is_answered(monkeypatch):
    some = [*race_folders.folders()][::5]
    monkeypatch.setattr(race_folders, "folders", lambda: iter(some))
    monkeypatch.setattr(race_folders, "ASKED", [["--checkpoint", "3"], ["--overwrite"]])
    tried, ran, refused, wrong = race_folders.try_folders()
    assert wrong == []
    assert tried == ran + refused == 2 * len(some)
    assert min(ran, refused) > 2
