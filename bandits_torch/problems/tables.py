"""Tables of real rewards (a row per time, a column per arm), and their reader.

The reader refuses tables that look like something else: columns that are fields of a date, row counters or names, logs
of pulls, trials of settings. It notes numbers that may mark missing rewards.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.naming import counted, some
from bandits_torch.problems.table_files import (
    LATEST_YEAR,
    MISSING,
    Times,
    empty_row,
    find_time,
    is_missing,
    is_numeric,
    known_columns,
    number,
    numbers,
    read_frame,
    read_times,
    words,
)

_CALENDAR = {
    *("second", "minute", "hour", "day", "weekday", "weekend", "week", "month", "quarter", "year"),
    *("dayofmonth", "dayofweek", "dow", "dayofyear", "doy", "weekofyear", "holiday"),
    *("stunde", "wochentag", "monat", "jahr"),
}
LOGGED = {"arm", "action", "variant", "choice"}  # names of the column of arms in a log of pulls
_NAMING = LOGGED | {"id", "item"}
_NUMBERED = re.compile(r"[xX]_?\d+")  # a setting, whose reward is y
_FEWEST_COUNTED = 3  # rows needed to distinguish a counter from rewards
_STRICT_ROWS = 10  # rows in which an arm that always grows, or always falls, is a counter or a clock
_FEWEST_DATED = 4  # rows; in fewer a column equals a field of the date by chance
_BINARY_ROWS = 10  # the same for a field of two values, such as a weekend
_FAR = 10.0  # distance, in ranges of a column's other rewards, of a number that may mark missing ones
_USUAL = [-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 999999.0]
_USUAL += [-32768.0, 32767.0, -1e30, 1e30, -1e20, 1e20, -1e10, 1e10, -(2.0**31), 2.0**31 - 1]
_SAMPLE = 1000  # rows
_FEWEST_TIMES = 10  # times with a reward that a log needs to be recognised
_FEWEST = 3  # different rewards that a range needs


def refuse_calendar(names: list[str], values: np.ndarray, dates: np.ndarray | None) -> None:
    """Refuse columns that equal a field of the dates, or that are named like one and hold integers from 0 to 366 (a
    year: to 2100).

    ``dates``: the times in seconds since 1970 if they are dates, else None.
    """
    found = []
    for name, column in zip(names, values.T, strict=True):
        plain = re.sub(r"[ _-]", "", name.strip().lower())
        held = column[~np.isnan(column)]
        if plain.removeprefix("is") in _CALENDAR and len(held):
            most = LATEST_YEAR if plain in ("year", "jahr") else 366
            found += [name] if held.min() >= 0 and held.max() <= most and _whole(held) else []
    if dates is not None and len(values) >= _FEWEST_DATED:
        for field in _fields(dates):
            kinds = len(np.unique(field))
            if kinds > 2 or (kinds == 2 and len(values) >= _BINARY_ROWS):
                found += [names[n] for n in np.flatnonzero((values == field[:, None]).all(axis=0))]
    if found:
        found = list(dict.fromkeys(found))
        raise ValueError(
            f"rewards must be given: {', '.join(map(repr, found))} may be a field of the date instead of an arm; "
            f"ignore={','.join(found)} leaves it out; if it is an arm, rewards= names it with the others"
        )


def refuse_names_of_arms(names: list[str], values: np.ndarray) -> None:
    """Refuse columns of integers that are called arm or id, unless all are: they name arms or users."""
    found = [
        name
        for name, column in zip(names, values.T, strict=True)
        if re.split(r"[\W_]|(?<=[a-z])(?=[A-Z])", name.strip())[-1].lower() in _NAMING
        and _whole(column[~np.isnan(column)])
    ]
    if 0 < len(found) < len(names):
        raise ValueError(
            f"rewards must be given: {', '.join(map(repr, found))} may be a name or number of something instead of an "
            f"arm; ignore={','.join(found)} leaves it out; in a log of pulls, arm={found[0]} of `look` and `value` "
            "names the column of the arm pulled; if it is an arm, rewards= names it with the others"
        )


def refuse_settings(names: list[str]) -> None:
    """Refuse a table with one column called reward (or y, beside x1, x2, ...): trials of settings."""
    found = [name for name in names if name.strip().lower() in ("reward", "rewards")]
    found += [
        name for name in names if name == "y" and all(_NUMBERED.fullmatch(one) for one in {*names} - {name})
    ]
    if len(found) == 1 < len(names):
        raise ValueError(
            f"rewards must be given: {found[0]!r} beside {some([name for name in names if name != found[0]], 3)} "
            "looks like a row for each trial, with its settings and its reward, but a table of arms has a column with "
            "the rewards of each arm. `AskTell.auto` plays settings from their ranges; if all columns are arms, "
            "rewards= names them"
        )


def _whole(numbers: np.ndarray) -> bool:
    return bool((numbers == numbers.round()).all())


def _fields(dates: np.ndarray) -> list[np.ndarray]:
    times = pd.Series(np.floor(dates).astype("datetime64[s]")).dt
    weekday = times.day_of_week
    fields = [
        times.second, times.minute, times.hour, times.day, times.month, times.quarter, times.year, times.day_of_year,
        times.isocalendar().week, weekday, weekday + 1, (weekday + 1) % 7, weekday >= 5, weekday < 5,
        100 * times.year + times.month,
    ]  # fmt: skip
    return [field.to_numpy(dtype=np.float64) for field in fields]


def refuse_counters(names: list[str], values: np.ndarray, time: str | None, asked_for: bool = False) -> None:
    """Refuse an arm that counts the rows, or that could be the times: it would win every pull.

    A counter is a column of integers that grows by 1 in every row, or, in ten rows or more, one that always grows or
    always falls. Without a time column, a column that grows evenly, or of integers that never fall and grow at least
    twice, is also refused.

    ``time``: the column of times, None for none; ``asked_for``: whether the user named it.
    """
    if len(values) < _FEWEST_COUNTED:
        return
    for name, column in zip(names, values.T, strict=True):
        step, whole = np.diff(column), _whole(column)
        strict = len(values) >= _STRICT_ROWS and bool((step > 0).all() or (step < 0).all())
        rises = whole and bool((step >= 0).all()) and int((step > 0).sum()) >= 2
        even = step[0] > 0 and bool(np.allclose(step, step[0], rtol=1e-6, atol=0))
        if strict or (even and whole and step[0] == 1) or (time is None and (even or rises)):
            counts = f"column {name!r} counts, or only grows or falls from row to row"
            if asked_for:
                advice = "rewards= names the columns that are arms"
                raise ValueError(f"rewards must be given: {counts} beside the times {time!r}; {advice}")
            raise ValueError(
                f"time_column must be given: {counts}, so that it may be the times: time_column={name!r} if so; "
                "rewards= with the arms' names, or time_column=None, if it is an arm"
            )


def refuse_log(rewards: np.ndarray) -> None:
    """Refuse a table (T, N) that looks like a log of pulls, in which the rewards of all arms not pulled are missing.

    In such a table, at more than half of the times with a reward, fewer than half of the arms have one, or only one
    does. Tables with fewer than ten such times are not checked. If a log were played as a table, most arms could not
    be pulled, and regret would be measured against the arms pulled; it would be 0 if there is only one.
    """
    seen, arms = (~np.isnan(rewards)).sum(1), rewards.shape[1]
    seen = seen[seen > 0]
    few, alone = int((seen < max(2.0, arms / 2)).sum()), int((seen == 1).sum())
    if len(seen) < _FEWEST_TIMES or 2 * few <= len(seen):
        return
    most_alone = 2 * alone > len(seen)
    said = f"only one of the {arms} arms has" if most_alone else f"fewer than half of the {arms} arms have"
    raise ValueError(
        f"missing must be given, because the table looks like a log of pulls: at {alone if most_alone else few} of "
        f"{len(seen)} times {said} a reward, and what the others would have paid is not known; missing='unavailable' "
        "if an arm without a reward could not be pulled then, missing='forward-fill' if its last reward was still "
        "valid; `bandits-torch value` takes a log"
    )


def suspects(names: Sequence[str], rewards: np.ndarray) -> list[str]:
    """A line for each number that may mark missing rewards, such as -9999.

    Such a number is a column's smallest or largest value. Either it occurs at least twice in the column, and its
    distance from the others exceeds ten times their range; or it is a usual mark (999, -1e30), and its distance exceeds
    their range.
    """
    found: dict[float, list[int]] = defaultdict(list)
    for n, column in enumerate(rewards.T):
        column = column[~np.isnan(column)]
        for end in (column.min(), column.max()) if len(column) else ():
            usual, marks = end in _USUAL, column == end
            others = column[~marks & ((column != -end) | (-end not in _USUAL))]
            if len(np.unique(others[:_SAMPLE])) < _FEWEST:
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                gap, span = max(others.min() - end, end - others.max()), np.ptp(others)
            if gap > max(0.0, span * (1.0 if usual else _FAR)) and (usual or marks.sum() >= 2):
                found[float(end)].append(n)
    lines = []
    for mark, columns in sorted(found.items()):
        times = int((rewards[:, columns] == mark).sum())
        lines.append(
            f"far outside the other rewards: {mark:.10g}, {counted(times, 'time')} in "
            f"{some([names[n] for n in columns], 3)}; missing={mark:.10g} if it stands for a missing reward"
        )
    return lines


_ARM_NAMES = {
    *("arm", "arms", "action", "item", "sensor", "station"),
    *("site", "name", "id", "variable", "series"),
}
REWARD_NAMES = ("reward", "rewards", "value", "y")
PROPENSITY_NAMES = ("propensity", "propensities", "propensity_score", "probability", "prob", "p")
_FEW_COLUMNS = 4  # at most, of a table with a row for each reward, unless a column is called a reward
_TREATMENTS = ("mask", "unavailable", "forward-fill")
_EXPECTED = "'mask', 'unavailable', 'forward-fill', or what missing cells hold: a number, a word, or several"


@validation.names_arguments
@dataclass(frozen=True)
class RewardTable:
    """Rewards of every arm at every time.

    Attributes:
        rewards: (T, N), T >= 1, N >= 2; NaN where missing. Converted to float64 on the CPU.
        times: (T,), strictly increasing, converted likewise; None: one row per unit of time.
        arm_names: N different names; default "0", "1", ...
        notes: remarks of a reader on the file, one line each.
        in_seconds: whether times are in seconds, as those read from dates and durations are.
        dated: whether these seconds count from 1970, as those read from dates do.

    Raises:
        ValueError: for anything else.
    """

    rewards: Tensor
    times: Tensor | None = None
    arm_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    in_seconds: bool = False
    dated: bool = False

    def __post_init__(self) -> None:
        rewards = validation.real("rewards", self.rewards)
        object.__setattr__(self, "rewards", rewards)
        validation.of_shape("rewards", rewards, ("T", "N"))
        validation.require(rewards.shape[0] >= 1, "rewards", tuple(rewards.shape), "of at least one row")
        validation.require(rewards.shape[1] >= 2, "rewards", tuple(rewards.shape), "of at least two arms")
        names = validation.names("arm_names", self.arm_names) or tuple(map(str, range(rewards.shape[1])))
        object.__setattr__(self, "arm_names", names)
        validation.require(len(names) == rewards.shape[1], "arm_names", names, f"{rewards.shape[1]} names")
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        validation.require(not twice, "arm names", twice, "all different")
        most, values = validation.largest_reward(rewards.dtype), rewards.numpy()
        if np.fmax.reduce(values, axis=None) > most or np.fmin.reduce(values, axis=None) < -most:
            infinite = bool(torch.isinf(rewards).any())
            wrong = torch.isinf(rewards) if infinite else rewards.abs() > most
            row, column = wrong.nonzero()[0].tolist()
            expected = "finite" if infinite else f"at most {most:g} in size"
            value = "infinity" if infinite else f"{float(rewards[row, column]):g}"
            where = f"row {row + 1}, column {names[column]!r}"
            raise ValueError(f"rewards must be {expected}, got {value} in {where}")
        if self.times is None:
            return
        times = validation.real("times", self.times)
        object.__setattr__(self, "times", times)
        validation.of_shape("times", times, (len(rewards),), note=", one time per row")
        validation.finite_tensor("times", times)
        late = times.diff() <= 0
        if bool(late.any()):
            row = int(late.nonzero()[0])
            raise ValueError(
                f"times must increase from row to row, got {self.when(row)} in row {row + 1} "
                f"and {self.when(row + 1)} in row {row + 2}"
            )

    def when(self, row: int) -> str:
        """The time of a row, counted from 0, as text: a date (with a time zone, in UTC), a duration, or a number."""
        time = float(row) if self.times is None else self.times[row].item()
        if not self.in_seconds:
            return f"{time:.15g}"
        if not self.dated:
            return f"{'-' if time < 0 else ''}{timedelta(seconds=abs(time))}"
        moment = datetime.fromtimestamp(time, UTC)
        if moment.microsecond:
            return moment.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0")
        return moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")

    def forward_filled(self) -> RewardTable:
        """A copy in which an arm's last reward replaces missing ones; those before its first stay missing."""
        filled = pd.DataFrame(self.rewards.numpy()).ffill().to_numpy()
        return replace(self, rewards=torch.from_numpy(filled.copy()))


@dataclass(frozen=True)
class Missing:
    """The argument ``missing`` of ``read_table``: the treatment, and ``words``, the cells besides empty ones that mark
    a missing reward, with the numbers among them."""

    treatment: str
    words: dict[str, float | None]

    @staticmethod
    def of(asked: Any) -> Missing:
        """Parse the argument. Raises ValueError for anything that it does not allow."""
        given = [one.strip() for one in names_given("missing", asked, _EXPECTED) or []]
        treatments = [one for one in given if one in _TREATMENTS] or [_TREATMENTS[0]]
        ok = bool(given) and "" not in given and len(treatments) == 1
        validation.require(ok, "missing", asked, _EXPECTED)
        return Missing(treatments[0], {one: number(one, ".") for one in given if one not in _TREATMENTS})

    def in_text(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table with None in place of text cells that mark missing rewards or name the treatment. Raises ValueError
        for a word that no cell holds."""
        words = {*self.words} | ({self.treatment} - {_TREATMENTS[0]})
        if not words:
            return frame
        unseen = {word for word, mark in self.words.items() if mark is None and word.lower() not in MISSING}
        frame = frame.copy(deep=False)
        for name in [name for name in frame.columns if not is_numeric(frame[name])]:
            texts = frame[name].map(lambda cell: cell.strip() if isinstance(cell, str) else None)
            unseen -= set(texts)
            frame[name] = frame[name].mask(texts.isin(words), None)
        validation.require(not unseen, "missing", ",".join(sorted(unseen)), f"{_EXPECTED} (no cell holds it)")
        return frame

    def in_numbers(self, rewards: np.ndarray) -> np.ndarray:
        """The rewards with NaN in place of numbers that mark missing ones."""
        marks = [mark for mark in self.words.values() if mark is not None]
        return np.where(np.isin(rewards, marks), np.nan, rewards) if marks else rewards


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
    epoch: str | None = None,
) -> RewardTable:
    """Read a table of rewards from CSV, Parquet (needs pyarrow) or NPZ, by the file's suffix.

    An ambiguous file raises a ValueError that names the argument which resolves the ambiguity.

    Args:
        path: the file. CSV and Parquet: one column per arm, named by the header. NPZ (read without pickle):
            an array ``rewards`` (T x N) and, optionally, an array ``arms`` of N names; other arrays are ignored.
        rewards: names of the arms to take, in this order (a sequence, or one string with commas); None: all
            columns but the times.
        time_column: name of the column (in NPZ, the array) of times: numbers, durations, or dates (ISO 8601; 31.01.2024
            with points; or digits alone, 20240131), which become seconds since 1970 (UTC unless they name another
            zone). ``"auto"``: the one called time, times, t, date, datetime, timestamp, timestamps, when, ts or epoch
            in any case, else the one with dates, else a first column without a name (an index saved with the table).
            None: no column of times; a first column without a name is ignored.
        ignore: names of columns to leave out, such as comments (a sequence, or one string with commas).
        long: True: one row per reward, with columns of time, arm and reward; ``"ARM,REWARD"`` names the last two.
        missing: treatment of empty cells (also NaN, NA, N/A, null, none, - and ?). ``"mask"``: the arm could not be
            pulled then, but a table that looks like a log of pulls is refused: one of ten times or more in which, at
            more than half of the times with a reward, fewer than half of the arms have one, or only one does.
            ``"unavailable"``: the same without this check. ``"forward-fill"``: the arm's last reward, if it has one.
            Also other marks of missing rewards: a number (-9999), a word, or several of them, in a sequence or one
            string with commas (``"forward-fill,-9999,n.a."``).
        header: whether the first row of a CSV holds names; None: yes, but a row that could be numbers is refused.
        separator: between the cells of a CSV; None: comma, semicolon, tab or bar, whichever splits all lines alike.
        decimal: "." or ","; None: inferred from the numbers.
        encoding: encoding of a CSV; None: UTF-16 with its byte order mark, else UTF-8.
        epoch: "s", "ms", "us" or "ns": the times are numbers of (milli-, micro-, nano-)seconds since 1970 in UTC, and
            become dates; None: numbers stay numbers in an unknown unit, with a note if they may be such dates.

    Raises:
        ValueError: no such file, unknown suffix, unreadable file, no rows, fewer than two arms, two arms of
            one name, unknown column, a cell that is not a number (row and column are named, rows counted from
            1 after the header; all columns of text together), infinite values, times that are missing or do not
            increase, an arm that counts the rows, a log of pulls, a file that can be read in two ways.
    """
    empty = Missing.of(missing)
    validation.instance("long", long, (bool, str), "True, False or 'ARM,REWARD'")
    asked, ignored = names_given("rewards", rewards), names_given("ignore", ignore) or []
    both = [name for name in ignored if name in (asked or [])]
    validation.require(not both, "ignore", both, "other columns than rewards")
    arms = _ARM_NAMES if long is True else {long.partition(",")[0].strip().lower()} if long else set()
    frame, time_column, mark = read_frame(
        path,
        ignored,
        arms,
        time_column,
        header=header,
        separator=separator,
        decimal=decimal,
        encoding=encoding,
        epoch=epoch,
    )
    return table_of(frame, mark, asked, time_column, ignored=ignored, long=long, empty=empty)


def table_of(
    frame: pd.DataFrame,
    mark: str,
    asked: list[str] | None = None,
    time_column: str | None = "auto",
    *,
    ignored: Collection[str] = (),
    long: bool | str = False,
    empty: Missing | None = None,
) -> RewardTable:
    """The table in the columns of a file (from ``read_frame``); arguments and errors as for ``read_table``."""
    empty = Missing.of("mask") if empty is None else empty
    frame = empty.in_text(frame)
    if long:
        table = _long_table(frame, time_column, asked, mark, long, empty)
    else:
        table = _wide_table(frame, time_column, asked, mark, empty)
    if empty.treatment == "mask":
        refuse_log(table.rewards.numpy())
    if ignored:
        table = replace(table, notes=(*table.notes, f"left out: {', '.join(ignored)}"))
    return table.forward_filled() if empty.treatment == "forward-fill" else table


def names_given(
    argument: str, given: Any, expected: str = "names, a sequence or one string with commas, or None"
) -> list[str] | None:
    """The names in a sequence or in one string with commas; None for None."""
    if given is None:
        return None
    if isinstance(given, str) or validation.is_number(given):  # on the command line 7 is a number
        return [name.strip() for name in str(given).split(",")]
    several = isinstance(given, Iterable) and not isinstance(given, bytes)
    names = list(given) if several else [None]
    ok = all(isinstance(name, str) or validation.is_number(name) for name in names)
    validation.require(ok, argument, given, expected)
    return list(map(str, names))


def _wide_table(
    frame: pd.DataFrame, time_column: str | None, asked: list[str] | None, mark: str, missing: Missing
) -> RewardTable:
    """The table of a file with a column for every arm."""
    lower = {name.strip().lower() for name in frame.columns}
    if asked is None and "reward" in lower and lower & LOGGED:
        raise ValueError(
            f"long must be given: the columns {some(list(frame.columns))} look like one row per reward; long=True if "
            "so, otherwise rewards= names the arms"
        )
    time = find_time(frame, time_column, mark)
    notes = []
    if frame.columns[0] == "" and time != "":
        frame = frame.iloc[:, 1:]
        notes = ["left out: the first column, which has no name"]
    others = [name for name in frame.columns if name != time]
    names = others if asked is None else asked
    known_columns("rewards", [name for name in names if name not in frame.columns], others)
    validation.require("" not in names, "rewards", names, "named columns; give the one without a name a name")
    expected = "at least two columns, one per arm (separator= names the character between cells)"
    validation.require(len(names) >= 2, "rewards", names, expected)
    clock = Times(np.arange(len(frame)), "rows") if time is None else read_times(time, frame[time], mark)
    rewards = missing.in_numbers(_rewards(names, frame, mark))
    if asked is None and time_column is not None:
        refuse_counters(names, rewards, time, asked_for=time_column != "auto")
        refuse_calendar(names, rewards, clock.values if clock.dated else None)
        refuse_names_of_arms(names, rewards)
        refuse_settings(names)
    source = "" if time is None else "the index, " if time == "" else f"{time!r}, "
    nothing = [name for name, none in zip(names, np.isnan(rewards).all(0), strict=True) if none]
    of_nothing = f"without any reward: {some(nothing, 3)}; ignore={','.join(nothing)} leaves them out"
    notes = [f"times: {source}{clock.unit}", *notes, *suspects(names, rewards)]
    notes += [of_nothing] if nothing else []
    moments = None if time is None else torch.from_numpy(clock.values)
    about = tuple(names), tuple(notes), clock.in_seconds, clock.dated
    try:
        return RewardTable(torch.from_numpy(rewards), moments, *about)
    except ValueError as error:
        if "times must increase" in str(error):
            offset = "write local times with their offset"
            advice = "time_column= names another" + (f", or {offset}" if clock.dated else "")
            if (np.diff(clock.values) < 0).any():
                advice = f"sort the rows by time, and {offset}"
            long = "long=True if a row is one reward; " if len(names) < _FEW_COLUMNS else ""
            raise ValueError(f"{error} ({long}{advice})") from None
        raise


def _rewards(names: list[str], frame: pd.DataFrame, mark: str) -> np.ndarray:
    """These columns as numbers, (T, N). Raises ValueError for any other cell; columns of text are named together."""
    plain = all(isinstance(frame[name].dtype, np.dtype) and is_numeric(frame[name]) for name in names)
    if plain and len(set(names)) == len(names):
        return (frame if list(frame.columns) == names else frame[names]).to_numpy(np.float64, copy=True)
    values, refused = np.empty((len(frame), len(names))), {}
    for n, name in enumerate(names):
        try:
            values[:, n] = numbers(name, frame[name], mark, of_table=True)
        except ValueError as error:
            refused[name] = error
    if not refused:
        return values
    texts = {name: found for name in refused if len(found := words(frame[name]))}
    name = next(iter(refused))
    if name not in texts:
        raise refused[name]
    row, cell = int(texts[name].index[0]), texts[name].iloc[0]
    leaves = f"ignore={','.join(texts)} leaves out {'the columns' if len(texts) > 1 else 'a column'} of text"
    arm = next((text for text in texts if _may_name_arms(text, frame)), None)
    long = ""
    if arm is not None:
        others = [name for name in names if name != arm]
        known = [name for name in others if name.strip().lower() in REWARD_NAMES] or others
        asked = f"{arm},{known[0] if len(known) == 1 else 'REWARD'}"
        long = f"long={asked} if {'it' if len(texts) == 1 else repr(arm)} names the arm of each row; "
    if any(name.strip().lower() in PROPENSITY_NAMES for name in frame.columns):
        long = "a log of pulls, with their propensities, is for `look`, `value` and read_log; "
    raise ValueError(
        f"row {row + 1}, column {name!r} must be a number or empty, got {cell!r} ({leaves}; {long}rewards= names the "
        "columns that are arms)"
    )


# --- a row for every reward ---


def _long_table(
    frame: pd.DataFrame,
    time_column: str | None,
    asked: list[str] | None,
    mark: str,
    long: bool | str,
    missing: Missing,
) -> RewardTable:
    """The table of a file with rows of time, arm and reward; arms are in order of their first row."""
    if time_column != "":
        frame = frame.drop(columns="", errors="ignore")
    time = find_time(frame, time_column, mark)
    if time is None:
        columns = some(list(frame.columns))
        raise ValueError(f"time_column must be one of {columns} if long is given, got {time_column!r}")
    arm, reward = _long_names([name for name in frame.columns if name != time], long)
    clock = read_times(time, frame[time], mark)
    if (empty := empty_row(frame[arm])) is not None:
        raise ValueError(f"row {empty}, column {arm!r} must name an arm, got an empty cell")
    rewards = missing.in_numbers(numbers(reward, frame[reward], mark, of_table=True))
    arms = frame[arm].map(str).str.strip()
    rows = pd.DataFrame({"time": clock.values, "arm": arms, "reward": rewards})
    twice = rows.duplicated(["time", "arm"])
    if twice.any():
        row = int(twice.to_numpy().argmax())
        found = f"{arm} {rows['arm'][row]!r}"
        raise ValueError(f"row {row + 1} must be the only one of its arm and time, got {found}")
    wide = rows.pivot(index="time", columns="arm", values="reward").sort_index()
    names = list(rows["arm"].unique()) if asked is None else asked
    known_columns("rewards", names, wide.columns)
    values = wide[names].to_numpy(dtype=np.float64, copy=True)
    notes = [f"times: {time!r}, {clock.unit}", f"long: {len(rows)} rows of {arm!r} and {reward!r}"]
    others = [name for name in frame.columns if name not in (time, arm, reward)]
    notes += [f"left out: {some(others)}"] if others else []
    notes += suspects(names, values)
    moments = torch.tensor(wide.index.to_numpy(dtype=np.float64))
    return RewardTable(
        torch.from_numpy(values), moments, tuple(names), tuple(notes), clock.in_seconds, clock.dated
    )


def _may_name_arms(name: str, frame: pd.DataFrame) -> bool:
    """Whether a column of text may name the arm of each row: it recurs, and the table has few columns or a reward."""
    valued = any(one.strip().lower().lstrip("_") in REWARD_NAMES for one in frame.columns)
    if (len(frame.columns) > _FEW_COLUMNS and not valued) or is_numeric(frame[name]):
        return False
    cells = [cell for cell in frame[name].iloc[:_SAMPLE] if not is_missing(cell)]
    named = all(isinstance(cell, str) and re.match(r"[^\W\d_]", cell.strip()) for cell in cells)
    named = named and not any(cell.strip().lower() in ("true", "false", "yes", "no") for cell in cells)
    return named and 1 < len(set(cells)) < len(cells)


def _long_names(names: list[str], long: bool | str) -> tuple[str, str]:
    """The columns of arms and of rewards, as given by ``long`` or by their names."""
    if isinstance(long, str):
        named = [name.strip() for name in long.split(",")]
        ok = len(named) == len({*named}) == 2 and all(name in names for name in named)
        validation.require(ok, "long", long, f"'ARM,REWARD', two of the columns {', '.join(names)}")
        return named[0], named[1]
    arms = [name for name in names if name.strip().lower() in _ARM_NAMES]
    given = [name for name in names if name.strip().lower() in REWARD_NAMES]
    if len(names) == 2 and len(arms) + len(given) == 1:  # one has a known name, the other is what is left
        arms = arms or [name for name in names if name not in given]
        given = given or [name for name in names if name not in arms]
    if len(arms) != 1 or len(given) != 1:
        raise ValueError(f"long must be 'ARM,REWARD', two of the columns {', '.join(names)}, got {long!r}")
    return arms[0], given[0]
