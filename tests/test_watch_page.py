"""The page of a live system, and watching one over HTTP as docs/watch.md does."""

import json
import math
import re
import threading
from datetime import UTC, datetime, timedelta, timezone
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from bandits_torch import AskTell, recipes
from tests.experiments.page_parts import Page
from tests.reference.asking import bits
from tests.test_watch import play


def read(path):
    return Page(path.read_text(encoding="utf-8"))


def shop(steps=160):
    """Hours of a shop in which the arm that was best falls."""
    live, rng = AskTell.auto(["<b>north</b>", "south & co", "east"], time_unit="h"), np.random.default_rng(0)
    for k in range(steps):
        question = live.ask(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=k))
        level = {"<b>north</b>": 300.0 if k < 100 else 100.0, "south & co": 200.0, "east": 150.0}[
            question.name
        ]
        live.tell(question.id, level + 20 * rng.normal())
    return live


def test_the_page_says_what_the_tables_say_and_what_its_words_mean(tmp_path):
    live = shop()
    live.report(tmp_path / "live.html", refresh=60, title="A shop & more")
    page = read(tmp_path / "live.html")
    assert {"script", "iframe", "object", "b"}.isdisjoint(tag for tag, _ in page.tags)
    assert page.said["h1"] == ["A shop & more"]
    table = live.beliefs().sort_values(["probability_best", "mean"], ascending=False)
    names = page.said["td"]
    at = [names.index(name) for name in table["arm"]]
    assert at == sorted(at)
    best = table.iloc[0]
    lead = " ".join(page.said["p"])
    assert f"Best now: {best['arm']}, with an expected reward of {best['mean']:.4g}" in lead
    assert f"with probability {best['probability_best']:.2f}" in lead
    alarms = live.alarms()
    assert len(alarms) >= 1
    assert "the rewards of <b>north</b> changed" in lead or len(alarms) > 1
    for one in alarms["time"]:
        assert f"{one:%Y-%m-%d %H:%M}" in names
    explained = set(page.said["dt"])
    assert {"best", "mean", "interval", "plays", "unseen for", "by chance"} <= explained
    assert {"late", "open", "dropped"} <= explained
    text = (tmp_path / "live.html").read_text()
    assert '<meta http-equiv="refresh" content="60">' in text
    assert not re.findall("effective|doubted|resets|posterior|kernel|noise_scale", text)
    live.report(tmp_path / "live.html")
    assert 'http-equiv="refresh"' not in (tmp_path / "live.html").read_text()


@pytest.mark.parametrize(
    "built",
    [
        lambda: AskTell.auto(3),
        lambda: play(AskTell.auto({"heat": (150.0, 250.0), "mode": ["fan", "grill"]}), 9, every=4),
        lambda: play(AskTell(recipes.ucb1(60, replicates=2)), 70),
        lambda: play(AskTell(recipes.exp3_s(3, horizon=20)), 6),
        lambda: play(AskTell.auto(3, keep=0), 6),
    ],
    ids=["nothing", "settings", "many", "no-beliefs", "no-history"],
)
def test_there_is_a_page_of_every_kind_and_writing_it_changes_nothing(built, tmp_path):
    live = built()
    before = bits(live.state_dict())
    live.report(tmp_path / "live.html", replicate=live.replicates - 1)
    assert bits(live.state_dict()) == before
    page = read(tmp_path / "live.html")
    assert page.said["h1"]
    assert "nan" not in " ".join(page.said["td"]) if "td" in page.said else True
    assert [path.name for path in tmp_path.iterdir()] == ["live.html"]
    if live.num_arms > 6:  # there is no legend, and so there are no colours that nobody explains
        assert not re.findall(r": var\(--c[1-9]\)", (tmp_path / "live.html").read_text())


@pytest.mark.parametrize("zone", [None, UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(seconds=1172))])
def test_there_is_a_page_of_dates_of_every_zone_without_an_alarm(zone, tmp_path):
    live = AskTell.auto(["a", "b"], time_unit="h")
    for k in range(6):  # over the night in which Berlin's clocks go forward
        live.tell(live.ask(datetime(2024, 3, 30, 12, 30, tzinfo=zone) + timedelta(hours=12 * k)), float(k))
        assert live.alarms().empty
        if k in (0, 5):
            live.report(tmp_path / "live.html")
    assert "2024-04-02 00:30" in read(tmp_path / "live.html").said["td"]


def test_arms_may_be_called_anything(tmp_path):
    names = [r"$\foo$", "_north", "北"]
    live = AskTell.auto(names)
    for k in range(6):
        live.tell(live.ask(float(k), [names[k % 3]]), float(k))
    live.report(tmp_path / "live.html")
    assert set(names) <= set(read(tmp_path / "live.html").said["td"])


@pytest.mark.filterwarnings("error")  # matplotlib warns if names leave no room
def test_names_may_be_long_and_rewards_far_from_0(tmp_path):
    names = [f"a banner that is shown in the northern region in the evening, number {k}" for k in range(6)]
    live = AskTell.auto(names)
    for k in range(12):
        live.tell(live.ask(float(k), [names[k % 6]]), 1e6 + k % 6 / 10)
    live.report(tmp_path / "live.html")
    text = (tmp_path / "live.html").read_text()
    assert all(text.count(f"number {k}</text>") == 6 for k in range(6))
    assert len(set(re.findall(r"1\u202f000\u202f000\.\d+", text))) > 6


def test_a_setting_may_be_called_as_the_column_of_arms_is(tmp_path):
    live = AskTell.auto({"arm": (0.0, 1.0), "x": (0.0, 1.0)})
    question = live.ask(0.0)
    live.tell(question, 1.0)
    live.report(tmp_path / "live.html")
    assert live.beliefs()["arm (setting)"].tolist() == [question.name["arm"]]


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    live = AskTell.auto(3)
    live.report(tmp_path / "live.html")
    before = (tmp_path / "live.html").read_bytes()
    monkeypatch.setattr("bandits_torch.experiments.page._rendered", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        live.report(tmp_path / "live.html")
    assert (tmp_path / "live.html").read_bytes() == before
    for wrong in ({"refresh": 0}, {"replicate": 1}, {"level": math.nan}):
        name = next(iter(wrong))
        with pytest.raises(ValueError, match=f"{name} must be"):
            live.report(tmp_path / "live.html", **wrong)


def test_a_page_is_written_while_others_ask_and_tell(tmp_path):
    live, errors = AskTell.auto(3), []

    def work():
        try:
            play(live, 40)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        live.report(tmp_path / "live.html")
        read(tmp_path / "live.html")
    thread.join()
    assert errors == []
    assert live.history()["state"].eq("told").sum() == 40


def test_the_service_over_http_shows_its_page_and_tables(tmp_path, monkeypatch):
    """As docs/watch.md says: the handler of docs/service.md is also a ``Look``."""
    from tests.test_docs import PAGES, blocks

    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "service"}
    exec(compile(blocks(PAGES["service"], "python")[0], "service.md", "exec"), scope)
    look = next(block for block in blocks(PAGES["watch"], "python") if "class Look" in block)
    exec(compile(look.partition("\n\nserver = ")[0], "watch.md", "exec"), scope)
    exec("class Handler(Handler, Look):\n    pass\n", scope)
    server = scope["serve"](tmp_path, port=0)
    server.live = server.service.live
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_address[1]}"

    def post(path, **what):
        with urlopen(Request(at + path, json.dumps(what).encode())) as answer:
            return json.load(answer)

    def get(path):
        with urlopen(at + path) as answer:
            return answer.read().decode()

    for k in range(12):
        question = post("/ask", worker=f"w{k % 3}")
        if k % 4:
            post("/tell", id=question["id"], reward=float(len(question["arm"])))
    beliefs, history = json.loads(get("/beliefs")), json.loads(get("/history"))
    assert [row["arm"] for row in beliefs] == list(server.live.names)
    assert sum(row["plays"] for row in beliefs) == sum(row["state"] == "told" for row in history) > 5
    assert json.loads(get("/alarms")) == []
    assert Page(get("/")).said["h1"]
    with pytest.raises(HTTPError, match="404"):
        get("/nothing")
    server.shutdown(), server.server_close()


def test_what_is_told_hourly_has_each_alarm_once_and_no_retired_arm():
    """``troubles`` of docs/watch.md, with a change that is known only from rewards that come two days late."""
    from tests.test_docs import PAGES, blocks

    scope = {"timedelta": timedelta}
    text = next(block for block in blocks(PAGES["watch"], "python") if "def troubles" in block)
    exec(compile(text.partition("\n\nfor trouble in ")[0], "watch.md", "exec"), scope)
    live, rng = AskTell(recipes.ucb1(2), names=["old", "shop"]), np.random.default_rng(0)
    start, late = datetime(2026, 3, 1), []
    live.tell(live.ask(start, ["old"]).id, 300.0)
    live.retire_arms(["old"])
    for hour in range(80):
        late.append((live.ask(start + timedelta(days=20, hours=hour)).id, 100.0 * (hour > 60) + rng.normal()))
    for id, reward in late[:60]:
        live.tell(id, reward)
    now = start + timedelta(days=25)
    said = [*scope["troubles"](live, now)]
    assert said == ["20 questions are open for more than a day"]
    for id, reward in late[60:]:
        live.tell(id, reward)
    for expected in (1, 0):
        said = [*scope["troubles"](live, now + timedelta(hours=1))]
        assert len(said) == expected
        assert all(line.startswith("shop changed at 2026-03-2") for line in said)


def test_the_heading_names_arms_whatever_their_names_hold(tmp_path):
    AskTell.auto(["a; b", "c"]).report(tmp_path / "live.html")
    assert "over 2 arms: a; b, c</h1>" in (tmp_path / "live.html").read_text()
