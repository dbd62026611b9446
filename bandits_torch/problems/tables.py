"""Tables of real rewards: rows are times, columns are arms."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.problems.table_cells import are_times, decimal_mark, is_missing, numbers, times
from bandits_torch.problems.table_files import Columns, array_names, read_arrays, read_csv, read_parquet

_TIME_NAMES = {"time", "times", "t", "date", "datetime", "timestamp", "timestamps", "when", "ts", "epoch"}
_ARM_NAMES = {
    "arm",
    "arms",
    "action",
    "item",
    "sensor",
    "station",
    "site",
    "name",
    "id",
    "variable",
    "series",
}
_REWARD_NAMES = {"reward", "rewards", "value", "y"}
_FEW = 3  # rows; of fewer it cannot be said that they count
_RISES = 2  # of a column of whole numbers that never falls


@dataclass(frozen=True)
class RewardTable:
    """Rewards of every arm at every time.

    Attributes:
        rewards: (T, N) float64, T >= 1, N >= 2; NaN where a reward is missing.
        times: (T,) float64, strictly increasing, or None: one row per unit of time.
        arm_names: N different names; default "0", "1", ...
        notes: what a reader has to tell of the file the table came from, a line each.

    Raises:
        ValueError: for anything else.
    """

    rewards: Tensor
    times: Tensor | None = None
    arm_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rewards = validation.tensor("rewards", self.rewards)
        validation.shape_is("rewards", rewards, rewards.dim() == 2, "(T, N)")
        validation.require(
            rewards.shape[0] >= 1, "rewards", tuple(rewards.shape), "a table of at least one row"
        )
        validation.require(
            rewards.shape[1] >= 2, "rewards", tuple(rewards.shape), "a table of at least two arms"
        )
        names = tuple(self.arm_names) or tuple(str(n) for n in range(rewards.shape[1]))
        object.__setattr__(self, "arm_names", names)
        validation.require(len(names) == rewards.shape[1], "arm_names", names, f"{rewards.shape[1]} names")
        _check_unique(names)
        if bool(torch.isinf(rewards).any()):
            row, column = torch.isinf(rewards).nonzero()[0].tolist()
            raise ValueError(
                f"rewards must be finite, got infinity in row {row + 1}, column {names[column]!r}"
            )
        if self.times is not None:
            _check_times(self.times, rewards.shape[0])

    def forward_filled(self) -> RewardTable:
        """A copy in which a missing reward is the arm's last one; before an arm's first it stays missing."""
        filled = pd.DataFrame(self.rewards.numpy()).ffill().to_numpy()
        return RewardTable(torch.from_numpy(filled.copy()), self.times, self.arm_names, self.notes)


def read_table(
    path: str | Path,
    rewards: Sequence[str] | str | None = None,
    time_column: str | None = "auto",
    *,
    long: bool | str = False,
    missing: str = "mask",
    header: bool | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> RewardTable:
    """Read a table of rewards from CSV, Parquet (needs pyarrow) or NPZ, by the file's suffix.

    What is not clear is refused by a ValueError that names the argument which decides.

    Args:
        path: the file. CSV and Parquet: one column per arm, named by the header. NPZ (read without pickle):
            an array ``rewards`` (T x N), and if there is one an array ``arms`` of N names; others are not read.
        rewards: names of the arms to take, in this order (a sequence, or one string with commas); None: all
            columns but the time's.
        time_column: name of the column (of the array, in NPZ) of times: numbers, or dates (ISO 8601, or digits
            alone such as 20240131), which become seconds since 1970 (UTC unless they name another zone).
            ``"auto"``: the one called time, times, t, date, datetime, timestamp, when, ts or epoch in any case, or
            the one that holds dates, or a first column without a name (an index saved with the table). None: no
            column of times; a first column without a name is left out.
        long: True: a row for every reward, with columns of time, arm and reward. ``"ARM,REWARD"`` names the latter
            two.
        missing: what becomes of empty cells (also NaN, NA, N/A, null, none, - and ?): ``"mask"``: they stay missing;
            ``"forward-fill"``: the arm's last reward, where it has one.
        header: whether a CSV's first row holds names; None: yes, unless it could be numbers.
        separator: between the cells of a CSV; None: comma, semicolon, tab or bar, whichever splits all lines alike.
        decimal: "." or ","; None: as the numbers say.
        encoding: of a CSV; None: UTF-8, or UTF-16 with its mark.

    Raises:
        ValueError: no such file, unknown suffix, unreadable file, no rows, fewer than two arms, two arms of
            one name, unknown column, a cell that is no number (row and column are named, rows counted from
            1 after the header), infinite values, time that is missing, repeats or goes back, an arm that counts the
            rows, two readings of a file.
    """
    validation.require(missing in ("mask", "forward-fill"), "missing", missing, "'mask' or 'forward-fill'")
    validation.require(decimal in (None, ".", ","), "decimal", decimal, "'.', ',' or None")
    validation.require(header in (None, True, False), "header", header, "True, False or None")
    ok = separator is None or (isinstance(separator, str) and len(separator) == 1)
    validation.require(ok, "separator", separator, "one character or None")
    validation.instance("path", path, (str, Path), "the path of a file")
    file = Path(path)
    suffix = file.suffix.lower()
    kinds = (".csv", ".parquet", ".npz")
    validation.require(suffix in kinds, "path", str(path), f"a file ending in {', '.join(kinds)}")
    validation.require(file.is_file(), "path", str(path), "an existing file")
    if suffix == ".npz":
        columns, time_column = _read_npz(file, time_column)
    elif suffix == ".parquet":
        columns = read_parquet(file)
    else:
        columns = _csv(file, separator, header, encoding, decimal)
    mark = decimal or _decimal(columns)
    if long:
        table = _long(columns, long, time_column, rewards, mark)
    else:
        table = _wide(columns, time_column, rewards, mark)
    return table if missing == "mask" else table.forward_filled()


def _csv(
    file: Path, separator: str | None, header: bool | None, encoding: str | None, decimal: str | None
) -> Columns:
    try:
        return read_csv(file, separator, header, encoding, decimal)
    except UnicodeError as error:
        raise ValueError(
            f"path must be a readable .csv file, got {str(file)!r}: {error}; encoding= tells another than UTF-8"
        ) from error
    except LookupError as error:
        raise ValueError(f"encoding must be one that Python knows, got {encoding!r}: {error}") from error
    except (OSError, csv.Error) as error:
        raise ValueError(f"path must be a readable .csv file, got {str(file)!r}: {error}") from error


def _decimal(columns: Columns) -> str:
    text = [cells for cells in columns.values() if np.asarray(cells).dtype.kind in "OU"]
    mark = decimal_mark(text)
    if mark is None:
        raise ValueError("decimal must be '.' or ',', got None: the table's numbers can be read either way")
    return mark


def _wide(
    columns: Columns, time_column: str | None, rewards: Sequence[str] | str | None, mark: str
) -> RewardTable:
    time = _find_time(columns, time_column, mark)
    asked = rewards.split(",") if isinstance(rewards, str) else rewards
    unnamed = {""} if time_column is None else set()
    names = (
        [name for name in columns if name != time and name not in unnamed] if asked is None else list(asked)
    )
    for name in names:
        validation.require(name in columns, "rewards", name, f"among the columns {', '.join(columns)}")
    validation.require("" not in names, "rewards", names, "named columns; give the one without a name a name")
    validation.require(len(names) >= 2, "rewards", names, "at least two columns, one per arm")
    clock, unit = (None, "rows") if time is None else times(time, columns[time], mark)
    values = np.empty((len(columns[names[0]]), len(names)))
    for n, name in enumerate(names):
        values[:, n] = _rewards_of(name, columns, mark)
    if time_column == "auto" and asked is None:
        _refuse_counters(names, values, time is None)
    said = f"times: {unit}" if time is None else f"times: {'the index' if time == '' else repr(time)}, {unit}"
    try:
        return RewardTable(
            torch.from_numpy(values),
            None if clock is None else torch.from_numpy(clock),
            tuple(names),
            (said,),
        )
    except ValueError as error:
        if "times must increase" in str(error):
            raise ValueError(
                f"{error} (long=True if a row is one reward; time_column= names another)"
            ) from None
        raise


def _rewards_of(name: str, columns: Columns, mark: str) -> np.ndarray:
    try:
        return numbers(name, columns[name], mark)
    except ValueError as error:
        text = all(isinstance(cell, str) and not cell[:1].isdigit() for cell in list(columns[name])[:20])
        hint = " (long=True if it names the arm of each row)" if text and len(columns) <= 4 else ""
        raise ValueError(f"{error}{hint}") from None


def _find_time(columns: Columns, asked: str | None, mark: str) -> str | None:
    """The name of the time column, "" for an index without a name; ValueError where two could be it."""
    if asked != "auto":
        validation.require(
            asked is None or asked in columns,
            "time_column",
            asked,
            f"one of the columns {', '.join(columns)}",
        )
        return asked
    called = [name for name in columns if name.strip().lower() in _TIME_NAMES]
    dated = [name for name in columns if name not in called and are_times(columns[name])]
    found = called or dated
    if len(found) > 1:
        raise ValueError(
            f"time_column must be given, as {', '.join(map(repr, found))} may each hold the times"
        )
    first = next(iter(columns))
    if found and first == "" and found != [""]:
        del columns[""]  # an index beside the times
    elif not found and first == "":
        if not _increases(columns[""], mark):
            raise ValueError(
                "time_column must be given: the first column has no name and does not count; "
                "time_column=None leaves it out"
            )
        return ""
    return found[0] if found else None


def _increases(cells: Any, mark: str) -> bool:
    try:
        values, _ = times("", cells, mark)
    except ValueError:
        return False
    return bool((np.diff(values) > 0).all())


def _refuse_counters(names: list[str], values: np.ndarray, timeless: bool) -> None:
    """Refuse an arm that counts the rows, or that could be times nobody named: such an arm wins every pull."""
    if len(values) < _FEW:
        return
    for n in np.flatnonzero((np.diff(values[:50], axis=0) >= 0).all(axis=0)):
        name, column, step = names[n], values[:, n], np.diff(values[:, n])
        if not (step >= 0).all():
            continue
        whole = bool((column == np.round(column)).all())
        rises = whole and int((step > 0).sum()) >= _RISES
        even = step[0] > 0 and bool(np.allclose(step, step[0], rtol=1e-6, atol=0))
        if (even and whole and step[0] == 1) or (timeless and (even or rises)):
            raise ValueError(
                f"time_column must be given: column {name!r} counts or only grows from row to row, so that it may be "
                f"the times: time_column={name!r} if so (and long=True if a row is one reward); rewards= with the "
                "arms' names, or time_column=None, if it is an arm"
            )


def _long(
    columns: Columns,
    long: bool | str,
    time_column: str | None,
    rewards: Sequence[str] | str | None,
    mark: str,
) -> RewardTable:
    """A table from rows of (time, arm, reward); arms in order of their first row."""
    validation.instance("long", long, (bool, str), "True, False or 'ARM,REWARD'")
    columns = {name: cells for name, cells in columns.items() if name != "" or time_column == ""}
    time = _find_time(columns, time_column, mark)
    validation.require(
        time is not None, "time_column", time_column, "the name of a column of times, for long=True"
    )
    assert time is not None
    arm, reward = _long_names([name for name in columns if name != time], columns, long)
    clock, unit = times(time, columns[time], mark)
    cells = pd.Series(list(columns[arm]))
    if bool(cells.map(is_missing).any()):
        row = int(cells.map(is_missing).to_numpy().argmax())
        raise ValueError(f"row {row + 1}, column {arm!r} must name an arm, got an empty cell")
    frame = pd.DataFrame(
        {"time": clock, "arm": cells.astype(str), "reward": numbers(reward, columns[reward], mark)}
    )
    twice = frame.duplicated(["time", "arm"])
    if bool(twice.any()):
        row = int(twice.to_numpy().argmax())
        raise ValueError(
            f"row {row + 1} must be the only reward of its arm and time, got {arm} {frame['arm'][row]!r}"
        )
    wide = frame.pivot(index="time", columns="arm", values="reward").sort_index()
    asked = rewards.split(",") if isinstance(rewards, str) else rewards
    names = list(dict.fromkeys(frame["arm"])) if asked is None else list(asked)
    for name in names:
        validation.require(name in wide.columns, "rewards", name, f"among the arms {', '.join(wide.columns)}")
    notes = (f"times: {time!r}, {unit}", f"long: {len(frame)} rows of {arm!r} and {reward!r}")
    values = torch.tensor(wide[names].to_numpy(dtype=np.float64, copy=True))
    return RewardTable(values, torch.tensor(wide.index.to_numpy(dtype=np.float64)), tuple(names), notes)


def _long_names(names: list[str], columns: Columns, long: bool | str) -> tuple[str, str]:
    if isinstance(long, str):
        named = [name.strip() for name in long.split(",")]
        ok = len(named) == 2 and all(name in names for name in named)
        validation.require(ok, "long", long, f"'ARM,REWARD', two of the columns {', '.join(names)}")
        return named[0], named[1]
    arms = [name for name in names if name.strip().lower() in _ARM_NAMES]
    given = [name for name in names if name.strip().lower() in _REWARD_NAMES]
    if len(names) == 2 and len(given) == 1 and not arms:
        arms = [name for name in names if name not in given]
    if len(names) == 2 and len(arms) == 1 and not given:
        given = [name for name in names if name not in arms]
    if len(arms) != 1 or len(given) != 1:
        raise ValueError(f"long must be 'ARM,REWARD', two of the columns {', '.join(names)}, got {long!r}")
    return arms[0], given[0]


def _read_npz(file: Path, time: str | None) -> tuple[Columns, str | None]:
    stored = array_names(file)
    found = ", ".join(stored)
    if time == "auto":
        called = [name for name in stored if name.strip().lower() in _TIME_NAMES]
        if len(called) > 1:
            raise ValueError(
                f"time_column must be given, as {', '.join(map(repr, called))} may each hold the times"
            )
        time = called[0] if called else None
    arrays = read_arrays("path", file, {"rewards", "arms", time})
    validation.require(
        "rewards" in arrays, "path", str(file), f"an NPZ with an array 'rewards' (has {found})"
    )
    validation.require(time is None or time in arrays, "time_column", time, f"one of the arrays {found}")
    table = arrays["rewards"]
    validation.require(
        table.ndim == 2 and len(table) >= 1, "rewards", table.shape, "an array T x N with rows"
    )
    ok = time is None or arrays[time].shape == table.shape[:1]
    validation.require(ok, "time_column", time, f"an array of {len(table)} times")
    names = [str(name) for name in arrays.get("arms", np.arange(table.shape[1]))]
    validation.require(len(names) == table.shape[1], "arms", names, f"an array of {table.shape[1]} names")
    _check_unique(names)
    columns: Columns = {name: table[:, n] for n, name in enumerate(names)}
    return (columns if time is None else {time: arrays[time], **columns}), time


def _check_times(times: Tensor, rows: int) -> None:
    validation.shape_is("times", times, times.shape == (rows,), f"({rows},), one time per row")
    validation.finite_tensor("times", times)
    late = times.diff() <= 0
    if bool(late.any()):
        row = int(late.nonzero()[0])
        raise ValueError(
            f"times must increase from row to row, got {times[row].item()} in row {row + 1} "
            f"and {times[row + 1].item()} in row {row + 2}"
        )


def _check_unique(names: Sequence[str]) -> None:
    known, twice = set(), set()
    for name in names:
        (twice if name in known else known).add(name)
    validation.require(not twice, "arm names", sorted(twice), "all different")
