"""Tables of real rewards: rows are times, columns are arms."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation

Column = Sequence[Any] | np.ndarray
Arrays = dict[str, np.ndarray]

_MISSING_TEXT = {"", "na", "nan"}  # in lower case, blanks stripped


_TIME_NAMES = ("time", "times", "t", "date", "datetime", "timestamp")


@dataclass(frozen=True)
class RewardTable:
    """Rewards of every arm at every time.

    Attributes:
        rewards: (T, N) float64, T >= 1, N >= 2; NaN where a reward is missing.
        times: (T,) float64, strictly increasing, or None: one row per unit of time.
        arm_names: N different names; default "0", "1", ...

    Raises:
        ValueError: for anything else.
    """

    rewards: Tensor
    times: Tensor | None = None
    arm_names: tuple[str, ...] = ()

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
        return RewardTable(torch.from_numpy(filled.copy()), self.times, self.arm_names)


def read_table(
    path: str | Path,
    rewards: Sequence[str] | str | None = None,
    time: str | None = "auto",
    *,
    missing: str = "mask",
) -> RewardTable:
    """Read a table of rewards from CSV, Parquet (needs pyarrow) or NPZ, by the file's suffix.

    Args:
        path: the file. CSV and Parquet: one column per arm, named by the header. NPZ (read without pickle):
            an array ``rewards`` (T x N), and if there is one an array ``arms`` of N names.
        rewards: names of the arms to take, in this order (a sequence, or one string with commas); None: all
            columns but the time's.
        time: name of the column (of the array, in NPZ) of times: numbers, or ISO 8601 timestamps, which
            become seconds since 1970 (UTC unless they name another zone). ``"auto"``: the first column, or an
            array, if it is named time, times, t, date, datetime or timestamp in any case. None, or no such
            column: one row per unit of time.
        missing: what becomes of empty cells (also NaN and NA): ``"mask"``: they stay missing;
            ``"forward-fill"``: the arm's last reward, where it has one.

    Raises:
        ValueError: no such file, unknown suffix, unreadable file, no rows, fewer than two arms, two arms of
            one name, unknown column, a cell that is no number (row and column are named, rows counted from
            1 after the header), infinite values, time that is missing, repeats or goes back.
    """
    validation.require(missing in ("mask", "forward-fill"), "missing", missing, "'mask' or 'forward-fill'")
    validation.instance("path", path, (str, Path), "the path of a file")
    file = Path(path)
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    validation.require(
        file.suffix.lower() in readers, "path", str(path), f"a file ending in {', '.join(readers)}"
    )
    validation.require(file.is_file(), "path", str(path), "an existing file")
    try:
        columns, time = readers[file.suffix.lower()](file, time)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"path must be a readable {file.suffix} file, got {str(path)!r}: {error}") from error
    _check_unique(list(columns))
    validation.require(
        time is None or time in columns, "time", time, f"one of the columns {', '.join(columns)}"
    )
    asked = rewards.split(",") if isinstance(rewards, str) else rewards
    names = [name for name in columns if name != time] if asked is None else list(asked)
    for name in names:
        validation.require(name in columns, "rewards", name, f"among the columns {', '.join(columns)}")
    validation.require(len(names) >= 2, "rewards", names, "at least two columns, one per arm")
    times = None if time is None else torch.tensor(_times(time, columns[time]))
    values = np.stack([_numbers(name, columns[name]) for name in names], axis=-1)
    table = RewardTable(torch.from_numpy(values), times, tuple(names))
    return table if missing == "mask" else table.forward_filled()


def read_arrays(argument: str, path: Path) -> Arrays:
    """All arrays of an NPZ file, read without pickle; ``argument`` is what an error calls the path."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, EOFError, AttributeError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{argument} must be a readable NPZ file, got {str(path)!r}: {error}") from error


def _read_csv(file: Path, time: str | None) -> tuple[dict[str, Column], str | None]:
    with file.open(newline="", encoding="utf-8-sig") as opened:
        lines = [line for line in csv.reader(opened) if line]
    header, rows = (lines[0] if lines else []), lines[1:]
    _check_unique(header)
    validation.require(len(rows) >= 1, "path", str(file), "a table with a header and at least one row")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise ValueError(f"row {number} must have {len(header)} cells, as the header has, got {len(row)}")
    columns: dict[str, Column] = {name: [row[column] for row in rows] for column, name in enumerate(header)}
    return columns, _time_among(header[:1], time)


def _read_parquet(file: Path, time: str | None) -> tuple[dict[str, Column], str | None]:
    try:
        frame = pd.read_parquet(file)
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: install bandits_torch[parquet]") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"path must be a readable .parquet file, got {str(file)!r}: {error}") from error
    if any(name is not None for name in frame.index.names):  # a frame saved with its times as index
        frame = frame.reset_index()
    validation.require(len(frame) >= 1, "path", str(file), "a table of at least one row")
    columns: dict[str, Column] = {str(name): frame[name].to_numpy() for name in frame.columns}
    return columns, _time_among(list(columns)[:1], time)


def _read_npz(file: Path, time: str | None) -> tuple[dict[str, Column], str | None]:
    arrays = read_arrays("path", file)
    found, time = ", ".join(arrays), _time_among(list(arrays), time)
    validation.require(
        "rewards" in arrays, "path", str(file), f"an NPZ with an array 'rewards' (has {found})"
    )
    validation.require(time is None or time in arrays, "time", time, f"one of the arrays {found}")
    table = arrays["rewards"]
    validation.require(
        table.ndim == 2 and len(table) >= 1, "rewards", table.shape, "an array T x N with rows"
    )
    names = [str(name) for name in arrays.get("arms", np.arange(table.shape[1]))]
    validation.require(len(names) == table.shape[1], "arms", names, f"an array of {table.shape[1]} names")
    _check_unique(names)
    columns: dict[str, Column] = {name: table[:, n] for n, name in enumerate(names)}
    return (columns if time is None else {time: arrays[time], **columns}), time


def _time_among(candidates: Sequence[str], time: str | None) -> str | None:
    """The name of the time column: as given, or for "auto" the candidate that is called like one."""
    if time != "auto":
        return time
    return next((name for name in candidates if name.strip().lower() in _TIME_NAMES), None)


def _numbers(name: str, cells: Column) -> np.ndarray:
    """A column as float64, NaN where a cell is missing."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiu":
        return cells.astype(np.float64)
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if _is_missing(cell):
            continue
        try:
            numbers[row] = float(cell)
        except (TypeError, ValueError):
            raise ValueError(
                f"row {row + 1}, column {name!r} must be a number or empty, got {cell!r}"
            ) from None
    return numbers


def _times(name: str, cells: Column) -> np.ndarray:
    """The time column in its own unit, or in seconds since 1970 for timestamps."""
    array = np.asarray(cells)
    for row, cell in enumerate(cells):
        if _is_missing(cell):
            raise ValueError(f"row {row + 1}, column {name!r} must hold a time, got an empty cell")
    if array.dtype.kind not in "M":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            pass
    stamps = pd.to_datetime(pd.Series(list(cells)), errors="coerce", utc=True, format="ISO8601")
    if stamps.isna().any():
        row = int(stamps.isna().to_numpy().argmax())
        raise ValueError(
            f"row {row + 1}, column {name!r} must be a number or an ISO 8601 timestamp, got {cells[row]!r}"
        )
    return (stamps - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)


def _is_missing(cell: Any) -> bool:
    return cell.strip().lower() in _MISSING_TEXT if isinstance(cell, str) else bool(pd.isna(cell))


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
    twice = sorted({name for name in names if list(names).count(name) > 1})
    validation.require(not twice, "arm names", twice, "all different")
