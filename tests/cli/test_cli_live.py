"""``ask``, ``tell`` and ``show``: a live system in a file, from the shell."""

import json
import re
import shlex
from datetime import UTC, datetime

import pytest

from bandits_torch import AskTell, load_policy, recipes, save_policy
from tests.cli.shell import call


def shell(*arguments):
    said = call(*arguments).stdout
    return json.loads(said) if said.startswith("{") else said


def test_a_live_system_is_asked_under_masks_and_told(tmp_path):
    state = tmp_path / "live.state"
    first = shell("ask", state, "--arms", "north, east,south", "--time", 0)
    assert first == {"id": 0, "arm": first["arm"]}
    for id, (mask, allowed) in enumerate(
        [("east, south", {"east", "south"}), ("true,false,false", {"north"}), ("south", {"south"})], 1
    ):
        question = shell("ask", state, "--available", mask, "--time", id)
        assert question["id"] == id
        assert question["arm"] in allowed
    assert shell("tell", state, 0, -2.5) == "learned\n"
    assert shell("tell", state, 0, 9.0) == "told before\n"
    live = AskTell.auto(["north", "east", "south"])
    load_policy(state, live)
    assert live.open == (1, 2, 3)
    assert live.history()["reward"].dropna().tolist() == [-2.5]


def test_arms_called_true_and_false_are_available_by_name(tmp_path):
    state = tmp_path / "live.state"
    shell("ask", state, "--arms", "true,false", "--time", 0)
    asked = [shell("ask", state, "--available", "false,true", "--time", time)["arm"] for time in (1, 2)]
    assert set(asked) == {"true", "false"}
    assert shell("ask", state, "--available", "false", "--time", 3)["arm"] == "false"


def test_what_is_believed_is_shown_and_nothing_changes(tmp_path):
    state, page = tmp_path / "live.state", tmp_path / "live.html"
    live = AskTell.auto(["north", "east"])
    for t in range(60):
        question = live.ask(1_234_567.0 + t, ["north"] if t % 2 else ["east"])
        live.tell(question, {"north": 1.0, "east": 5.0}[question.name] + (10 if t > 30 else 0) + t % 3 / 10)
    save_policy(state, live)
    before = state.read_bytes()
    said = shell("show", state, "--html", page)
    assert "best now east" in said
    assert said.index("probability_best") < said.index("changes noticed") < said.rindex("north")
    assert "north" in page.read_text()
    (level,) = re.findall(r"Intervals are (\d+) % intervals", call("show", "--help").output)
    table = live.beliefs(level=int(level) / 100)
    for end in ("lower", "upper"):
        assert {f"{value:.4g}" for value in table[end]} <= set(said.split())
    for time in ("1234625", "1234626"):
        assert f" {time} " in said
        assert f">{time}<" in page.read_text()
    assert state.read_bytes() == before


def test_times_are_the_date_of_now_by_default_and_shown_in_seconds(tmp_path):
    state = tmp_path / "live.state"
    shell("ask", state, "--arms", "north,east")
    shell("tell", state, 0, 1.5)
    said = shell("show", state)
    (played,) = re.findall(r" (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00) ", said)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(played)).total_seconds()) < 60
    assert "time must be a date with a zone" in call("ask", state, "--time", 5, code=2).stderr


def test_a_system_without_names_is_asked(tmp_path):
    save_policy(tmp_path / "live.state", AskTell.auto(3))
    question = shell("ask", tmp_path / "live.state", "--time", 0)
    assert question["arm"] in range(3)


def east_is_open(state):
    """A system over north and east with one open question, of east."""
    shell("ask", state, "--arms", "north,east", "--time", 0, "--available", "east")


def test_an_arm_with_one_open_question_stands_for_it(tmp_path):
    east_is_open(tmp_path / "live.state")
    assert shell("tell", tmp_path / "live.state", "east", -1) == "learned\n"


FIRST = "arms must be given to `ask --arms` first, as there is no file 'live.state'"


@pytest.mark.parametrize(
    ("begin", "command", "said"),
    [
        (east_is_open, "ask --time 1 --available west", "available must be among north, east, got west"),
        (east_is_open, "ask --time 1 --available true", "available must be 2 booleans"),
        (east_is_open, "ask --time 1 --available false,false", "at least one arm"),
        (east_is_open, "ask --time 1 --available ''", "available must be among north, east"),
        (east_is_open, "ask --time 1 --arms north,west", "arms must be those of"),
        (east_is_open, "ask --time 2026-07-01", "time must be a number"),
        (east_is_open, "tell west 1", "id must be among north, east, got west"),
        (east_is_open, "tell north 1", "one open question"),
        (lambda state: None, "ask", FIRST),
        (lambda state: None, "tell 0 1", FIRST),
        (lambda state: None, "show", FIRST),
        # ``tell`` takes a number for that of a question.
        (lambda state: None, "ask --arms '101, north,2'", "arms must be names that are not numbers"),
        (lambda state: None, "ask --arms '101, north,2'", "got 101, 2\n"),
        (lambda state: save_policy(state, recipes.auto(3)), "show", "state must be a file that `ask` began"),
    ],
)
def test_what_is_refused_is_one_line_and_changes_nothing(begin, command, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begin("live.state")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    verb, *rest = shlex.split(command)
    assert said in call(verb, "live.state", *rest, code=2).stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
