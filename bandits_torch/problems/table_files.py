"""Reads files of rewards into a ``DataFrame`` (text and Parquet by pandas, NPZ without pickle), and parses their cells:
decimal marks, words for missing cells, numbers, dates, and the time column.

Columns of the ``DataFrame`` have different names ("" for an index without a name). They are real numbers, or objects,
usually text.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bandits_torch import validation
from bandits_torch.naming import unknown_name

MISSING = ("", "na", "nan", "n/a", "#n/a", "null", "none", "-", "--", "?")  # stripped, in lower case
_BLANKS = " \u00a0\u202f'_’"  # between groups of three digits
_INFINITE = re.compile(r"[+-]?(inf|infinity)", re.IGNORECASE)
# A cell that may be meant as a number, date or truth value. Before its first digit there are at most signs and a word
# of up to three letters, such as a currency or a month.
_MEANT = re.compile(r"(?is)[^\w#]*([^\W\d_]{1,3} )?\d.*|true|false|yes|no|ja|nein|wahr|falsch")
_ADVICE = "write numbers as -1234.5 without a unit, true as 1, dates as 2024-01-31 or 31.01.2024, durations as seconds"
LATEST_YEAR = 2100
_LAST = 130 * 365.25 * 86400  # seconds from 1970 to this year
_TIME_NAMES = {"time", "times", "t", "date", "datetime", "timestamp", "timestamps", "when", "ts", "epoch"}
_FIRST = 50  # cells tried before the whole column is read
# A timestamp with a zone: only after a time of day, since -31 at the end of a date is its day.
_ZONED = re.compile(r"\d[T ]\d.*(Z|[+-]\d\d(:?\d\d)?)\s*$", re.IGNORECASE)
_DOTTED = re.compile(r"\s*(\d\d?)\.(\d\d?)\.(\d{4})(?!\d)")  # day, month, year
# Units of numbers that count from 1970; each is a thousand of the next.
_EPOCHS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_FIRST_LIKELY = 1e9  # seconds since 1970, in 2001
_COMPACT = {6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


def is_numeric(cells: pd.Series) -> bool:
    """Whether the column has a type of real numbers."""
    return cells.dtype.kind in "iuf"


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty or holds a word for a missing value."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return np.ndim(cell) == 0 and bool(pd.isna(cell))


def known_columns(argument: str, names: Iterable[str], columns: Collection[str]) -> None:
    """Raise ValueError for the first of the names that is none of the columns."""
    for name in names:
        if name not in columns:
            raise ValueError(unknown_name(argument, name, columns))


def empty_row(cells: pd.Series) -> int | None:
    """The first row with an empty cell, counted from 1; None if there is none."""
    empty = (cells.isna() if is_numeric(cells) else cells.map(is_missing)).to_numpy()
    return int(empty.argmax()) + 1 if empty.any() else None


@functools.cache
def _number_form(mark: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of numbers with this decimal mark: plain, and in groups of three digits."""
    other = "," if mark == "." else "."
    plain = rf"[+-]?(\d+\{mark}?\d*|\{mark}\d+)([eE][+-]?\d+)?"
    grouped = rf"[+-]?[1-9]\d{{0,2}}([{_BLANKS}{other}])\d{{3}}(\1\d{{3}})*(\{mark}\d*)?"
    return re.compile(plain, re.ASCII), re.compile(grouped, re.ASCII)


def number(cell: Any, mark: str) -> float | None:
    """The number in a cell; None if it is none."""
    if not isinstance(cell, str):
        try:
            return float(cell) if isinstance(cell, (Real, Decimal)) and not isinstance(cell, bool) else None
        except (TypeError, ValueError, OverflowError):
            return None
    text = cell.strip().replace("\u2212", "-")  # the minus sign of print
    plain, grouped = _number_form(mark)
    if plain.fullmatch(text) or _INFINITE.fullmatch(text):
        return float(text.replace(",", "."))
    found = grouped.fullmatch(text)
    return None if found is None else float(text.replace(found[1], "").replace(",", "."))


def numbers(name: str, cells: pd.Series, mark: str = ".", *, of_table: bool = False) -> np.ndarray:
    """A column as float64, NaN for missing cells. Raises ValueError for the first cell that is not a number, with the
    options of ``read_table`` that may help if it is ``of_table``."""
    if is_numeric(cells):
        return cells.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    found = [np.nan if is_missing(cell) else number(cell, mark) for cell in cells]
    if None in found:
        row = found.index(None)
        cell = cells.iloc[row]
        advice = f"{_ADVICE}; time_column= names the times, decimal= the mark"
        if of_table:
            if is_word(cell):
                advice = f"missing={cell.strip()!r} if this word marks missing rewards"
            advice += "; rewards= names the columns that are arms"
        raise ValueError(f"row {row + 1}, column {name!r} must be a number or empty, got {cell!r} ({advice})")
    return np.array(found, dtype=np.float64)


def is_word(cell: Any) -> bool:
    """Whether a cell is text that cannot be meant as a number or date."""
    return isinstance(cell, str) and not _MEANT.fullmatch(cell.strip())


def words(cells: pd.Series) -> pd.Series:
    """The words in a column of text, by row; an empty series for any other column.

    A column is text if more than half of its non-empty cells are words, unless a single word recurs among numbers: it
    may mark missing values.
    """
    filled = cells[[not is_missing(cell) for cell in cells]]
    found = filled[[is_word(cell) for cell in filled]]
    recurs = len(found) < len(filled) and found.nunique() == 1
    return found if 2 * len(found) > len(filled) and not recurs else found[:0]


# --- decimal marks ---


def decimal_mark(
    cells: Iterable[Any], points_may_group: bool = False, *, only_sure: bool = False
) -> str | None:
    """The decimal mark of text cells: "." or ",", or None if it is ambiguous.

    A cell that is a number with only one of the marks decides. A cell that is a different number with each, such as
    1,234, leaves the mark open unless another cell decides. ``points_may_group``: whether 1.234 does so, too, because
    the comma does not separate cells and may be the decimal mark; otherwise its point is the decimal mark.
    ``only_sure``: None also if no cell decides.
    """
    sure, doubtful = set(), set()
    for cell in {cell for cell in cells if isinstance(cell, str)}:
        with_point, with_comma = number(cell, "."), number(cell, ",")
        if with_point is None or with_comma is None:
            sure |= {"."} if with_point is not None else {","} if with_comma is not None else set()
        elif with_point != with_comma:
            doubtful |= {"," if "," in cell else "."}
    if sure or only_sure:
        return sure.pop() if len(sure) == 1 else None
    return None if "," in doubtful or (doubtful and points_may_group) else "."


# --- times ---


def called_like_time(names: Iterable[str]) -> str | None:
    """The column with a name such as time or date; None if there is none. Raises ValueError if there are several."""
    return _at_most_one([name for name in names if name.lstrip("#_ ").rstrip().lower() in _TIME_NAMES])


def _at_most_one(found: list[str]) -> str | None:
    if len(found) > 1:
        raise ValueError(f"time_column must be given: {', '.join(map(repr, found))} may hold the times")
    return found[0] if found else None


def find_time(frame: pd.DataFrame, asked: str | None, mark: str) -> str | None:
    """The name of the time column: ``asked`` if it is not "auto", else the column that is found; None if there is none.
    Raises ValueError if several columns may be it, or if a first column without a name does not increase."""
    names = list(frame.columns)
    if asked != "auto":
        known_columns("time_column", [] if asked is None else [asked], names)
        return asked
    found = called_like_time(names)
    if found is None:
        found = _at_most_one([name for name in names if timestamps(frame[name]) is not None])
    if found is not None or names[0] != "":
        return found
    try:
        counts = bool((np.diff(read_times("", frame[""], mark).values) > 0).all())
    except ValueError:
        counts = False
    if not counts:
        raise ValueError(
            "time_column must be given: the first column has no name and does not increase; "
            "time_column=None leaves it out"
        )
    return ""


def timestamps(cells: pd.Series) -> pd.Series | None:
    """The timestamps in a column of text or dates; None if a cell is none."""
    if is_numeric(cells) or not len(cells) or number(cells.iloc[0], ".") is not None:
        return None
    if _stamps(cells.iloc[:_FIRST]).isna().any():
        return None
    stamps = _stamps(cells)
    return None if stamps.isna().any() else stamps


class Times(NamedTuple):
    """The times of a column.

    Attributes:
        values: numbers as given; durations in seconds; dates in seconds since 1970 (UTC if they name a zone).
        unit: in words, for a note.
        in_seconds: whether they are dates or durations.
        dated: whether they are dates.
        zoned: whether the dates name their time zone.
    """

    values: np.ndarray
    unit: str
    in_seconds: bool = False
    dated: bool = False
    zoned: bool = False


def read_times(name: str, cells: pd.Series, mark: str = ".") -> Times:
    """The times of a column. Raises ValueError for the first cell that is not a time."""
    known = timestamps(cells)
    if known is not None:
        _refuse_some_zones(name, cells)
        zoned = pd.Timestamp(_year_first(cells.iloc[0])).tz is not None
        return _dates(known, f"timestamps{', in UTC' if zoned else ''}", zoned)
    row = empty_row(cells)
    if row is not None:
        raise ValueError(f"row {row}, column {name!r} must hold a time, got an empty cell")
    if not is_numeric(cells) and all(isinstance(cell, pd.Timedelta) for cell in cells):
        lengths = np.array([cell.total_seconds() for cell in cells])
        return Times(lengths, "seconds, from durations", in_seconds=True)
    try:
        found = numbers(name, cells, mark)
    except ValueError:
        stamps, kind = _stamps(cells), "timestamps"
    else:
        dates = _compact(found)
        if dates is None:
            return Times(found, f"as given{_maybe_dates(found)}")
        stamps, kind = dates, "dates"
    wrong = stamps.isna().to_numpy()
    if wrong.any():
        numeric = np.array([number(cell, mark) is not None for cell in cells])
        row = int((~numeric if numeric.mean() > 0.5 else wrong).argmax())  # the word among numbers
        raise ValueError(
            f"row {row + 1}, column {name!r} must be a number or an ISO 8601 timestamp, got {cells.iloc[row]!r} "
            f"({_ADVICE}; time_column= names the times)"
        )
    return _dates(stamps, kind)


def _refuse_some_zones(name: str, cells: pd.Series) -> None:
    """Refuse text in which only some times name their zone: the others would be read as UTC, hours off."""
    texts = [cell for cell in cells if isinstance(cell, str)] if cells.dtype == object else []
    zoned = np.array([_ZONED.search(text) is not None for text in texts])
    differ = zoned != zoned[:1]
    if differ.any():
        row = int(differ.argmax())
        raise ValueError(
            f"row {row + 1}, column {name!r} must name its time zone if row 1 does, and only then, got {texts[row]!r} "
            f"after {texts[0]!r}: write local times with their offset"
        )


def _dates(stamps: pd.Series, kind: str, zoned: bool = False) -> Times:
    since = (stamps - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds()
    values = since.to_numpy(dtype=np.float64, copy=True)
    return Times(values, f"seconds, from {kind}", in_seconds=True, dated=True, zoned=zoned)


def _in_seconds(values: np.ndarray, epoch: str) -> np.ndarray:
    return values / 1000.0 ** list(_EPOCHS).index(epoch)


def _maybe_dates(values: np.ndarray) -> str:
    """A remark for a note on numbers that may be dates of 2001 to 2100, counted from 1970; else empty."""
    for epoch, unit in _EPOCHS.items():
        seconds = _in_seconds(values, epoch)
        if seconds.min() >= _FIRST_LIKELY and seconds.max() < _LAST:
            return f"; epoch={epoch} if they are {unit} since 1970"
    return ""


def _with_dates(
    frame: pd.DataFrame, time_column: str | None, mark: str, epoch: str
) -> tuple[pd.DataFrame, str]:
    """The table with its times, numbers that count from 1970, as dates; and the name of their column."""
    time = find_time(frame, time_column, mark)
    if time is None or timestamps(frame[time]) is not None:
        expected = "None if no column holds times" if time is None else f"None: column {time!r} holds dates"
        raise ValueError(f"epoch must be {expected}, got {epoch!r}")
    seconds = _in_seconds(numbers(time, frame[time], mark), epoch)
    far = np.abs(seconds) >= _LAST
    if far.any():
        row = int(far.argmax())
        raise ValueError(
            f"row {row + 1}, column {time!r} must be {_EPOCHS[epoch]} since 1970, before {LATEST_YEAR}, got "
            f"{frame[time].iloc[row]} (epoch= names the unit: {', '.join(_EPOCHS)})"
        )
    return frame.assign(**{time: pd.to_datetime(seconds, unit="s", utc=True)}), time


def _compact(values: np.ndarray) -> pd.Series | None:
    """Dates written as one number (202401, 20240131, 202401311200); None if a value is none."""
    if not np.isfinite(values).all() or (values < 1).any() or (values != values.round()).any():
        return None
    texts = pd.Series(values).map("{:.0f}".format)
    lengths = set(texts.str.len())
    if len(lengths) > 1 or lengths.isdisjoint(_COMPACT):
        return None
    stamps = pd.to_datetime(texts, format=_COMPACT[lengths.pop()], errors="coerce", utc=True)
    return stamps if stamps.dt.year.between(1900, LATEST_YEAR).all() else None


def _year_first(cell: Any) -> Any:
    """A date with points, 31.1.2024, in ISO 8601, since such dates begin with the day; other cells unchanged."""
    found = _DOTTED.match(cell) if isinstance(cell, str) else None
    if found is None:
        return cell
    day, month, year = found.groups()
    return f"{year}-{month:0>2}-{day:0>2}{cell[found.end() :]}"


def _stamps(cells: pd.Series) -> pd.Series:
    """The timestamps of cells, NaT for other cells."""
    if len(cells) and _year_first(cells.iloc[0]) is not cells.iloc[0]:
        cells = cells.map(_year_first)
    return pd.to_datetime(cells, errors="coerce", utc=True, format="ISO8601")


Arrays = dict[str, np.ndarray]

TEXT = (".csv", ".tsv", ".txt")
_PACKED = (
    ".gz",
    ".zip",
    ".bz2",
    ".xz",
    ".zst",
    ".xlsx",
    ".xls",
    ".ods",
    ".json",
    ".jsonl",
    ".ndjson",
    ".feather",
    ".h5",
)
_BINARY = {
    b"\x1f\x8b": "gzip's compressed data: unpack it",
    b"PK\x03\x04": "a ZIP archive or an Excel workbook: unpack it, or save it as CSV",
    b"PAR1": "Parquet: name it .parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save it as CSV",
}
_SEPARATORS = (";", "\t", "|", ",")  # the comma last: it may be a decimal mark between other separators
_SAMPLE = 1 << 16  # characters
_SHOWN = 8  # names listed in a message
# pandas 3 reads every number to the nearest float64, and deprecates the argument that asked for it.
_EXACT: dict[str, Any] = {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
_MISSING_AS_WRITTEN = [form for word in MISSING for form in {word, word.upper(), word.capitalize(), "NaN"}]


def read_frame(
    path: str | Path,
    ignored: Collection[str] = (),
    as_text: Collection[str] = (),
    time_column: str | None = "auto",
    *,
    kinds: Sequence[str] = (*TEXT, ".parquet", ".npz"),
    header: bool | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    epoch: str | None = None,
) -> tuple[pd.DataFrame, str | None, str]:
    """The columns of a file, ``time_column`` (the one found, for NPZ and with ``epoch``), and the decimal mark.

    Args: as for ``read_table``; ``as_text``: names of columns, in lower case, that stay text; ``kinds``: suffixes.

    Raises ValueError for a file that cannot be read.
    """
    validation.one_of("decimal", decimal, ".", ",", None)
    validation.one_of("epoch", epoch, *_EPOCHS, None)
    validation.require(header in (None, True, False), "header", header, "True, False or None")
    ok = separator is None or (
        isinstance(separator, str) and len(separator) == 1 and separator not in '"\r\n'
    )
    validation.require(ok, "separator", separator, "one character, no quote or end of a line, or None")
    validation.instance("encoding", encoding, (str, type(None)), "one that Python knows, or None")
    validation.instance("path", path, (str, Path), "the path of a file")
    file = Path(path)
    suffix = file.suffix.lower()
    packed = " (unpack it, or save it as CSV)" if suffix in _PACKED else ""
    validation.require(suffix in kinds, "path", str(path), f"a file ending in {', '.join(kinds)}{packed}")
    validation.require(file.is_file(), "path", str(path), "an existing file")
    if suffix in TEXT:
        try:
            encoding = encoding or _encoding(file)
            frame, mark = _read_csv(file, ignored, as_text, separator, header, encoding, decimal)
        except LookupError as error:
            raise ValueError(f"encoding must be one that Python knows, got {encoding!r}: {error}") from error
        except (OSError, UnicodeError, csv.Error, pd.errors.ParserError) as error:
            more = "; encoding= names one other than UTF-8" if isinstance(error, UnicodeError) else ""
            raise ValueError(
                f"path must be a readable .csv file, got {str(file)!r}: {error}{more}"
            ) from error
    else:
        if suffix == ".npz":
            frame, time_column = _read_npz(file, time_column)
        else:
            frame = _read_parquet(file)
        frame = _without(frame, ignored)
        mark = decimal or decimal_mark(_text_cells(frame))
    validation.require(frame.shape[1] > 0, "path", str(path), "a table with a column that is not ignored")
    if mark is None:
        raise ValueError(
            "decimal must be '.' or ',', got None: the table's numbers are ambiguous, for example 1.234 may be 1234"
        )
    if epoch is not None:
        frame, time_column = _with_dates(frame, time_column, mark, epoch)
    return frame, time_column, mark


def _without(frame: pd.DataFrame, ignored: Collection[str]) -> pd.DataFrame:
    """The table without these columns. Raises ValueError if one does not exist."""
    known_columns("ignore", ignored, frame.columns)
    return frame.drop(columns=list(ignored)) if ignored else frame


def _text_cells(frame: pd.DataFrame) -> Iterator[Any]:
    """The cells of text columns that are not timestamps, which say nothing about the decimal mark."""
    columns = (cells for _, cells in frame.items() if not is_numeric(cells))
    return itertools.chain.from_iterable(cells for cells in columns if timestamps(cells) is None)


def _named(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """The table with these names, without empty columns after the last one with a name."""
    while names and not names[-1] and frame.iloc[:, len(names) - 1].isna().all():
        names = names[:-1]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        hint = " (one line of names, not two)" if len(names) - len(set(names)) >= 2 else ""
        raise ValueError(f"arm names must be all different, got {twice[:_SHOWN]}{hint}")
    frame = frame.iloc[:, : len(names)].set_axis(names, axis=1)
    texts = [name for name, kind in frame.dtypes.items() if kind.kind not in "iuf"]
    return frame.astype(dict.fromkeys(texts, object)) if texts else frame


# --- text ---


def _read_csv(
    file: Path,
    ignored: Collection[str],
    as_text: Collection[str],
    separator: str | None,
    header: bool | None,
    encoding: str,
    decimal: str | None,
) -> tuple[pd.DataFrame, str | None]:
    """The table of a text file, and its decimal mark, None if it is ambiguous; arguments as for ``read_frame``.

    pandas reads the numbers. Other cells, also numbers with the other decimal mark, stay text.
    """
    text = file.read_text(encoding)
    if "\0" in text:
        raise ValueError(
            f"path must be a text file without NUL characters, got {str(file)!r} (its encoding= may be 'utf-16-le')"
        )
    excels = re.match(r'"?sep=(.)"?\n', text)  # a line that Excel writes first
    text = text[excels.end() :] if excels else text
    sample = text[: text.find("\n", _SAMPLE) + 1 or None]  # whole lines
    separator = separator or (excels[1] if excels else _separator(sample))
    _refuse_comments(sample, separator)
    rows = csv.reader(io.StringIO(sample), delimiter=separator)
    first = next((row for row in rows if row), [])
    named = _has_header(first) if header is None else header
    skipped = rows.line_num if named else 0
    first[:1] = [name.removeprefix("# ") for name in first[:1]]  # as NumPy writes names
    names = [name.strip() for name in first] if named else [f"column {n + 1}" for n in range(len(first))]
    broken = [name for name in names if "\n" in name]
    validation.require(not broken, "names of columns", broken, "on one line each")
    _refuse_uneven_rows(text, separator, len(names), named)
    texts = {n: str for n, name in enumerate(names) if name.lower() in as_text}

    def table(mark: str, dtype: Any = texts) -> pd.DataFrame:
        try:
            frame = pd.read_csv(
                io.BytesIO(text.encode()),
                sep=separator,
                decimal=mark,
                header=None,
                names=range(len(names)),
                index_col=False,
                skiprows=skipped,
                na_values=_MISSING_AS_WRITTEN,
                keep_default_na=False,
                dtype=dtype,
                low_memory=False,
                **_EXACT,
            )
        except pd.errors.EmptyDataError:
            frame = pd.DataFrame()
        validation.require(len(frame) >= 1, "path", str(file), "a table with a header and at least one row")
        found = names if named else ["" if frame[n].isna().all() else name for n, name in enumerate(names)]
        return _without(_named(frame, found), ignored)

    mark: str | None = decimal
    if decimal is not None:
        frame = table(decimal)
    else:
        columns = [n for n, name in enumerate(names) if name not in ignored]
        whole = [row for row in rows if len(row) == len(names)]  # the sample may end within a quoted cell
        first_cells = [row[n] for row in whole for n in columns]
        may_group, sure = separator != ",", decimal_mark(first_cells, only_sure=True)
        frame = judged = table(sure or ".")
        fractions = any(frame[name].dtype.kind == "f" for name in frame.columns)
        if sure is None and may_group and fractions:  # 1.234 was read as a fraction, and may be 1234
            judged = table(".", dtype=str)
        mark = decimal_mark([*first_cells, *_text_cells(judged)], may_group)
        if mark == "," and sure != ",":  # the table was read with points
            frame = table(",")
            mark = decimal_mark([*first_cells, *_text_cells(frame)], may_group)
    if header is None and set(frame.columns) == {"0", "1"}:
        binary = frame.map(lambda cell: str(cell).strip() in ("0", "1", "0.0", "1.0")).all(axis=None)
        expected = "True or False: the first row 0, 1 may hold names or rewards"
        validation.require(not binary, "header", None, expected)
    return frame, mark


def _encoding(file: Path) -> str:
    """UTF-16 if the file begins with its byte order mark, else UTF-8. Raises ValueError for a known binary file."""
    with file.open("rb") as opened:
        start = opened.read(4)
    for mark, kind in _BINARY.items():
        if start.startswith(mark):
            raise ValueError(f"path must be a text file, got {str(file)!r}, which holds {kind}")
    return "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _separator(sample: str) -> str:
    """The character that splits all lines of the sample into the same number of cells, two or more; if none does, the
    most frequent one in the first line."""
    for separator in _SEPARATORS:
        try:
            counts = {len(row) for row in csv.reader(io.StringIO(sample), delimiter=separator) if row}
        except csv.Error:  # a cell longer than the csv module allows
            continue
        if len(counts) == 1 and counts.pop() >= 2:
            return separator
    first = sample.lstrip("\n").partition("\n")[0]
    return max((",", ";", "\t", "|"), key=first.count)


def _refuse_comments(sample: str, separator: str) -> None:
    """Refuse comments before the table. One line of names may begin with #."""
    lines = [line for line in sample.splitlines() if line.strip()][:2]
    if len(lines) < 2 or not lines[0].startswith("#"):
        return
    if lines[1].startswith("#") or lines[0].count(separator) != lines[1].count(separator):
        raise ValueError(
            f"path must be a table without comments, got {lines[0][:60]!r} first: remove the lines that begin with #, "
            "or the # of the one that holds the names"
        )


def _has_header(first: list[str]) -> bool:
    """Whether the first row names columns. Raises ValueError if it could also be a row of numbers and times."""
    said = first[1:] if first and not first[0].strip() else first  # an index saved without a name
    plain = [cell.strip() for cell in said]

    def may_be_value(cell: str) -> bool:
        numeric = is_missing(cell) or number(cell, ".") is not None or number(cell, ",") is not None
        return numeric or timestamps(pd.Series([cell], dtype=object)) is not None

    from_pandas = plain == [str(n) for n in range(len(plain))]
    if from_pandas or not any(plain) or not all(map(may_be_value, plain)):
        return True
    raise ValueError(f"the first row must hold names, got {first[:5]}: header=True if it does, else False")


def _refuse_uneven_rows(text: str, separator: str, width: int, named: bool) -> None:
    """Raise ValueError unless every row has ``width`` cells, because pandas fills short rows without a warning."""
    rows = filter(None, csv.reader(io.StringIO(text), delimiter=separator))
    for row, cells in enumerate(rows, start=1 - named):
        if len(cells) != width:
            title = "; remove a title above the header" if width == 1 and row == 1 else ""
            end = "; remove a separator at the end of the line" if len(cells) == width + 1 else ""
            raise ValueError(
                f"row {row} must have {width} cells, like the header, got {len(cells)} (separator= names the character "
                f"between cells{title or end})"
            )


# --- Parquet and NPZ ---


def _read_parquet(file: Path) -> pd.DataFrame:
    """The table of a Parquet file; an index, unless it only counts rows, becomes the first column or columns."""
    try:
        frame = pd.read_parquet(file)
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install pyarrow") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"path must be a readable .parquet file, got {str(file)!r}: {error}") from error
    validation.require(len(frame) >= 1, "path", str(file), "a table of at least one row")
    names = [str(name) for name in frame.columns]
    if any(name is not None for name in frame.index.names) or not isinstance(frame.index, pd.RangeIndex):
        names = [str(name or "") for name in frame.index.names] + names
        frame = pd.concat([frame.index.to_frame(index=False), frame.reset_index(drop=True)], axis=1)
    return _named(frame, names)


def _read_npz(file: Path, time: str | None) -> tuple[pd.DataFrame, str | None]:
    """The rewards of an NPZ file in columns named by its arms, after the times, and the name of the array of times."""
    with _opened("path", file) as archive:
        stored = list(archive.files)
    found = ", ".join(stored)
    if time == "auto":
        time = called_like_time(stored)
    arrays = read_arrays("path", file, {"rewards", "arms", time or ""})
    has_rewards, has_time = "rewards" in arrays, time is None or time in arrays
    validation.require(has_rewards, "path", str(file), f"an NPZ with an array 'rewards' (has {found})")
    validation.require(has_time, "time_column", time, f"one of the arrays {found}")
    rewards = arrays["rewards"]
    rows = rewards.ndim == 2 and len(rewards) >= 1
    validation.require(rows, "rewards", rewards.shape, "an array T x N with rows")
    real = "an array of real numbers (bool: as 0 and 1)"
    validation.require(rewards.dtype.kind in "fiu", "rewards", rewards.dtype.name, real)
    arms = arrays.get("arms", np.arange(rewards.shape[1]))
    validation.require(arms.ndim == 1, "arms", arms.shape, "an array of names")
    try:
        names = [name.decode() if isinstance(name, bytes) else str(name) for name in arms.tolist()]
    except UnicodeDecodeError as error:
        raise ValueError(f"arms must be text, or bytes in UTF-8: {error}") from error
    validation.require(len(names) == rewards.shape[1], "arms", names, f"an array of {rewards.shape[1]} names")
    frame = pd.DataFrame(rewards.astype(np.float64))
    if time is not None:
        ok = arrays[time].shape == rewards.shape[:1]
        validation.require(ok, "time_column", time, f"an array of {len(rewards)} times")
        frame, names = pd.concat([pd.Series(arrays[time]), frame], axis=1), [time, *names]
    return _named(frame, names), time


@contextmanager
def _opened(argument: str, path: Path) -> Iterator[Any]:
    """The arrays of an NPZ file by name, each read without pickle when it is asked for; ``argument`` names the path."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            yield archive
    except Exception as error:  # a malformed file can raise almost anything
        raise ValueError(f"{argument} must be a readable NPZ file, got {str(path)!r}: {error}") from error


def read_arrays(argument: str, path: Path, wanted: Collection[str]) -> Arrays:
    """The arrays of an NPZ file that are ``wanted``; ``argument`` names the path in error messages."""
    with _opened(argument, path) as archive:
        return {name: archive[name] for name in archive.files if name in wanted}
