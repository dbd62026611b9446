"""Text files of rewards as named columns, read by pandas, and what such files are refused for."""

from __future__ import annotations

import csv
import io
import mmap
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch import validation
from bandits_torch.problems.table_cells import MISSING, are_times, decimal_mark, numbers
from bandits_torch.problems.table_files import Columns, named_columns

TEXT = (".csv", ".tsv", ".txt")
PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst", ".xlsx", ".xls", ".ods", ".json", ".feather", ".h5")
_BINARY = {
    b"\x1f\x8b": "gzip's compressed data: unpack it",
    b"PK\x03\x04": "a ZIP archive or an Excel workbook: unpack it, or save it as CSV",
    b"BZh": "bzip2's compressed data: unpack it",
    b"\xfd7zX": "xz's compressed data: unpack it",
    b"(\xb5/\xfd": "zstd's compressed data: unpack it",
    b"PAR1": "Parquet: name it .parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save it as CSV",
}
_NUL = "path must be a text file without NUL characters, got {!r} (encoding='utf-16-le' may be what it is in)"
SEPARATORS = (";", "\t", "|", ",")  # a comma last: it may be a decimal mark where another separates
_SAMPLE = 1 << 16
_BLOCK = 1 << 24
# pandas 3 reads every number to the nearest float64, and deprecates the argument that asked for it.
_EXACT: dict[str, Any] = {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
_MISSING_AS_WRITTEN = [
    form for word in MISSING for form in {word, word.upper(), word.capitalize(), "NaN", "N/a"}
]


@dataclass(frozen=True)
class Form:
    """How a text file writes its table, as far as it is known: the arguments of ``read_table`` of these names."""

    separator: str | None
    header: bool | None
    encoding: str | None
    decimal: str | None


def read_csv(file: Path, asked: Form) -> tuple[Columns, Form]:
    """Columns of a CSV file, in its order, and its form; numbers as float64 where pandas reads them, else as text."""
    _refuse_binary(file)
    encoding = asked.encoding or _encoding(file)
    sample = _sample(file, encoding)
    told, sample = _without_excels_line(sample)
    separator = asked.separator or told or _separator(sample)
    _refuse_comments(sample, separator)
    rows = (row for row in csv.reader(io.StringIO(sample, newline=""), delimiter=separator) if row)
    first = next(rows, [])
    named = _has_header(first) if asked.header is None else asked.header
    first[:1] = [name.removeprefix("# ") for name in first[:1]]  # as NumPy writes names
    names = [name.strip() for name in first] if named else [f"column {n + 1}" for n in range(len(first))]
    source = _source(file, encoding, told is not None)
    _check_rows(source, separator, len(names), named)
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
            dtype=str if _as_text(asked.decimal, separator, rows) else None,
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
    return named_columns(names, {n: frame[n] for n in frame.columns}), replace(asked, separator=separator)


def _as_text(decimal: str | None, separator: str, rows: Iterable[list[str]]) -> bool:
    """Whether cells are read as text, and judged as a whole: a point may separate thousands unless a comma separates
    cells, or a cell of the sample has a decimal point for sure."""
    if decimal is not None or separator == ",":
        return decimal == ","
    return decimal_mark(list(rows), points_may_group=True) != "."


def _refuse_binary(file: Path) -> None:
    with file.open("rb") as opened:
        start = opened.read(4)
    kind = next((kind for mark, kind in _BINARY.items() if start.startswith(mark)), None)
    if kind is not None:
        raise ValueError(f"path must be a text file, got {str(file)!r}, which holds {kind}")


def _without_excels_line(sample: str) -> tuple[str | None, str]:
    """The separator that a first line ``sep=;`` tells, as Excel writes it, and the text after that line."""
    found = re.match(r'"?sep=(.)"?\r?\n', sample)
    return (None, sample) if found is None else (found[1], sample[found.end() :])


def _refuse_comments(sample: str, separator: str) -> None:
    """Refuse lines before the table that begin with #: the last of them may hold the names."""
    lines = [line for line in sample.splitlines() if line.strip()][:2]
    if not lines or not lines[0].startswith("#"):
        return
    alone = len(lines) > 1 and lines[0].count(separator) != lines[1].count(separator)
    if alone or (len(lines) > 1 and lines[1].startswith("#")):
        raise ValueError(
            f"path must be a table without comments, got {lines[0][:60]!r} first: remove the lines that begin with #, "
            "or the # of the one that holds the names"
        )


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
        raise ValueError(_NUL.format(str(file)))
    return text


def _separator(sample: str) -> str:
    """What separates cells: what splits all lines of the sample into as many as the first, two or more."""
    for separator in SEPARATORS:
        try:
            counts = {
                len(row) for row in csv.reader(io.StringIO(sample, newline=""), delimiter=separator) if row
            }
        except csv.Error:  # a line longer than a cell may be
            continue
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


def _source(file: Path, encoding: str, behind_first: bool) -> Path | io.BytesIO:
    """The file, or its text in UTF-8 where it is in another encoding, has line ends of its own, or begins behind its
    first line."""
    if not behind_first and encoding in ("utf-8", "utf-8-sig"):
        with file.open("rb") as opened:
            start = opened.read(_SAMPLE)
        if b"\n" in start or b"\r" not in start:
            return file
    text = file.read_bytes().decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    return io.BytesIO((text.partition("\n")[2] if behind_first else text).encode())


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
            raise ValueError(_NUL.format(str(source)))
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
        more = "; one more may be a separator at the end of the line: remove it" if found == width + 1 else ""
        more = "; a title above the header must go" if width == 1 and number == 1 else more
        raise ValueError(
            f"row {number} must have {width} cells, as the header has, got {found} (separator= tells what separates"
            f"{more})"
        )
