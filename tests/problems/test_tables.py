"""Reading tables: what comes back, and what is refused."""

import io
import math
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bandits_torch import AskTell
from bandits_torch.problems import RewardTable, read_data, read_log, read_table
from bandits_torch.problems.diagnosis import diagnose

VALUES = torch.tensor(
    [[1.0, 2.5, -3.0], [4.0, float("nan"), 6.0], [7.0, 8.0, float("nan")]], dtype=torch.float64
)
CSV = "when,a,b,c\n1,1,2.5,-3\n2,4,,6\n4,7,8,\n"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(torch.isnan(one), torch.isnan(other)) and torch.equal(
        one.nan_to_num(), other.nan_to_num()
    )


def _write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def _saved(folder: Path, suffix: str) -> Path:
    frame = pd.DataFrame(VALUES.numpy(), columns=["a", "b", "c"])
    frame.insert(0, "when", [1, 2, 4])
    path = folder / f"table{suffix}"
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    elif suffix == ".parquet":
        frame.to_parquet(path)
    else:
        np.savez(path, rewards=VALUES.numpy(), arms=np.array(["a", "b", "c"]), when=np.array([1, 2, 4]))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_every_format_gives_the_same_table(tmp_path: Path, suffix: str) -> None:
    table = read_table(_saved(tmp_path, suffix), time_column="when")
    assert _same(table.rewards, VALUES)
    assert table.rewards.dtype == torch.float64
    assert table.arm_names == ("a", "b", "c")
    assert table.times.tolist() == [1.0, 2.0, 4.0]
    for asked in (["c", "a"], "c,a"):
        some = read_table(_saved(tmp_path, suffix), asked)
        assert some.arm_names == ("c", "a")
        assert _same(some.rewards, VALUES[:, [2, 0]])
        assert some.times.tolist() == [1.0, 2.0, 4.0]  # "when" is the time, asked for or not


def test_forward_fill_repeats_the_last_reward_and_leaves_leading_gaps(tmp_path: Path) -> None:
    table = read_table(_write(tmp_path, "a,b\n,1\n2,\n,\n3,4\n"), missing="forward-fill")
    expected = torch.tensor([[float("nan"), 1], [2, 1], [2, 1], [3, 4]], dtype=torch.float64)
    assert _same(table.rewards, expected)


@pytest.mark.skipif(int(pd.__version__.split(".")[0]) < 3, reason="before pandas 3 dates end in 2262")
@pytest.mark.parametrize("year", ["0900", "3000", "9999"])
def test_dates_of_any_year_become_seconds(tmp_path: Path, year: str) -> None:
    rows = "".join(f"{year}-01-0{k},{math.sin(k)},{math.cos(k)}\n" for k in range(1, 9))
    (tmp_path / "x.csv").write_text(f"date,a,b\n{rows}", encoding="utf-8")
    times = read_table(tmp_path / "x.csv").times
    first = datetime(int(year), 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert times.tolist() == [first.total_seconds() + 86400 * k for k in range(8)]


NAN = float("nan")
NO_ROWS, CELLS = (
    "path must be a table with a header and at least one row",
    "row 1 must have 3 cells, like the header, got",
)
TIMES = "time_column must be given"


def _rows(header, begin):
    return "\n".join([header, *(f"{begin(k)},{k % 3},{k % 5}" for k in range(20))]).encode()


# What a file holds, and its rewards or the words of the refusal; others: tests/fuzz/odd_tables.py.
FILES = {
    "empty": (b"", NO_ROWS),
    "header alone": (b"time,a,b\n", NO_ROWS),
    "no second arm": (b"time,a\n1,2\n", "rewards must be at least two columns"),
    "Latin-1 bytes": (b"time,\xe9,b\n1,2,3\n", r"path must be a readable \.csv file.*encoding= names"),
    "NUL bytes": (b"time,a,b\n1,\x00,3\n", "path must be a text file without NUL characters"),
    "blank lines": (b"time,a,b\n\n1,2,3\n\n", [[2, 3]]),
    "row too short": (b"time,a,b\n1,2\n", f"{CELLS} 2"),
    "row too long": (b"time,a,b\n1,2,3,4\n", f"{CELLS} 4"),
    "unclosed quote": (b'time,a,b\n1,"2,3\n', f"{CELLS} 2|path"),
    "text among numbers": (b"a,b\n1,2\n3,high\n", "row 2, column 'b' must be a number or empty, got 'high'"),
    "missing cells": (b"a,b,c\n , NaN,na\n1,NA,nan\n", [[NAN, NAN, NAN], [1, NAN, NAN]]),
    "infinity": (b"a,b\n1,inf\n", "rewards must be finite, got infinity in row 1, column 'b'"),
    "number beyond float64": (b"time,a,b\n1,1e999,3\n", "rewards must be finite, got infinity in row 1"),
    "names repeated": (b"a,b,a\n1,2,3\n", r"arm names must be all different, got \['a'\]"),
    "time going backwards": (
        b"time,a,b\n2.5,1,1\n1,1,1\n",
        "times must increase.* got 2.5 in row 1 and 1 in row 2",
    ),
    "time repeated": (b"time,a,b\n1,1,1\n1,1,1\n", "times must increase.* got 1 in row 1 and 1 in row 2"),
    "days going backwards": (
        b"time,a,b\n2024-01-02,1,1\n2024-01-01,1,1\n",
        "times must increase.* got 2024-01-02 00:00 in row 1 and 2024-01-01 00:00 in row 2",
    ),
    "time missing": (b"time,a,b\n1,1,1\n,1,1\n", "row 2, column 'time' must hold a time"),
    "time of mixed types": (
        b"time,a,b\n1,1,1\n2020-01-01,1,1\n",
        "must be a number or an ISO 8601 timestamp",
    ),
    "time infinite": (b"time,a,b\n1,1,1\ninf,1,1\n", "times must be finite"),
    "time in words": (
        b"time,a,b\n2024-01-01,1,1\nsoon,1,1\n",
        "row 2, column 'time' must be a number.*got 'soon'",
    ),
    "zones mixed": (b"time,a,b\n2020-01-01T00:00:00Z,1,2\n2020-01-01T00:30:00-01:00,3,4\n", [[1, 2], [3, 4]]),
    "names of columns of two lines": (b'"a\nx",b\n1,2\n3,4\n5,7\n', "names of columns"),
    "long": (_rows("time,arm,reward", lambda k: k), "long must be given"),
    "times that are not called so": (_rows("elapsed,a,b", lambda k: k**1.1), TIMES),
    "times that fall": (_rows("a,left,b,c", lambda k: f"{k % 2},{40 - k}"), TIMES),
    "two columns of times": (_rows("date,id,a,b", lambda k: f"2024-01-{k + 1:02d},{10 * k}"), TIMES),
    "no header": (b"0,1\n1,0\n0,0\n1,1\n", "header must be"),
}


@pytest.mark.parametrize(("content", "expected"), FILES.values(), ids=FILES)
def test_a_file_is_read_as_meant_or_refused_by_what_is_wrong(tmp_path, content, expected) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            read_table(path)
    else:
        assert _same(read_table(path).rewards, torch.tensor(expected).double())


def _csv(text=CSV, **options):
    return lambda folder: read_table(_write(folder, text), **options)


def _npz(**arrays):
    def call(folder):
        np.savez(folder / "x.npz", **arrays)
        return read_table(folder / "x.npz")

    return call


def _table(*given):
    return lambda folder: RewardTable(*given)


ONES, INFINITE = torch.ones(2, 2), torch.tensor([[1.0, float("inf")]])
TOO_LARGE = torch.tensor([[0.5, 1.0], [0.1, 2.0], [0.3, -1e200], [torch.nan, 1.0]], dtype=torch.float64)
OBJECTS, EMPTY = np.array([[1, None]], dtype=object), "path must be a table with a column that is not ignored"
SHAPE = "rewards must be an array T x N with rows"
REFUSED = [
    (_csv(rewards=[["a"]]), "rewards must be names"),
    (_csv(ignore=[["a"]]), "ignore must be names"),
    (_csv(separator="\r"), "separator must be one character, no quote or end of a line"),
    (_csv(long="a,a"), "long must be 'ARM,REWARD'"),
    (_csv(time_column="hour"), "time_column must be one of when, a, b, c, got 'hour'"),
    (_csv(rewards=["a", "z"]), "rewards must be one of a, b, c, got 'z'"),
    (_csv(missing="zero"), "missing must be 'mask', 'unavailable', 'forward-fill', or what missing.*'zero'"),
    *((_csv(ignore="when,a,b,c", **more), EMPTY) for more in ({}, {"time_column": None}, {"long": True})),
    (lambda folder: read_table(folder / "nowhere.csv"), r"path must be an existing file, got .*nowhere\.csv"),
    (
        lambda folder: read_table(_write(folder, CSV, "table.xlsx")),
        r"path must be a file ending in .csv, .tsv, .txt, .parquet, .npz",
    ),
    (_npz(rewards=OBJECTS), r"path must be a readable NPZ file.*allow_pickle=False"),
    (_npz(values=np.ones((2, 2))), r"an NPZ with an array 'rewards' \(has values\)"),
    (_npz(rewards=np.ones(3)), SHAPE),
    (_npz(rewards=np.ones((0, 3))), SHAPE),
    (_npz(rewards=np.ones((2, 2)), arms=np.array(["a"])), "arms must be an array of 2 names"),
    (_npz(rewards=np.ones((2, 2)), arms=np.array(["a", "a"])), "arm names must be all different"),
    (_table(ONES, torch.ones(2) * 1j), "times must be real numbers"),
    (_table(ONES * 1j), "rewards must be real numbers"),
    (_table(ONES, None, ("a",)), "arm_names must be 2 names"),
    (_table(INFINITE), "rewards must be finite, got infinity in row 1, column '1'"),
    (_table(TOO_LARGE), r"at most 1e\+140 in size, got -1e\+200 in row 3, column '1'"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_is_refused_by_name(tmp_path, call, message):
    with pytest.raises(ValueError, match=message):
        call(tmp_path)


@pytest.mark.parametrize("kind", [torch.long, torch.float32])
def test_numbers_of_any_kind_are_a_table_of_float64(kind):
    rewards = torch.arange(40).reshape(20, 2) % 7
    table = RewardTable(rewards.to(kind), (torch.arange(20) * 1000 + 10**9).to(torch.long))
    expected = RewardTable(rewards.double(), (torch.arange(20) * 1000 + 10**9).double())
    for name in ("rewards", "times"):
        assert torch.equal(getattr(table, name), getattr(expected, name))
        assert getattr(table, name).dtype == torch.float64
    assert diagnose(rewards.double().requires_grad_()).rows == len(rewards)


@pytest.mark.parametrize("name", ["time", "Timestamp", "t", "date"])
def test_a_first_column_called_like_time_is_the_time_unless_told_otherwise(tmp_path, name):
    path = _write(tmp_path, f"{name},a,b\n3,1,2\n5,3,4\n")
    table = read_table(path)
    assert table.arm_names == ("a", "b")
    assert table.times.tolist() == [3.0, 5.0]
    assert read_table(path, time_column=None).arm_names == (name, "a", "b")


def test_an_index_saved_with_the_table_is_no_arm(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=list("abc"))
    frame.to_csv(tmp_path / "x.csv")
    table = read_table(tmp_path / "x.csv")
    assert table.arm_names == ("a", "b", "c")
    assert table.times.tolist() == list(range(30))
    assert torch.equal(table.rewards, torch.tensor(frame.to_numpy()))
    assert read_table(tmp_path / "x.csv", time_column=None).times is None
    frame[frame["a"] > 0].to_csv(tmp_path / "x.csv")  # a selection: its index has gaps
    assert len(read_table(tmp_path / "x.csv").arm_names) == 3
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="time_column must be given: the first column has no name"):
        read_table(tmp_path / "x.csv")


@pytest.mark.parametrize("name", ["hour", "k", "step"])
def test_a_column_that_counts_is_not_taken_for_an_arm_unasked(tmp_path, name):
    path = _write(tmp_path, f"{name},a,b\n1,1,2\n2,3,1\n3,0,0\n")
    with pytest.raises(ValueError, match=f"time_column must be given: column '{name}' counts"):
        read_table(path)
    assert read_table(path, time_column=name).arm_names == ("a", "b")
    assert read_table(path, time_column=None).arm_names == (name, "a", "b")


def test_rows_of_time_arm_and_reward_are_read_as_long(tmp_path):
    path = _write(tmp_path, "time,arm,reward\n1,x,2\n1,y,3\n2,y,5\n")
    with pytest.raises(ValueError, match="long=True"):
        read_table(path)
    table = read_table(path, long=True)
    assert table.arm_names == ("x", "y")
    assert _same(table.rewards, torch.tensor([[2, 3], [float("nan"), 5]]).double())
    assert table.times.tolist() == [1, 2]
    path = _write(tmp_path, "time,pump,flow,note\n1,1,2,0\n1,2,3,0\n2,1,5,0\n")
    with pytest.raises(ValueError, match="long must be 'ARM,REWARD', two of the columns pump, flow, note"):
        read_table(path, long=True)
    assert read_table(path, long="pump,flow").arm_names == ("1", "2")
    with pytest.raises(ValueError, match="row 2 must be the only one of its arm and time, got arm 'x'"):
        read_table(_write(tmp_path, "time,arm,reward\n1,x,2\n1,x,3\n"), long=True)
    spaced = _write(tmp_path, "time,arm,reward\n1,x ,2\n1, y,3\n2,x,4\n2,y,5\n")
    assert read_table(spaced, long=True).arm_names == ("x", "y")
    unnamed = _write(tmp_path, "minute,arm,reward\n1,x,2\n1,y,3\n2,x,4\n2,y,5\n")
    with pytest.raises(ValueError, match="time_column must be one of minute, arm, reward if long is given"):
        read_table(unnamed, long=True)


def test_a_header_that_promises_more_than_the_file_holds_is_refused(tmp_path):
    stored = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stored, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**3)}
    )
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("rewards.npy", stored.getvalue() + bytes(64))
    with pytest.raises(ValueError, match="path must be a readable NPZ file"):
        read_table(tmp_path / "x.npz")


def test_arrays_that_are_not_asked_for_are_not_read(tmp_path):
    np.savez(tmp_path / "x.npz", rewards=np.eye(3), other=np.array([1, None], dtype=object))
    assert read_table(tmp_path / "x.npz").rewards.shape == (3, 3)


def test_a_column_without_any_value_is_pointed_out(tmp_path: Path) -> None:
    table = read_table(_write(tmp_path, "a,b,comment\n1,2,\n3,5,\n2,4,\n"))
    assert table.arm_names == ("a", "b", "comment")
    assert "without any reward: comment; ignore=comment leaves them out" in table.notes


@pytest.mark.parametrize(("epoch", "per"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times_since_1970_become_dates_if_asked_and_are_noted_if_not(tmp_path: Path, epoch, per) -> None:
    starts = [1_700_000_000 + 3600 * k for k in range(12)]
    rows = [(f"{start * per}", k % 3, k % 5) for k, start in enumerate(starts)]
    path = _write(tmp_path, "ts,a,b\n" + "".join(f"{t},{a},{b}\n" for t, a, b in rows))
    table, plain = read_table(path, epoch=epoch), read_table(path)
    assert (table.times.tolist(), table.dated, table.in_seconds) == (starts, True, True)
    assert table.when(0) == "2023-11-14 22:13:20"
    assert (plain.times.tolist(), plain.in_seconds) == ([start * per for start in starts], False)
    assert any(f"epoch={epoch} if they are" in note for note in plain.notes)
    assert not any("epoch=" in note for note in table.notes)
    logged = _write(tmp_path, "ts,arm,reward\n" + "".join(f"{t},{'xyz'[a]},{b}\n" for t, a, b in rows))
    log = read_log(logged, epoch=epoch)
    assert (log.times.tolist(), log.dated, log.zoned) == (starts, True, True)
    assert AskTell.auto(log=log, time_unit="h").ask("2023-11-15T12:00+01:00").time.hour == 12
    assert read_data(logged, epoch=epoch).times.tolist() == starts


@pytest.mark.parametrize(
    ("text", "epoch", "message"),
    [
        ("a,b\n1,2\n3,1\n", "s", "epoch must be None if no column holds times, got 's'"),
        ("time,a,b\n2024-01-01,2,1\n2024-01-02,3,1\n", "s", "epoch must be None: column 'time' holds dates"),
        (
            "ts,a,b\n1700000000000,2,1\n1700000001000,3,1\n",
            "s",
            "row 1, column 'ts' must be seconds since 1970, before 2100, got 1700000000000",
        ),
        ("ts,a,b\n1700000000,2,1\n,3,1\n", "s", "row 2, column 'ts' must hold a time, got an empty cell"),
        ("ts,a,b\n1,2,1\n2,3,1\n", "min", "epoch must be 's', 'ms', 'us', 'ns' or None, got 'min'"),
    ],
)
def test_an_epoch_that_does_not_fit_is_refused(tmp_path: Path, text, epoch, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_table(_write(tmp_path, text), epoch=epoch)
