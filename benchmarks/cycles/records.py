"""Records with days: an earlier part that settings are chosen on, a later one that is reported."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bandits_torch import problems
from bandits_torch.problems.replay import Replay
from benchmarks.leaderboard.environments import Record

_HOUR = 3_600
_HISTORY = 90 * 24  # hours that the kernel over arms is learned from


@dataclass(frozen=True)
class Part:
    """Rows that are played: from when, how many runs one after the other, how many steps each.

    Attributes:
        first: day of the first row.
        rows: how many rows there are to play (days on the Intel records).
        starts: n, evenly spread over them.
        horizon: steps of a run; runs overlap where n horizons are more than the rows.
    """

    first: str
    rows: int
    starts: int
    horizon: int


# Hourly rows without a gap: runs of three weeks that do not overlap. Ten-minute rows: between the outage of 10 and
# 11 March and the end there are ten days, so runs of three days overlap.
_BEIJING = {"development": Part("2013-06-01", 12_000, 20, 500), "report": Part("2015-03-01", 17_000, 34, 500)}
_INTEL = {"development": Part("2004-03-05", 5, 5, 432), "report": Part("2004-03-12", 10, 10, 432)}
RECORDS = {
    "beijing-pm25": _BEIJING,
    "beijing-o3": _BEIJING,
    "intel-temperature": _INTEL,
    "intel-humidity": _INTEL,
    "intel-light": _INTEL,
}


def steps_of_a_day(record: str) -> int:
    """Rows in 24 hours."""
    return 24 if record.startswith("beijing") else 144


@cache
def _replay(record: str, part: str, data: Path) -> Replay:
    played = RECORDS[record][part]
    if record.startswith("intel"):
        replay = problems.make(record, data=str(data), day=played.first, days=played.rows)
        assert isinstance(replay, Replay)
        return replay
    name = record.removeprefix("beijing-")
    with np.load(data / "beijing_air.npz", allow_pickle=False) as arrays:
        values, seen, time = (arrays[key] for key in (name, f"{name}_observed", "time"))
    start = int(np.datetime64(played.first, "s").astype(np.int64))
    past = (time >= start - _HISTORY * _HOUR) & (time < start)
    rows = np.flatnonzero(time >= start)[: played.rows]
    return Replay(_tensor(values[rows]), history=_tensor(np.where(seen, values, np.nan)[past]))


def problem(record: str, part: str, data: Path) -> Record:
    """The runs of a part as replicates of one problem: see ``Record``."""
    played = RECORDS[record][part]
    return Record(_replay(record, part, data), played.horizon, played.starts, 0, played.starts)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float64))
