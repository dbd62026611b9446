"""Files of rewards as named columns: CSV by pandas, Parquet, NPZ without pickle."""

from __future__ import annotations

import csv
import io
import mmap
import zipfile
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch import validation
from bandits_torch.problems.table_cells import MISSING, are_times, numbers

Columns = dict[str, Any]
Arrays = dict[str, np.ndarray]

SEPARATORS = (";", "\t", "|", ",")  # a comma last: it may be a decimal mark where another separates
_SAMPLE = 1 << 16
_BLOCK = 1 << 24
# pandas 3 reads every number to the nearest float64, and deprecates the argument that asked for it.
_EXACT: dict[str, Any] = {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
_MISSING_AS_WRITTEN = [
    form for word in MISSING for form in {word, word.upper(), word.capitalize(), "NaN", "N/a"}
]


def read_csv(
    file: Path, separator: str | None, header: bool | None, encoding: str | None, decimal: str | None
) -> Columns:
    """Columns of a CSV file, in its order; numbers as float64 where pandas reads them, else as text."""
    encoding = encoding or _encoding(file)
    sample = _sample(file, encoding)
    separator = separator or _separator(sample)
    rows = (row for row in csv.reader(io.StringIO(sample, newline=""), delimiter=separator) if row)
    first = next(rows, [])
    named = _has_header(first) if header is None else header
    names = [name.strip() for name in first] if named else [f"column {n + 1}" for n in range(len(first))]
    source = _source(file, encoding)
    _check_rows(source, separator, len(names), named)
    # A point may separate thousands where semicolons separate cells: then text is read, and judged as a whole.
    as_text = decimal == "," or (decimal is None and separator == ";" and "." in sample.partition("\n")[2])
    try:
        frame = pd.read_csv(
            _rewound(source),
            sep=separator,
            header=None,
            names=range(len(names)),
            index_col=False,
            skiprows=_lines_before(sample, separator) if named else 0,
            na_values=_MISSING_AS_WRITTEN,
            keep_default_na=False,
            dtype=str if as_text else None,
            encoding="utf-8",
            **_EXACT,
            low_memory=False,
        )
    except (pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        if isinstance(error, pd.errors.ParserError):
            raise ValueError(f"path must be a readable .csv file, got {str(file)!r}: {error}") from error
        frame = pd.DataFrame()
    validation.require(len(frame) >= 1, "path", str(file), "a table with a header and at least one row")
    if not named:
        names = ["" if frame[n].isna().all() else name for n, name in enumerate(names)]
    return _named(names, {n: frame[n] for n in frame.columns})


def read_parquet(file: Path) -> Columns:
    """Columns of a Parquet file; an index that says something comes first, without a name if it has none."""
    try:
        frame = pd.read_parquet(file)
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: install bandits_torch[parquet]") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"path must be a readable .parquet file, got {str(file)!r}: {error}") from error
    validation.require(len(frame) >= 1, "path", str(file), "a table of at least one row")
    columns = [frame.iloc[:, n] for n in range(frame.shape[1])]
    names = [str(name) for name in frame.columns]
    if any(name is not None for name in frame.index.names) or not isinstance(frame.index, pd.RangeIndex):
        levels = [frame.index.get_level_values(n).to_series() for n in range(frame.index.nlevels)]
        columns = levels + columns
        names = [str(name or "") for name in frame.index.names] + names
    return _named(names, dict(enumerate(columns)))


def read_arrays(argument: str, path: Path, wanted: Collection[str] | None = None) -> Arrays:
    """Arrays of an NPZ file, read without pickle: those in ``wanted`` that exist, or all.

    ``argument`` is what an error calls the path. An array whose header claims more data than the file holds is
    refused before memory is allocated.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            taken = [name for name in members if wanted is None or name in wanted]
            return {name: _read_array(archive, members[name], name) for name in taken}
    except (
        OSError, EOFError, AttributeError, TypeError, ValueError, MemoryError, NotImplementedError, RuntimeError,
        OverflowError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise ValueError(f"{argument} must be a readable NPZ file, got {str(path)!r}: {error}") from error


def array_names(path: Path) -> list[str]:
    """Names of the arrays of an NPZ file; none of a file that is no NPZ."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [info.filename.removesuffix(".npy") for info in archive.infolist()]
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return []


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> np.ndarray:
    with archive.open(info) as opened:
        version = np.lib.format.read_magic(opened)
        reader = {(1, 0): np.lib.format.read_array_header_1_0}.get(
            version, np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = reader(opened)
        size = dtype.itemsize
        for side in shape:
            size *= int(side)
        if not dtype.hasobject and size != info.file_size - opened.tell():
            raise ValueError(
                f"array {name!r} of shape {shape} must hold {size} bytes, got {info.file_size - opened.tell()}"
            )
    with archive.open(info) as opened:
        return np.lib.format.read_array(opened, allow_pickle=False)


def _named(names: list[str], columns: dict[int, Any]) -> Columns:
    """Columns by name; empty ones without a name behind the last named one are dropped."""
    while names and not names[-1] and columns[len(names) - 1].isna().all():
        names = names[:-1]
    found = {name: columns[n] for n, name in enumerate(names)}
    if len(found) < len(names):
        twice = sorted({name for n, name in enumerate(names) if name in names[:n]})
        raise ValueError(f"arm names must be all different, got {twice}")
    return found


def _encoding(file: Path) -> str:
    with file.open("rb") as opened:
        start = opened.read(2)
    return "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _sample(file: Path, encoding: str) -> str:
    with file.open(encoding=encoding, newline="") as opened:
        text = opened.read(_SAMPLE)
        if len(text) == _SAMPLE:  # to the end of its last line
            text += opened.readline()
    if "\0" in text:
        raise ValueError(f"path must be a text file without NUL characters, got {str(file)!r}")
    return text


def _separator(sample: str) -> str:
    """What separates cells: what splits all lines of the sample into as many as the first, two or more."""
    for separator in SEPARATORS:
        rows = [row for row in csv.reader(io.StringIO(sample, newline=""), delimiter=separator) if row]
        counts = {len(row) for row in rows}
        if len(counts) == 1 and counts.pop() >= 2:
            return separator
    first = sample.lstrip("\r\n").splitlines()[:1]
    return max((",", ";", "\t", "|"), key=lambda s: first[0].count(s) if first else 0)


def _has_header(first: list[str]) -> bool:
    """Whether the first row names columns; ValueError where it could as well be numbers and times."""
    said = first[1:] if first and not first[0].strip() else first  # an index saved without a name
    plain = [cell.strip() for cell in said]
    if not plain or any(not _is_value(cell) for cell in plain if cell) or not any(plain):
        return True
    whole = [int(cell) if cell.isdecimal() and cell.isascii() else None for cell in plain]
    if whole == list(range(len(whole))):  # the names that pandas gives
        return True
    raise ValueError(
        f"the first row must hold names, got {first[:5]}: header=True if these are, header=False if none"
    )


def _is_value(cell: str) -> bool:
    try:
        numbers("", [cell])
    except ValueError:
        try:
            numbers("", [cell], ",")
        except ValueError:
            return are_times([cell])
    return True


def _lines_before(sample: str, separator: str) -> int:
    """How many lines lie before the second row."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=separator)
    for row in reader:
        if row:
            return reader.line_num
    return 0


def _source(file: Path, encoding: str) -> Path | io.BytesIO:
    """The file, or its text in UTF-8 where it is in another encoding or has line ends of its own."""
    if encoding in ("utf-8", "utf-8-sig"):
        with file.open("rb") as opened:
            start = opened.read(_SAMPLE)
        if b"\n" in start or b"\r" not in start:
            return file
    return io.BytesIO(file.read_bytes().decode(encoding).replace("\r\n", "\n").replace("\r", "\n").encode())


def _rewound(source: Path | io.BytesIO) -> Path | io.BytesIO:
    if isinstance(source, io.BytesIO):
        source.seek(0)
    return source


def _check_rows(source: Path | io.BytesIO, separator: str, width: int, named: bool) -> None:
    """Every row must have ``width`` cells: pandas fills short ones without a word."""
    if isinstance(source, io.BytesIO):
        text = source.getvalue().decode()
        _check_lengths(csv.reader(io.StringIO(text, newline=""), delimiter=separator), width, named)
        return
    if source.stat().st_size == 0:
        return
    with source.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        if whole.find(b"\0") >= 0:
            raise ValueError(f"path must be a text file without NUL characters, got {str(source)!r}")
        if whole.find(b'"') >= 0:
            with source.open(encoding="utf-8-sig", newline="") as lines:
                _check_lengths(csv.reader(lines, delimiter=separator), width, named)
            return
        rows, start = 0, 0
        while start < len(whole):
            end = whole.find(b"\n", min(start + _BLOCK, len(whole)))
            end = len(whole) if end < 0 else end + 1
            rows = _count_cells(np.frombuffer(whole[start:end], np.uint8), separator, width, named, rows)
            start = end


def _check_lengths(rows: Iterable[list[str]], width: int, named: bool) -> None:
    for number, row in enumerate((row for row in rows if row), start=1 - named):
        _require_width(number, len(row), width)


def _count_cells(block: np.ndarray, separator: str, width: int, named: bool, rows: int) -> int:
    """Check the lines of a block without quotes; the number of rows so far."""
    ends = np.flatnonzero(block == ord("\n"))
    if not len(ends) or ends[-1] != len(block) - 1:
        ends = np.append(ends, len(block))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    bare = lengths - ((lengths > 0) & (block[np.maximum(ends - 1, 0)] == ord("\r")))
    marks = np.flatnonzero(block == ord(separator))
    cells = 1 + np.searchsorted(marks, ends) - np.searchsorted(marks, starts)
    cells = cells[bare > 0]
    wrong = np.flatnonzero(cells != width)
    if len(wrong):
        _require_width(rows + int(wrong[0]) + 1 - named, int(cells[wrong[0]]), width)
    return rows + len(cells)


def _require_width(number: int, found: int, width: int) -> None:
    if found != width:
        raise ValueError(
            f"row {number} must have {width} cells, as the header has, got {found} (separator= tells what separates)"
        )
