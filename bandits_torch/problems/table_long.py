"""Tables with a row for every reward: time, arm, reward."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import torch

from bandits_torch import validation
from bandits_torch.naming import some, unknown_name
from bandits_torch.problems.table_cells import is_missing, numbers, times
from bandits_torch.problems.table_files import Columns
from bandits_torch.problems.table_missing import Missing, suspects
from bandits_torch.problems.table_times import find_time
from bandits_torch.problems.tables import RewardTable

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
_FEW_COLUMNS = 4  # more do not fit a row per reward
_SAMPLE = 1000  # rows
_REWARD_NAMES = {"reward", "rewards", "value", "y"}


def long_table(
    columns: Columns,
    time_column: str | None,
    asked: list[str] | None,
    mark: str,
    long: bool | str,
    missing: Missing,
) -> RewardTable:
    """A table from rows of (time, arm, reward); arms in order of their first row."""
    columns = {name: cells for name, cells in columns.items() if name != "" or time_column == ""}
    time = find_time(columns, time_column, mark)
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
    read = missing.in_numbers(numbers(reward, columns[reward], mark))
    frame = pd.DataFrame({"time": clock, "arm": cells.astype(str), "reward": read})
    twice = frame.duplicated(["time", "arm"])
    if bool(twice.any()):
        row = int(twice.to_numpy().argmax())
        raise ValueError(
            f"row {row + 1} must be the only reward of its arm and time, got {arm} {frame['arm'][row]!r}"
        )
    wide = frame.pivot(index="time", columns="arm", values="reward").sort_index()
    names = list(dict.fromkeys(frame["arm"])) if asked is None else asked
    for name in names:
        if name not in wide.columns:
            raise ValueError(unknown_name("rewards", name, list(wide.columns)))
    values = wide[names].to_numpy(dtype=np.float64, copy=True)
    notes = [f"times: {time!r}, {unit}", f"long: {len(frame)} rows of {arm!r} and {reward!r}"]
    others = [name for name in columns if name not in (time, arm, reward)]
    notes += [f"left out: {some(others)}"] if others else []
    notes += suspects(names, values)
    moments = torch.tensor(wide.index.to_numpy(dtype=np.float64))
    return RewardTable(torch.tensor(values), moments, tuple(names), tuple(notes), unit.startswith("seconds"))


def may_name_arms(name: str, columns: Columns) -> bool:
    """Whether a column is text that recurs, in a table of few columns: it may name the arm of each row."""
    valued = any(one.strip().lower().lstrip("_") in _REWARD_NAMES for one in columns)
    if (len(columns) > _FEW_COLUMNS and not valued) or np.asarray(columns[name]).dtype.kind not in "OU":
        return False
    cells = [cell for cell in list(columns[name])[:_SAMPLE] if not is_missing(cell)]
    words = all(isinstance(cell, str) and re.match(r"[^\W\d_]", cell.strip()) for cell in cells)
    words = words and not any(cell.strip().lower() in ("true", "false", "yes", "no") for cell in cells)
    return words and 1 < len(set(cells)) < len(cells)


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
