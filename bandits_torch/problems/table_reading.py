"""A table of rewards from a file: CSV, Parquet or NPZ, wide or long."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bandits_torch import validation
from bandits_torch.naming import some, unknown_name
from bandits_torch.problems.table_calendar import calendar_columns
from bandits_torch.problems.table_cells import decimal_mark, first_text, numbers, times
from bandits_torch.problems.table_csv import PACKED, TEXT, Form, read_csv
from bandits_torch.problems.table_files import Columns, array_names, names_given, read_arrays, read_parquet
from bandits_torch.problems.table_long import long_table, may_name_arms
from bandits_torch.problems.table_missing import Missing, refuse_log, suspects
from bandits_torch.problems.table_times import called_like_time, find_time, refuse_counters, why_not_rising
from bandits_torch.problems.tables import RewardTable

_LOGGED = {"arm", "action", "variant", "choice"}  # with "reward", columns of a log of pulls


def read_table(
    path: str | Path,
    rewards: Sequence[str] | str | None = None,
    time_column: str | None = "auto",
    *,
    ignore: Sequence[str] | str | None = None,
    long: bool | str = False,
    missing: str | float | Sequence[str | float] = "mask",
    header: bool | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> RewardTable:
    """Read a table of rewards from CSV, Parquet (needs pyarrow) or NPZ, by the file's suffix.

    An ambiguous file raises a ValueError that names the argument which resolves the ambiguity.

    Args:
        path: the file. CSV and Parquet: one column per arm, named by the header. NPZ (read without pickle):
            an array ``rewards`` (T x N) and, optionally, an array ``arms`` of N names; other arrays are ignored.
        rewards: names of the arms to take, in this order (a sequence, or one string with commas); None: all
            columns but the time's.
        time_column: name of the column (of the array, in NPZ) of times: numbers, or dates (ISO 8601, or digits
            alone such as 20240131), which become seconds since 1970 (UTC unless they name another zone).
            ``"auto"``: the one called time, times, t, date, datetime, timestamp, when, ts or epoch in any case, or
            the one that holds dates, or a first column without a name (an index saved with the table). None: no
            column of times; a first column without a name is ignored.
        ignore: names of columns to leave out, comments say (a sequence, or one string with commas).
        long: True: one row per reward, with columns of time, arm and reward. ``"ARM,REWARD"`` names the latter
            two.
        missing: treatment of empty cells (also NaN, NA, N/A, null, none, - and ?): ``"mask"``: missing here and
            there; ``"unavailable"``: the arm could not be pulled then, however many they are; ``"forward-fill"``: the
            arm's last reward, where it has one. And what else stands for nothing: a number (-9999), a word, or several
            of them, in a sequence or one string with commas (``"forward-fill,-9999,n.a."``).
            With ``"mask"`` a table of ten times or more is taken for a log of pulls, and refused, if at more than half
            of the times that have a reward fewer than half of the arms have one, or only one does.
        header: whether a CSV's first row holds names; None: yes, unless it could be numbers.
        separator: between the cells of a CSV; None: comma, semicolon, tab or bar, whichever splits all lines alike.
        decimal: "." or ","; None: inferred from the numbers.
        encoding: of a CSV; None: UTF-8, or UTF-16 with its mark.

    Raises:
        ValueError: no such file, unknown suffix, unreadable file, no rows, fewer than two arms, two arms of
            one name, unknown column, a cell that is not a number (row and column are named, rows counted from
            1 after the header; columns of text all at once), infinite values, time that is missing, repeats or goes
            back, an arm that counts the rows, a log of pulls, a file that can be read in two ways.
    """
    empty = Missing.of(missing)
    validation.require(decimal in (None, ".", ","), "decimal", decimal, "'.', ',' or None")
    validation.instance("long", long, (bool, str), "True, False or 'ARM,REWARD'")
    validation.require(header in (None, True, False), "header", header, "True, False or None")
    ok = separator is None or (isinstance(separator, str) and len(separator) == 1)
    validation.require(ok, "separator", separator, "one character or None")
    validation.instance("path", path, (str, Path), "the path of a file")
    file = Path(path)
    suffix = file.suffix.lower()
    kinds = (*TEXT, ".parquet", ".npz")
    packed = " (unpack it, or save it as CSV)" if suffix in PACKED else ""
    validation.require(suffix in kinds, "path", str(path), f"a file ending in {', '.join(kinds)}{packed}")
    validation.require(file.is_file(), "path", str(path), "an existing file")
    asked, ignored = names_given("rewards", rewards), names_given("ignore", ignore) or []
    both = [name for name in ignored if name in (asked or [])]
    validation.require(not both, "ignore", both, "other columns than rewards")
    mark = decimal
    if suffix == ".npz":
        columns, time_column = _read_npz(file, time_column)
        columns = _without(ignored, columns)
    elif suffix == ".parquet":
        columns = _without(ignored, read_parquet(file))
    else:
        read, form = _csv(file, Form(separator, header, encoding, decimal))
        columns = _without(ignored, read)
        mark = decimal or _decimal(columns, form.separator != ",")
        if mark == "," and any(np.asarray(cells).dtype.kind == "f" for cells in columns.values()):
            read, _ = _csv(file, replace(form, decimal=","))  # 1.5 was read where 1,5 stands elsewhere
            columns = _without(ignored, read)
            mark = decimal or _decimal(columns, form.separator != ",")
    columns = empty.in_text(columns)
    mark = mark or _decimal(columns, False)
    table = (
        long_table(columns, time_column, asked, mark, long, empty)
        if long
        else _wide(columns, time_column, asked, mark, empty)
    )
    if empty.treatment == "mask":
        refuse_log(table.rewards.numpy())
    if ignored:
        table = replace(table, notes=(*table.notes, f"left out: {', '.join(ignored)}"))
    return table.forward_filled() if empty.treatment == "forward-fill" else table


def _without(ignored: Sequence[str], columns: Columns) -> Columns:
    """The other columns; ValueError for a name of none."""
    for name in ignored:
        if name not in columns:
            raise ValueError(unknown_name("ignore", name, list(columns)))
    return {name: cells for name, cells in columns.items() if name not in ignored}


def _csv(file: Path, asked: Form) -> tuple[Columns, Form]:
    """Columns, and the form they were found in."""
    try:
        columns, form = read_csv(file, asked)
    except UnicodeError as error:
        raise ValueError(
            f"path must be a readable .csv file, got {str(file)!r}: {error}; encoding= tells another than UTF-8"
        ) from error
    except LookupError as error:
        raise ValueError(
            f"encoding must be one that Python knows, got {asked.encoding!r}: {error}"
        ) from error
    except (OSError, csv.Error) as error:
        raise ValueError(f"path must be a readable .csv file, got {str(file)!r}: {error}") from error
    broken = [name for name in columns if "\n" in name or "\r" in name]
    validation.require(not broken, "names of columns", broken, "on one line each")
    if asked.header is None and set(columns) == {"0", "1"}:
        cells = {str(cell).strip() for column in columns.values() for cell in column}
        binary = cells <= {"0", "1", "0.0", "1.0"}
        validation.require(
            not binary, "header", None, "True or False: the first row 0, 1 may hold names or rewards"
        )
    return columns, form


def _decimal(columns: Columns, points_may_group: bool) -> str:
    text = [cells for cells in columns.values() if np.asarray(cells).dtype.kind in "OU"]
    mark = decimal_mark(text, points_may_group)
    if mark is None:
        raise ValueError(
            "decimal must be '.' or ',', got None: the table's numbers can be read either way, as 1.234 may be 1234"
        )
    return mark


def _wide(
    columns: Columns,
    time_column: str | None,
    asked: list[str] | None,
    mark: str,
    missing: Missing,
) -> RewardTable:
    said_so = {name.strip().lower() for name in columns}
    if asked is None and "reward" in said_so and said_so & _LOGGED:
        raise ValueError(
            f"long must be given, as the columns {some(columns)} look like one row per reward: long=True if so, "
            "rewards= with the arms' names if not"
        )
    indexed = "" in columns
    time = find_time(columns, time_column, mark)
    unnamed = {""} if time_column is None else set()
    names = [name for name in columns if name != time and name not in unnamed] if asked is None else asked
    for name in names:
        if name not in columns:
            raise ValueError(unknown_name("rewards", name, [one for one in columns if one != time]))
    validation.require("" not in names, "rewards", names, "named columns; give the one without a name a name")
    validation.require(
        len(names) >= 2,
        "rewards",
        names,
        "at least two columns, one per arm (separator= tells what separates)",
    )
    clock, unit = (None, "rows") if time is None else times(time, columns[time], mark)
    values = missing.in_numbers(_rewards(names, columns, mark))
    dated = clock is not None and unit.startswith("seconds")
    if asked is None and time_column is not None:
        refuse_counters(names, values, time, asked_for=time_column != "auto")
        _refuse_calendar(names, values, clock if dated else None)
    notes = [
        f"times: {unit}" if time is None else f"times: {'the index' if time == '' else repr(time)}, {unit}"
    ]
    if indexed and time != "":
        notes.append("left out: the first column, which has no name")
    notes += suspects(names, values)
    try:
        return RewardTable(
            torch.from_numpy(values),
            None if clock is None else torch.from_numpy(clock),
            tuple(names),
            tuple(notes),
            dated,
        )
    except ValueError as error:
        if "times must increase" in str(error) and clock is not None:
            raise ValueError(f"{error} ({why_not_rising(clock, names)})") from None
        raise


def _refuse_calendar(names: list[str], values: np.ndarray, seconds: np.ndarray | None) -> None:
    found = calendar_columns(names, values, seconds)
    if found:
        raise ValueError(
            f"rewards must be given, as {', '.join(map(repr, found))} may tell the time rather than be an arm: "
            f"ignore={','.join(found)} leaves it out, rewards= with the arms' names names it too"
        )


def _rewards(names: list[str], columns: Columns, mark: str) -> np.ndarray:
    """The columns of these names as numbers; ValueError for what is none, one for all columns of text."""
    values, refused = np.empty((len(columns[names[0]]), len(names))), {}
    for n, name in enumerate(names):
        try:
            values[:, n] = numbers(name, columns[name], mark)
        except ValueError as error:
            refused[name] = error
    if not refused:
        return values
    texts = {name: found for name in refused if (found := first_text(columns[name], mark)) is not None}
    name = next(iter(refused))
    if name not in texts:
        raise refused[name]
    row, cell = texts[name]
    leaves = f"ignore={','.join(texts)} leaves out {'the columns' if len(texts) > 1 else 'a column'} of text"
    arms = [text for text in texts if may_name_arms(text, columns)]
    long = (
        f"long=True if {'it' if len(texts) == 1 else repr(arms[0])} names the arm of each row; "
        if arms
        else ""
    )
    raise ValueError(
        f"row {row + 1}, column {name!r} must be a number or empty, got {cell!r} ({leaves}; {long}rewards= names the "
        "columns that are arms)"
    )


def _read_npz(file: Path, time: str | None) -> tuple[Columns, str | None]:
    stored = array_names(file)
    found = ", ".join(stored)
    if time == "auto":
        called = called_like_time(stored)
        if len(called) > 1:
            raise ValueError(
                f"time_column must be given, as {', '.join(map(repr, called))} may each hold the times"
            )
        time = called[0] if called else None
    arrays = read_arrays("path", file, {"rewards", "arms", time or ""})
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
    validation.require(
        table.dtype.kind in "fiu", "rewards", table.dtype.name, "an array of real numbers (bool: as 0 and 1)"
    )
    names = _names(arrays.get("arms", np.arange(table.shape[1])))
    validation.require(len(names) == table.shape[1], "arms", names, f"an array of {table.shape[1]} names")
    validation.require(len(set(names)) == len(names), "arm names", names, "all different")
    columns: Columns = {name: table[:, n] for n, name in enumerate(names)}
    return (columns if time is None else {time: arrays[time], **columns}), time


def _names(stored: np.ndarray) -> list[str]:
    """Names of arms; those stored as bytes are UTF-8."""
    validation.require(stored.ndim == 1, "arms", stored.shape, "an array of names")
    if stored.dtype.kind != "S":
        return [str(name) for name in stored.tolist()]
    try:
        return [name.decode() for name in stored.tolist()]
    except UnicodeDecodeError as error:
        raise ValueError(f"arms must be text, or bytes in UTF-8: {error}") from error
