"""Binary files of rewards as named columns: Parquet by pandas, NPZ without pickle."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bandits_torch import validation

Columns = dict[str, Any]
Arrays = dict[str, np.ndarray]

_SHOWN = 8  # names in a message


def read_parquet(file: Path) -> Columns:
    """Columns of a Parquet file; an index that says something comes first, without a name if it has none."""
    try:
        frame = pd.read_parquet(file)
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install pyarrow") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"path must be a readable .parquet file, got {str(file)!r}: {error}") from error
    validation.require(len(frame) >= 1, "path", str(file), "a table of at least one row")
    columns = [frame.iloc[:, n] for n in range(frame.shape[1])]
    names = [str(name) for name in frame.columns]
    if any(name is not None for name in frame.index.names) or not isinstance(frame.index, pd.RangeIndex):
        levels = [frame.index.get_level_values(n).to_series() for n in range(frame.index.nlevels)]
        columns = levels + columns
        names = [str(name or "") for name in frame.index.names] + names
    return named_columns(names, dict(enumerate(columns)))


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


def names_given(argument: str, given: Any) -> list[str] | None:
    """Names of columns as they were given: a sequence, or one string with commas; None for none."""
    if given is None:
        return None
    if isinstance(given, str) or validation.is_number(given):  # on the command line 7 is a number
        return [name.strip() for name in str(given).split(",")]
    validation.instance(
        argument, given, Sequence, "names of columns, a sequence or one string with commas, or None"
    )
    return list(given)


def named_columns(names: list[str], columns: dict[int, Any]) -> Columns:
    """Columns by name; empty ones without a name behind the last named one are dropped."""
    while names and not names[-1] and columns[len(names) - 1].isna().all():
        names = names[:-1]
    found = {name: columns[n] for n, name in enumerate(names)}
    if len(found) < len(names):
        twice = sorted({name for n, name in enumerate(names) if name in names[:n]})
        hint = " (one line of names, not two)" if len(names) - len(found) >= 2 else ""
        raise ValueError(f"arm names must be all different, got {twice[:_SHOWN]}{hint}")
    return found
