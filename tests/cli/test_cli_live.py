"""``ask``, ``tell`` and ``show``: a live system in a file, from the shell."""

import json
import re
from datetime import UTC, datetime

import pytest

from bandits_torch import AskTell, load_policy, recipes, save_policy
from tests.cli.shell import call


def shell(*arguments):
    done = call(*arguments, code=None)
    return (json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout), done.output


def test_a_live_system_is_asked_under_masks_and_told(tmp_path):
    state = tmp_path / "live.state"
    first, _ = shell("ask", state, "--arms", "north, east,south", "--time", 0)
    assert first == {"id": 0, "arm": first["arm"]}
    for id, (mask, allowed) in enumerate(
        [("east, south", {"east", "south"}), ("true,false,false", {"north"}), ("south", {"south"})], 1
    ):
        question, _ = shell("ask", state, "--available", mask, "--time", id)
        assert question["id"] == id
        assert question["arm"] in allowed
    assert shell("tell", state, 0, -2.5)[0] == "learned\n"
    assert shell("tell", state, 0, 9.0)[0] == "told before\n"
    live = AskTell.auto(["north", "east", "south"])
    load_policy(state, live)
    assert live.open == (1, 2, 3)
    assert live.history()["reward"].dropna().tolist() == [-2.5]


def test_what_is_believed_is_shown_and_nothing_changes(tmp_path):
    state, page = tmp_path / "live.state", tmp_path / "live.html"
    live = AskTell.auto(["north", "east"])
    for t in range(60):
        question = live.ask(float(t), ["north"] if t % 2 else ["east"])
        live.tell(question, {"north": 1.0, "east": 5.0}[question.name] + (10 if t > 30 else 0) + t % 3 / 10)
    save_policy(state, live)
    before = state.read_bytes()
    said, _ = shell("show", state, "--html", page)
    assert "best now east" in said
    assert said.index("probability_best") < said.index("changes noticed") < said.rindex("north")
    assert "north" in page.read_text()
    (level,) = re.findall(r"Intervals are (\d+) % intervals", call("show", "--help").output)
    table = live.beliefs(level=int(level) / 100)
    for end in ("lower", "upper"):
        assert {f"{value:.4g}" for value in table[end]} <= set(said.split())
    assert state.read_bytes() == before


def test_times_are_the_date_of_now_by_default_and_shown_in_seconds(tmp_path):
    state = tmp_path / "live.state"
    shell("ask", state, "--arms", "north,east")
    shell("tell", state, 0, 1.5)
    said, _ = shell("show", state)
    (played,) = re.findall(r" (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00) ", said)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(played)).total_seconds()) < 60
    assert "time must be a date with a zone" in shell("ask", state, "--time", 5)[1]


def test_a_system_without_names_is_asked_and_another_file_is_refused(tmp_path):
    save_policy(tmp_path / "live.state", AskTell.auto(3))
    question, _ = shell("ask", tmp_path / "live.state", "--time", 0)
    assert question["arm"] in range(3)
    save_policy(tmp_path / "policy", recipes.auto(3))
    assert "state must be a file that `ask` began" in shell("show", tmp_path / "policy")[1]


def test_an_arm_with_one_open_question_stands_for_it(tmp_path):
    state = tmp_path / "live.state"
    shell("ask", state, "--arms", "north,east", "--time", 0, "--available", "east")
    assert "id must be among north, east, got west" in shell("tell", state, "west", 1)[1]
    assert "one open question" in shell("tell", state, "north", 1)[1]
    assert shell("tell", state, "east", -1)[0] == "learned\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--available", "west"], "available must be among north, east, got west"),
        (["--available", "true"], "available must be 2 booleans"),
        (["--available", "false,false"], "at least one arm"),
        (["--available", ""], "available must be among north, east"),
        (["--arms", "north,west"], "arms must be those of"),
        (["--time", "2026-07-01"], "time must be a number"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_changes_nothing(arguments, said, tmp_path):
    state = tmp_path / "live.state"
    shell("ask", state, "--arms", "north,east", "--time", 0)
    before = state.read_bytes()
    _, output = shell("ask", state, "--time", 1, *arguments)
    assert said in output
    assert output.count("\n") == 1
    assert state.read_bytes() == before


def test_a_new_file_needs_arms(tmp_path):
    said = f"arms must be given to `ask --arms` first, as there is no file '{tmp_path / 'none'}'"
    for arguments in (["ask"], ["tell", 0, 1.0], ["show"]):
        command, *rest = arguments
        assert said in shell(command, tmp_path / "none", *rest)[1]
    assert not any(tmp_path.iterdir())


def test_arms_whose_names_are_numbers_are_refused_as_tell_takes_them_for_questions(tmp_path):
    said = call("ask", tmp_path / "live", "--arms", "101, north,2", code=2).stderr
    assert "arms must be names that are not numbers" in said
    assert said.endswith("got 101, 2\n")
    assert not (tmp_path / "live").exists()
