"""Tables as people have them: read as meant, or refused with the reason and the argument that decides."""

import gzip
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from bandits_torch.problems import Replay, read_table

VALUES = np.round(np.random.default_rng(3).normal(5, 2, (14, 3)), 2)
HOURS = pd.date_range("2024-01-25", periods=14, freq="7h")


def rows(*columns, names=("a", "b", "c"), separator=",", values=VALUES):
    """Lines of text: columns by name and cells, then the arms."""
    head = separator.join([*(name for name, _ in columns), *names])
    lines = [
        separator.join([*(str(cells[t]) for _, cells in columns), *map(str, row)])
        for t, row in enumerate(values)
    ]
    return "\n".join([head, *lines, ""])


def read(folder, content, name="table.csv", **told):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **told)


def parquet(folder, frame, **told):
    frame.to_parquet(folder / "table.parquet")
    return read_table(folder / "table.parquet", **told)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_points_that_may_separate_thousands_are_refused_until_told(separator, tmp_path):
    whole = np.array([[1234, 987], [5678, 2001], [4345, 17]])
    text = rows(
        names="ab", separator=separator, values=np.vectorize(lambda x: f"{x:,}".replace(",", "."))(whole)
    )
    with pytest.raises(ValueError, match=r"decimal must be '.' or ',', got None.*1\.234 may be 1234"):
        read(tmp_path, text)
    assert read(tmp_path, text, decimal=",").rewards.tolist() == whole.tolist()
    assert read(tmp_path, text, decimal=".").rewards[0].tolist() == [1.234, 987]
    sure = read(tmp_path, rows(names="ab", separator=separator, values=[["1.234", "0.5"], ["5.678", "7"]]))
    assert sure.rewards.tolist() == [[1.234, 0.5], [5.678, 7]]


def test_points_that_may_separate_thousands_are_refused_however_late_they_come(tmp_path):
    late = "a;b\n" + "5;7\n" * 20_000 + "1.234;7\n"
    with pytest.raises(ValueError, match="decimal must be"):
        read(tmp_path, late)
    assert read(tmp_path, late, decimal=",").rewards[-1].tolist() == [1234, 7]


def test_one_decimal_comma_tells_how_the_other_columns_are_meant(tmp_path):
    table = read(tmp_path, 'a,b\n"1,5",1.234\n"2,5",5.678\n')
    assert table.rewards.tolist() == [[1.5, 1234], [2.5, 5678]]
    with pytest.raises(ValueError, match="decimal must be"):
        read(tmp_path, 'a,b\n"1,5",1.25\n"2,5",5.5\n')


@pytest.mark.parametrize("first", ["with", "without"])
def test_times_of_which_some_name_their_zone_are_refused(tmp_path, first):
    zoned, plain = HOURS.strftime("%Y-%m-%dT%H:%M+02:00"), HOURS.strftime("%Y-%m-%d %H:%M")
    parts = (zoned[:5], plain[5:]) if first == "with" else (plain[:5], zoned[5:])
    said = f"row 6, column 'time' must name its time zone if row 1 does, and only then, got {parts[1][0]!r}"
    with pytest.raises(ValueError, match=re.escape(said)):
        read(tmp_path, rows(("time", [*parts[0], *parts[1]])))


def test_times_with_a_zone_are_said_to_be_in_utc(tmp_path):
    zoned = read(tmp_path, rows(("time", HOURS.strftime("%Y-%m-%dT%H:%M+02:00"))))
    local = read(tmp_path, rows(("time", HOURS.strftime("%Y-%m-%dT%H:%M"))))
    assert zoned.times[0] == local.times[0] - 2 * 3600
    assert zoned.notes[0] == "times: 'time', seconds, from timestamps, in UTC"
    assert local.notes[0] == "times: 'time', seconds, from timestamps"


def test_dates_with_points_begin_with_the_day(tmp_path):
    days = pd.date_range("2024-01-25", periods=14)
    table = read(tmp_path, rows(("Datum", days.strftime("%d.%m.%Y"))))
    assert table.times.tolist() == [day.timestamp() for day in days]
    short = [f"{day.day}.{day.month}.{day.year} 12:30" for day in days]
    assert read(tmp_path, rows(("Datum", short))).times.tolist() == [day.timestamp() + 45_000 for day in days]
    with pytest.raises(ValueError, match=r"row 3, column 'Datum' must be .* got '30.02.2024'"):
        read(
            tmp_path, rows(("Datum", ["28.02.2024", "29.02.2024", *12 * ["30.02.2024"]])), time_column="Datum"
        )


def test_months_as_digits_are_dates(tmp_path):
    months = [f"{month:%Y%m}" for month in pd.date_range("2000-06-01", periods=14, freq="MS")]
    table = read(tmp_path, rows(("date", months)))
    assert table.times[:2].tolist() == [pd.Timestamp(day).timestamp() for day in ("2000-06-01", "2000-07-01")]
    with pytest.raises(ValueError, match="time_column must be given: column 'month'"):
        read(tmp_path, rows(("month", months)))
    counts = read(tmp_path, rows(("time", range(200001, 200015))))  # 200013 is no month
    assert counts.times[0] == 200001


CALENDAR = [
    ("weekday", HOURS.day_of_week),
    ("Day of Week", HOURS.day_of_week + 1),
    ("month", HOURS.month),
    ("x", HOURS.hour),
    ("is_weekend", (HOURS.day_of_week > 4).astype(int)),
]


@pytest.mark.parametrize(("name", "cells"), CALENDAR)
def test_columns_that_tell_the_time_are_no_arms(name, cells, tmp_path):
    text = rows(("time", HOURS), (name, cells))
    with pytest.raises(ValueError, match=f"rewards must be given: '{name}' may be a field of the date"):
        read(tmp_path, text)
    assert read(tmp_path, text, rewards="a,b,c").arm_names == ("a", "b", "c")
    assert read(tmp_path, text, rewards=[name, "a"]).arm_names == (name, "a")


@pytest.mark.parametrize("monday", [0, 1])
def test_weekdays_under_any_name_are_no_arms(monday, tmp_path):
    days = pd.date_range("2024-01-03", periods=14)
    with pytest.raises(ValueError, match="rewards must be given: 'x' may be a field of the date"):
        read(tmp_path, rows(("time", days), ("x", days.day_of_week + monday)))


def test_durations_count_seconds_and_have_no_weekdays(tmp_path):
    days = pd.to_timedelta(np.arange(14), unit="D")
    agrees = [(n + 3) % 7 for n in range(14)]  # with the weekday of a date so many days after 1970 began
    table = parquet(tmp_path, pd.DataFrame({"time": days, "a": agrees, "b": VALUES[:, 0]}))
    assert table.in_seconds
    assert table.times[1] == 86400
    assert table.notes[0] == "times: 'time', seconds, from durations"
    with pytest.raises(ValueError, match="'a' may be a field of the date"):
        parquet(
            tmp_path,
            pd.DataFrame({"time": pd.Timestamp("1970-01-01") + days, "a": agrees, "b": VALUES[:, 0]}),
        )


@pytest.mark.parametrize("names", [("price", "size", "reward"), ("Rewards", "price"), ("x1", "x_2", "y")])
def test_settings_and_what_each_trial_paid_are_no_table_of_arms(names, tmp_path):
    text = rows(names=names, values=VALUES[:, : len(names)])
    with pytest.raises(ValueError, match=r"rewards must be given.* a row for each trial, with its settings"):
        read(tmp_path, text)
    assert read(tmp_path, text, rewards=list(names)).arm_names == names
    for others in (("reward", "rewards", "c"), ("x", "y", "z")):
        assert read(tmp_path, rows(names=others)).arm_names == others


@pytest.mark.parametrize("name", ["banner_id", "User ID", "offerId", "id", "variant"])
def test_a_column_that_names_what_was_pulled_is_no_arm(name, tmp_path):
    """A log of integers, (time, banner_id, clicked), is no table of two arms of which the numbers pay most."""
    numbers = [101 + n % 3 for n in range(14)]
    text = rows(("time", HOURS), (name, numbers))
    with pytest.raises(ValueError, match=f"rewards must be given: '{name}' may be a name .* arm={name} of"):
        read(tmp_path, text)
    assert read(tmp_path, text, rewards=[name, "a"]).arm_names == (name, "a")
    paid = rows(("time", HOURS), (name, [number + 0.5 for number in numbers]))
    assert name in read(tmp_path, paid).arm_names


def test_arms_that_are_all_called_variants_are_arms(tmp_path):
    clicks = [n % 2 for n in range(14)]
    columns = ("time", HOURS), ("red variant", clicks), ("blue variant", clicks)
    assert read(tmp_path, rows(*columns, names=(), values=[[]] * 14)).arm_names == (
        "red variant",
        "blue variant",
    )


def test_an_hour_without_times_is_no_arm_but_binary_and_constant_arms_are(tmp_path):
    with pytest.raises(ValueError, match="rewards must be given: 'hour'"):
        read(tmp_path, rows(("hour", HOURS.hour)))
    days = pd.date_range("2024-01-01", periods=6)
    values = [[1, 0, n % 2] for n in range(6)]  # the first is the month, by chance
    assert read(tmp_path, rows(("time", days), values=values)).arm_names == ("a", "b", "c")


def test_a_counter_beside_named_times_is_no_arm(tmp_path):
    text = rows(("Unnamed: 0", range(14)), ("date", HOURS))
    with pytest.raises(ValueError, match="rewards must be given: column 'Unnamed: 0' counts"):
        read(tmp_path, text, time_column="date")
    assert read(tmp_path, text, time_column="date", rewards="a,c").arm_names == ("a", "c")


def test_names_in_bytes_are_decoded_and_rewards_that_are_no_real_numbers_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, rewards=VALUES, arms=np.array([b"a", "ü".encode(), b"c"]))
    assert read_table(path).arm_names == ("a", "ü", "c")
    np.savez(path, rewards=VALUES, arms=np.array([b"a", b"\xfc", b"c"]))
    with pytest.raises(ValueError, match="arms must be text, or bytes in UTF-8"):
        read_table(path)
    for rewards in (VALUES + 1j, VALUES > 5):
        np.savez(path, rewards=rewards)
        with pytest.raises(ValueError, match="rewards must be an array of real numbers"):
            read_table(path)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1", "high"], "row 2, column 'a' must be a number or empty, got 'high'"),
        ([[1, 2], [3]], r"row 1, column 'a' must be a number or empty"),
        ([{"x": 1}, {"x": 2}], "column 'a' must be a number"),
        ([True, False], r"column 'a' must be a number or empty, got True \(write.*true as 1"),
        (pd.Categorical(["u", "v"]), "column 'a' must be a number or empty, got 'u'"),
        (
            pd.to_timedelta([3, 1], unit="s"),
            "column 'a' must be a number.*rewards= names the columns that are arms",
        ),
    ],
)
def test_parquet_cells_that_are_no_numbers_name_their_column(cells, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        parquet(tmp_path, pd.DataFrame({"a": cells, "b": [1.0, 2.0], "c": [2.0, 1.0]}))


def test_parquet_numbers_of_any_kind_are_read(tmp_path):
    frame = pd.DataFrame(
        {
            "a": [Decimal("1.5"), Decimal(2)],
            "b": pd.array([1, None], dtype="Int64"),
            "c": pd.Categorical([4, 3]),
        }
    )
    assert parquet(tmp_path, frame).rewards.nan_to_num(-1).tolist() == [[1.5, 1, 4], [2, -1, 3]]
    timed = pd.DataFrame({"time": pd.to_timedelta([60, 120], unit="s"), "a": [1, 2], "b": [2, 1]})
    assert parquet(tmp_path, timed).times.tolist() == [60, 120]


@pytest.mark.parametrize("sentinel", [-9999, 999, -1e30, -777])
def test_a_number_that_may_stand_for_nothing_is_told_and_named_by_missing(sentinel, tmp_path):
    values = VALUES.copy()
    values[[3, 5], 1] = sentinel
    note = f"far outside the other rewards: {sentinel:.10g}, 2 times in b"
    assert any(line.startswith(note) for line in read(tmp_path, rows(values=values)).notes)
    assert not any("far outside" in line for line in read(tmp_path, rows()).notes)
    for told in (sentinel, str(sentinel), [sentinel, -5.5]):
        table = read(tmp_path, rows(values=values), missing=told)
        assert table.rewards.isnan().nonzero().tolist() == [[3, 1], [5, 1]]
        assert not any("far outside" in line for line in table.notes)
    filled = read(tmp_path, rows(values=values), missing=f"forward-fill,{sentinel}")
    assert filled.rewards[3, 1] == VALUES[2, 1]


@pytest.mark.parametrize("word", ["n.a.", "#DIV/0!", "<NA>", "."])
def test_a_word_that_stands_for_nothing_is_named_by_missing(word, tmp_path):
    text = f"a,b\n1,2\n{word},3\n"
    with pytest.raises(ValueError, match=r"row 2, column 'a' must be a number.*\(missing='") as refused:
        read(tmp_path, text)
    assert f"missing={word!r}" in str(refused.value)
    assert read(tmp_path, text, missing=word).rewards.isnan().tolist() == [[False, False], [True, False]]


def test_a_word_that_no_cell_holds_is_a_misspelling(tmp_path):
    with pytest.raises(ValueError, match=r"missing must be 'mask', .*no cell holds it.*'foward-fill'"):
        read(tmp_path, "a,b\n1,2\nx,3\n", missing="foward-fill,x")


DATES, FORMS = r"\(write numbers as.*dates as 2024-01-31", r"\(write numbers as -1234.5 without a unit"
HINTS = [
    (rows(("date", HOURS.strftime("%d/%m/%Y"))), rf"got '25/01/2024' {DATES}.*time_column= names the times"),
    (rows(("date", HOURS.strftime("%d %b %Y"))), DATES),
    (rows(("time", [f"0 days 00:{n:02d}:00" for n in range(14)])), "durations as seconds"),
    (
        rows(("time", HOURS), ("end", HOURS.strftime("%Y-%m-%dT%H:%M"))),
        "column 'end'.*T00:00' .*time_column= names",
    ),
    ("a,b\n1,2,\n2,3,\n", "remove a separator at the end of the line"),
    ("Report\na,b\n1,2\n", "remove a title above the header"),
    ("# made by hand\na,b\n1,2\n", "without comments, got '# made by hand'"),
    ("a,b\nTrue,1\nFalse,2\n", "got True .write numbers.*true as 1"),
    *((f"a,b\n{cell},1\n6,2\n", FORMS) for cell in ("€ 5", "5 %", "(5)", "١")),
    ("time,a,b\n1,1,2\n2,1,2\nTotal,2,4\n", "row 3, column 'time' must be a number.*got 'Total'"),
    ("time,a,b,c,d\n2,1,2,1,2\n1,1,2,1,2\n", r"times must increase.*\(sort the rows by time"),
    ("time,a,b,c,d\n2,1,2,1,2\n2,1,2,1,2\n", r"times must increase.*\(time_column= names another\)"),
    (
        "time,a,b,c,d\n2026-10-25T02:00,1,2,1,2\n2026-10-25T02:00,2,1,2,1\n",
        r"\(time_column= names another, or write local times with their offset\)",
    ),
    (",result,_time,_value,host\n,0,1,3,a\n,0,1,4,b\n,0,2,1,a\n", "long=host,REWARD if it names the arm"),
    ("when,layout,revenue\n1,a,3\n1,b,4\n2,a,1\n2,b,2\n", "long=layout,revenue if it names the arm"),
    ("time,arm,reward\n1,a,3\n1,b,4\n2,a,1\n2,b,2\n", "one row per reward; long=True if so"),
]


@pytest.mark.parametrize(("text", "hint"), HINTS, ids=range(len(HINTS)))
def test_a_refusal_says_what_to_do(text, hint, tmp_path):
    with pytest.raises(ValueError, match=hint):
        read(tmp_path, text)


def test_long_is_not_recommended_where_no_column_can_name_arms(tmp_path):
    for text in ("id,a,b\nA0,1,2\nB1,2,3\n", "a,b\nn.a.,1\n2,3\n", "time,a,b,c,d\n2,1,2,1,2\n2,1,2,1,2\n"):
        with pytest.raises(ValueError) as refused:  # noqa: PT011
            read(tmp_path, text)
        assert "long" not in str(refused.value)


def test_the_guess_stands_before_a_list_that_is_cut(tmp_path):
    names = [f"station {n}" for n in range(500)]
    with pytest.raises(ValueError, match=r"did you mean station 499\? there are station 0.*and 492 more$"):
        read(tmp_path, rows(names=names, values=np.eye(500)[:3]), rewards="station 1,statoin 499")


@pytest.mark.parametrize("line", ["sep=;\n", "sep=;\r\n", '"sep=;"\n'])
def test_excels_line_that_tells_the_separator_is_obeyed(line, tmp_path):
    assert read(tmp_path, line + "a;b\n1,5;2\n2,5;3\n").rewards.tolist() == [[1.5, 2], [2.5, 3]]


def test_the_minus_sign_and_numpys_names_are_read(tmp_path):
    assert read(tmp_path, "a,b\n\u22121.5,2\n2,\u22123\n").rewards.tolist() == [[-1.5, 2], [2, -3]]
    table = read(tmp_path, "# time,a,b\n1,1,2\n2,3,4\n")
    assert (table.arm_names, table.times.tolist()) == (("a", "b"), [1, 2])


def test_tables_under_other_names_are_read_or_refused_for_what_they_are(tmp_path):
    assert read(tmp_path, "a\tb\n1\t2\n", name="x.tsv").rewards.tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="which holds gzip's compressed data: unpack it"):
        read(tmp_path, gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(ValueError, match=r"file ending in .csv.*\(unpack it, or save it as CSV\)"):
        read(tmp_path, gzip.compress(b"a,b\n1,2\n"), name="x.csv.gz")


def test_rows_longer_than_a_cell_may_be_are_read(tmp_path):
    names = [f"arm {n} {'x' * 1000}" for n in range(150)]  # 150 000 characters a row; a cell may have 131 072
    assert read(tmp_path, rows(names=names, values=np.ones((2, 150)))).arm_names == tuple(names)


@pytest.mark.parametrize("cells", [("1.5", "2.5", ","), ("1,5", "2,5", ";")])
@pytest.mark.parametrize("long", [True, "Arm,reward"])
def test_names_of_arms_in_a_long_table_are_kept_as_written(cells, long, tmp_path):
    first, second, separator = cells
    text = "time,Arm,reward\n1,001,{}\n1,010,{}\n2,001,{}\n".replace(",", separator)
    table = read(tmp_path, text.format(first, second, first), long=long)
    assert table.arm_names == ("001", "010")
    assert table.rewards[0].tolist() == [1.5, 2.5]


def test_what_is_left_out_is_told(tmp_path):
    long = read(tmp_path, "time,arm,reward,note\n1,x,2,5\n1,y,3,6\n2,x,5,7\n", long=True)
    assert "left out: note" in long.notes
    indexed = read(tmp_path, rows(("", range(5, 19)), ("time", range(14))))
    assert "left out: the first column, which has no name" in indexed.notes


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (pd.date_range("2024-01-01", periods=40, freq="10min"), "one step: 10 minutes (the median gap)"),
        (pd.date_range("2024-01-01", periods=40, freq="D"), "one step: 1 day (the median gap)"),
        (pd.date_range("2024-01-01", periods=40, freq="36h"), "one step: 1.5 days (the median gap)"),
        (range(0, 80, 2), "one step: 2 of the time's units (the median gap)"),
    ],
)
def test_a_step_is_told_in_units_that_people_use(times, told, tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 3))
    table = read(tmp_path, rows(("time", times), values=values))
    assert told in Replay(table, noise_fraction=0.1, forgetting_rate=0.1).summary()


def logged(seen, rows=60, arms=5, names="abcde", form="wide"):
    """A record of hours of which ``seen(row)`` arms have a reward, as text."""
    g = np.random.default_rng(0)
    hours = pd.date_range("2024-01-01", periods=rows, freq="h")
    values = np.full((rows, arms), np.nan)
    for row in range(rows):
        held = g.permutation(arms)[: seen(row)]
        values[row, held] = np.round(g.normal(size=len(held)), 3)
    frame = pd.DataFrame(values, columns=list(names)[:arms], index=pd.Index(hours, name="time"))
    if form == "wide":
        return frame.to_csv()
    return frame.reset_index().melt("time", var_name="arm", value_name="reward").dropna().to_csv(index=False)


@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.parametrize(
    ("seen", "arms", "told"),
    [
        (lambda row: 1, 5, "at 60 of 60 times only one of the 5 arms has a reward"),
        (lambda row: 1, 2, "at 60 of 60 times only one of the 2 arms has a reward"),
        (lambda row: 2, 5, "at 60 of 60 times fewer than half of the 5 arms have a reward"),
        (lambda row: 1 if row < 31 else 5, 5, "at 31 of 60 times only one of the 5 arms has a reward"),
    ],
)
def test_a_log_of_pulls_is_no_table_of_rewards(form, seen, arms, told, tmp_path):
    text, long = logged(seen, arms=arms, form=form), form == "long"
    with pytest.raises(ValueError, match=f"missing must be given.* like a log of pulls: {told}") as refused:
        read(tmp_path, text, long=long)
    assert "missing='unavailable'" in str(refused.value)
    meant = read(tmp_path, text, long=long, missing="unavailable")
    assert meant.rewards.isnan().sum() == sum(arms - seen(row) for row in range(60))
    filled = read(tmp_path, text, long=long, missing="forward-fill")
    assert not filled.rewards[-1].isnan().any()


@pytest.mark.parametrize(
    ("seen", "arms"),
    [
        (lambda row: 3, 5),  # always more than half
        (lambda row: 2, 4),
        (lambda row: 1 if row < 30 else 5, 5),  # at half of the times, not at most
        (lambda row: 0 if row < 45 else 5, 5),  # times without any reward are not played
        (lambda row: 1 if row < 9 else 0, 5),  # nine times are too few to tell
    ],
)
def test_cells_that_are_missing_here_and_there_make_no_log(seen, arms, tmp_path):
    table = read(tmp_path, logged(seen, arms=arms))
    assert table.rewards.isnan().sum() == sum(arms - seen(row) for row in range(60))


def test_what_a_missing_reward_is_taken_for_is_told(tmp_path):
    table = read(tmp_path, logged(lambda row: 1 if row % 4 == 0 else 4))
    said = Replay(table, noise_fraction=0.1, forgetting_rate=0.1).summary()
    assert "missing rewards: 105 of 300 (35.0%), treated as arms that cannot be pulled then" in said
    assert "only one arm can be pulled at 12 of the 48 steps: regret is 0 there" in said


def test_cells_that_say_unavailable_are_missing_where_that_is_what_missing_means(tmp_path):
    text = "a,b,c\n1,2,unavailable\n3,unavailable,1\n2,1,1\n"
    assert read(tmp_path, text, missing="unavailable").rewards.isnan().sum() == 2


def test_columns_are_left_out_by_name(tmp_path):
    text = rows(("time", HOURS), ("weather", [f"rain of {n} mm" for n in range(14)]))
    for told in ("weather,b", ["weather", "b"]):
        table = read(tmp_path, text, ignore=told)
        assert table.arm_names == ("a", "c")
        assert "left out: weather, b" in table.notes
    with pytest.raises(ValueError, match=r"ignore must be one of time, .* got 'whether': did you mean"):
        read(tmp_path, text, ignore="whether")
    with pytest.raises(ValueError, match=r"ignore must be other columns than rewards, got \['b'\]"):
        read(tmp_path, text, ignore="weather,b", rewards="a,b")
    long = "time,arm,reward,note\n1,x,2,5\n1,y,3,6\n2,x,5,7\n"
    assert "left out: note" in read(tmp_path, long, long=True, ignore="note").notes


def test_all_columns_of_text_are_named_at_once_with_what_leaves_them_out(tmp_path):
    said = ["fine", "rain all day", "nobody came", "", "3 o'clock", "power cut"] * 2 + ["fine", "closed"]
    text = rows(("time", HOURS), ("comment", said), ("by", ["Ann", "Bob"] * 7))
    with pytest.raises(
        ValueError, match=r"row 1, column 'comment' must be a number .* got 'fine'"
    ) as refused:
        read(tmp_path, text)
    assert "ignore=comment,by leaves out the columns of text" in str(refused.value)
    assert "missing=" not in str(refused.value)
    assert read(tmp_path, text, ignore="comment,by").arm_names == ("a", "b", "c")
    few = rows(("time", HOURS), ("comment", ["fine", "rain all day"] * 7), names="ab", values=VALUES[:, :2])
    with pytest.raises(ValueError, match=r"ignore=comment leaves out .*long=comment,REWARD if it names"):
        read(tmp_path, few)
