"""People's types at the border of a live system: names, masks, dates, settings by name."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
import torch

from bandits_torch import AskTell, load_policy, save_policy
from bandits_torch.border import Settings, Times
from bandits_torch.checkpoint import described
from tests.reference.asking import refused

BERLIN = ZoneInfo("Europe/Berlin")
SETTINGS = {
    "price": (10.0, 50.0),
    "rate": (1e-4, 1.0, "log"),
    "workers": (1, 8, "integer"),
    "mode": ["a", "b", "c"],
}


def test_arms_have_names_in_answers_masks_rewards_and_files(tmp_path):
    live = AskTell.auto(["a", "b", "c"])
    question = live.ask(0.0)
    assert question.name == live.names[int(question.arm)]
    assert repr(question) == f"Question(id=0, time=0.0, name={question.name!r})"
    assert live.tell(question.name, 5.0)
    assert live.ask(1.0, ["b"]).name == "b"
    assert live.ask(2.0, [False, False, True]).name == "c"
    said = "<AskTell ModelAveraging over 3 arms: a, b, c; 3 asked, 1 told, 2 open; "
    assert repr(live).startswith(said)
    save_policy(tmp_path / "state", live)
    other = AskTell.auto(["a", "b", "c"])
    load_policy(tmp_path / "state", other)
    assert described(other.state_dict()) == described(live.state_dict())
    with pytest.raises(ValueError, match=r"policy file: names must be the first of .*'c'.*, got .*'d'"):
        load_policy(tmp_path / "state", AskTell.auto(["a", "b", "d"]))


def test_names_choose_as_numbers_do():
    named, plain = AskTell.auto(["a", "b", "c"]), AskTell.auto(3)
    for step in range(30):
        one, other = named.ask(step, ["a", "c"]), plain.ask(step, torch.tensor([True, False, True]))
        assert type(other.name) is int
        assert named.names[other.name] == one.name
        named.tell(one.id, step * other.name), plain.tell(other.id, step * other.name)


def test_replicates_have_a_list_of_names_and_features_keep_them():
    live = AskTell.auto(torch.rand(3, 2).double(), names=["a", "b", "c"], replicates=2)
    question = live.ask(0)
    assert question.name == [live.names[k] for k in question.arm]


def test_a_name_of_several_open_questions_or_none_is_no_number():
    live = AskTell.auto(["a", "b"])
    live.ask(0.0, ["a"]), live.ask(1.0, ["a"])
    refused(live, lambda: live.tell("a", 1.0), r"id must be .* one of the numbers \[0, 1\], got 'a'")
    refused(live, lambda: live.tell("b", 1.0), r"id must be .* got 'b'")
    refused(live, lambda: live.tell("bb", 1.0), r"id must be among a, b, got bb")
    assert live.drop(ids=[0]) == 1
    assert live.tell("a", 1.0)


@pytest.mark.parametrize(
    "mask", [["a", "x"], [True], [], [True, 1], ["a", True], "a", {"a": True, "b": False}]
)
def test_masks_of_other_kinds_are_refused(mask):
    live = AskTell.auto(["a", "b"])
    refused(live, lambda: live.ask(0.0, mask), "available must be (among a, b|.*2 booleans)")


@pytest.mark.filterwarnings("error")
def test_names_times_masks_and_contexts_may_come_from_numpy_and_pandas():
    live = AskTell.auto(np.array(["a", "b"]), control="b")
    question = live.ask(np.int64(5))
    assert question.time == 5.0
    assert live.tell(question.id, 1.0)
    assert live.drop(before=np.float32(9)) == 0
    table = pd.DataFrame({"a": [20.0, 30.0], "b": [3.0, 4.0]})
    live = AskTell.auto(table.columns, contexts=pd.Series(["phone", "desk"]))
    assert live.names == ("a", "b")
    assert live.ask(0.0, table.columns[1:], context="desk").name == "b"
    assert live.ask(1.0, pd.Series([True, False]), context="phone").name == "a"
    here = pd.Series({"b": False, "a": True})  # by name, whatever the order
    masks = (here, here.astype("boolean"), here.astype(object), table.iloc[0] > 10)
    for mask in (*masks, pd.Series(["a"], ["x"])):
        assert live.ask(2.0, mask, context="phone").name == "a"
    for wrong in (here[["a"]], here.rename({"b": "c"})):
        refused(live, lambda wrong=wrong: live.ask(2.0, wrong), "available must be a boolean for each of")
    read_only = np.array([20.0, 3.0])
    read_only.flags.writeable = False
    for row in (table.iloc[0], read_only):
        assert AskTell.auto(["a", "b"], context_dim=2).ask(0.0, context=row).name in ("a", "b")


NOON = dt.datetime(2026, 7, 1, 12, 0)


@pytest.mark.parametrize(
    "date", [NOON, pd.Timestamp(NOON), np.datetime64("2026-07-01T12:00"), "2026-07-01T12:00:00"]
)
def test_dates_of_every_kind_are_one_time(date):
    live = AskTell.auto(2, time_unit="h")
    question = live.ask(date)
    assert question.time == NOON
    assert question.time.tzinfo is None
    assert live.state_dict()["open"][0][1] == (NOON - dt.datetime(1970, 1, 1)).total_seconds() / 3600
    live.tell(question.id, 1.0)
    assert live.predict(date)[0].shape == (1, 2)
    live.ask(NOON + dt.timedelta(hours=1))
    assert live.drop(before="2026-07-01T14:00") == 1


@pytest.mark.parametrize("unit", ["h", "s", "ns"])  # NumPy counts nanoseconds as a plain integer
def test_a_duration_is_no_time_in_whatever_unit(unit):
    hours = np.array([1, 2], f"timedelta64[{unit}]")
    live = AskTell.auto(2)
    for duration in (hours[0], pd.Timedelta(hours[0])):
        refused(live, lambda duration=duration: live.ask(duration), "time must be a finite number, got")
    with pytest.raises(ValueError, match="history_times must be a finite number, got"):
        AskTell.auto(2, history=torch.rand(2, 2).double(), history_times=hours)


def test_a_day_is_its_midnight():
    live = AskTell.auto(2, time_unit="D")
    assert live.ask(NOON.date()).time == dt.datetime(2026, 7, 1)
    assert live.ask(NOON).time == NOON


def test_a_history_and_the_questions_after_it_are_in_dates_or_both_are_counted():
    days = pd.date_range("2026-01-01", periods=70)
    best = torch.arange(70).unsqueeze(-1) % 7 == torch.arange(7)  # one arm for each day of the week
    table = best + 0.1 * torch.randn(70, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    counted = AskTell.auto(7, history=table)
    said = "time must be a number, as the rows of history are counted: history_times= may give their dates"
    refused(counted, lambda: counted.ask(NOON), said)
    AskTell.auto(7, history=table, cycles=None).ask(NOON)  # no use is made of its times
    for times in (days, list(days), [day.date() for day in days]):
        dated = AskTell.auto(7, history=table, history_times=times, time_unit="D")
        refused(dated, lambda dated=dated: dated.ask(1.0), "time must be a date without a zone")
        for ahead in range(3):
            mean = dated.predict(days[-1] + dt.timedelta(days=1 + ahead))[0]
            assert mean.argmax() == ahead == counted.predict(1.0 + ahead)[0].argmax()
    with pytest.raises(ValueError, match="history_times must be a date"):
        AskTell.auto(7, history=table, history_times=[*days[:69], 5.0])
    seconds = 1.7e9 + 86400 * torch.arange(70).double()  # would be taken for days
    numbered = AskTell.auto(7, history=table, history_times=seconds, time_unit="D")
    refused(numbered, lambda: numbered.ask(NOON), "time must be a number, as the times of the history")
    for told in ({}, {"history_times": seconds}):
        with pytest.raises(ValueError, match="cycles must be numbers, as times must be"):
            AskTell.auto(7, history=table, cycles=["week"], time_unit="D", **told)
    named = AskTell.auto(7, cycles="week", time_unit="D")
    refused(named, lambda: named.ask(1.0), "time must be a date, as cycles are given by name")
    with pytest.raises(ValueError, match="history_times must be a finite number, got Timedelta"):
        AskTell.auto(7, history=pd.DataFrame(table.numpy(), days - days[0]))


def test_a_history_may_be_a_table_whose_index_holds_the_dates():
    days = pd.date_range("2026-01-01", periods=60)
    rewards = np.random.default_rng(0).normal([0.0, 5.0, 1.0], size=(60, 3))
    rewards[4, 2] = np.nan
    table = pd.DataFrame(rewards, days, columns=["a", "b", "c"])
    live = AskTell.auto(["c", "a", "b"], history=table, time_unit="D")
    same = AskTell.auto(3, history=torch.from_numpy(rewards[:, [2, 0, 1]]), history_times=days, time_unit="D")
    tomorrow = days[-1] + dt.timedelta(days=1)
    assert live.ask(tomorrow).name == "b"
    torch.testing.assert_close(live.predict(tomorrow), same.predict(tomorrow), rtol=0, atol=0)
    hours = 1000 + 0.5 * np.arange(60.0)
    numbered = AskTell.auto(3, history=table.set_index(hours)).predict(1030.0)
    told = AskTell.auto(3, history=torch.from_numpy(rewards), history_times=torch.from_numpy(hours))
    torch.testing.assert_close(numbered, told.predict(1030.0))
    with pytest.raises(ValueError, match=r"history_times must be a finite number, .* got 'r0'"):
        AskTell.auto(3, history=table.set_index(pd.Index([f"r{n}" for n in range(60)])))
    with pytest.raises(ValueError, match="history must be a table with the columns a, b, got"):
        AskTell.auto(["a", "b"], history=table)
    with pytest.raises(ValueError, match=r"history must hold numbers: .*'x'"):
        AskTell.auto(3, history=table.astype(object).replace(table.iloc[0, 0], "x"))


def test_kinds_of_time_are_never_mixed_and_the_zone_outlives_a_file(tmp_path):
    live = AskTell.auto(["a", "b"])
    assert live.ask(NOON.replace(tzinfo=BERLIN)).time == NOON.replace(tzinfo=BERLIN)
    save_policy(tmp_path / "state", live)
    back = AskTell.auto(["a", "b"])
    load_policy(tmp_path / "state", back)
    for wrong in (NOON, 5.0, "2026-07-01T12:00", pd.NaT, "noon", None):
        refused(back, lambda wrong=wrong: back.ask(wrong), "time must be")
    again = back.ask("2026-07-01T10:30:00Z").time
    assert (again.hour, again.minute, str(again.tzinfo)) == (12, 30, "Europe/Berlin")
    number = AskTell.auto(2)
    number.ask(0.0)
    refused(number, lambda: number.ask(NOON), "time must be a number, as the times before, got")


def test_a_refused_question_decides_no_zone():
    live = AskTell.auto(["a", "b"])
    refused(live, lambda: live.ask(NOON, ["x"]), "available must be")
    live.ask(0.0)


@pytest.mark.parametrize("zone", ["+02:00", "UTC", "America/New_York"])
def test_a_zone_by_name_or_offset_comes_back(zone):
    tz = dt.datetime.fromisoformat(f"2000-01-01T00:00{zone}").tzinfo if zone[0] == "+" else ZoneInfo(zone)
    times = Times("D")
    number, times.zone = times.read("time", NOON.replace(tzinfo=tz))
    assert times.zone == zone
    assert times.shown(number).isoformat() == NOON.replace(tzinfo=tz).isoformat()


def test_settings_by_name_are_asked_learned_predicted_and_kept(tmp_path):
    live = AskTell.auto(SETTINGS)
    for step in range(14):
        question = live.ask(step)
        x = question.name
        assert 10 <= x["price"] <= 50
        assert 1e-4 <= x["rate"] <= 1
        assert x["mode"] in ("a", "b", "c")
        assert type(x["workers"]) is int
        assert 1 <= x["workers"] <= 8
        torch.testing.assert_close(live.settings.point("x", x), question.arm[0])
        live.tell(question.id, -abs(x["price"] - 30) + 20 * (x["mode"] == "b"))
    live.ask(14)
    save_policy(tmp_path / "state", live)
    back = AskTell.auto(SETTINGS)
    load_policy(tmp_path / "state", back)
    held = {"mode": "c", "price": (20, 25)}
    one, other = live.ask(15, held), back.ask(15, held)
    assert one.name == other.name
    assert one.name["mode"] == "c"
    assert 20 <= one.name["price"] <= 25
    mean, _ = live.predict(15, [x | {"mode": mode, "price": 30.0} for mode in ("a", "b")])
    assert mean[0, 1] > mean[0, 0]
    point = question.arm[0]
    for wrong in (x, [], [x, 3], [point.tolist()], point.numpy(), pd.DataFrame([x])):
        refused(
            live, lambda wrong=wrong: live.predict(15, wrong), "points must be a list of settings by name"
        )
    others = (point, point[None, None], point[None, :2], torch.zeros(0, len(point)).double())
    for wrong in (*others, point[None] / 0):
        refused(live, lambda wrong=wrong: live.predict(15, wrong), "points must")
    with pytest.raises(ValueError, match=r"built in the same way: policy"):
        load_policy(tmp_path / "state", AskTell.auto(SETTINGS | {"mode": ["a", "b", "d"]}))


def test_a_file_is_refused_by_settings_in_another_order(tmp_path):
    live = AskTell.auto({"heat": (0.0, 10.0), "time": (0.0, 10.0)})
    save_policy(tmp_path / "state", live)
    with pytest.raises(ValueError, match=r"space\.columns\.heat\.start was 0 and is 1"):
        load_policy(tmp_path / "state", AskTell.auto({"time": (0.0, 10.0), "heat": (0.0, 10.0)}))


def test_settings_may_be_numbers_of_a_table():
    table = pd.DataFrame({"price": [10, 50], "share": np.array([0.1, 0.9], np.float32)})
    ranges = {name: (table[name].min(), table[name].max()) for name in table}
    ranges["layout"] = list(np.array([1, 2]))
    name = AskTell.auto(ranges).ask(0.0).name
    assert 10 <= name["price"] <= 50
    assert 0.1 <= name["share"] <= 0.9
    assert type(name["layout"]) is int


@pytest.mark.parametrize(
    "given",
    [(1.0,), (2.0, 1.0), (0.0, 1.0, "log"), (0.5, 3, "integer"), (1, 2, "linear"), ["a"], ["a", "a"], "ab"],
)
def test_other_ranges_are_refused_by_the_name_of_the_setting(given):
    with pytest.raises(ValueError, match="price must be"):
        Settings({"price": given})


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"cost": 1.0}, "available must be among price, rate, workers, mode, got cost"),
        ({"mode": "x"}, "mode must be one of"),
        ({"price": 60.0}, "price must be from 10 to 50, got 60.0"),
        ({"workers": 1.5}, "workers must be an integer"),
        ({"price": (30.0, 20.0)}, "price must be increasing"),
    ],
)
def test_other_limits_are_refused(limits, message):
    live = AskTell.auto(SETTINGS)
    refused(live, lambda: live.ask(0.0, limits), message)
