"""Real data sets from their official sources, as the NPZ files that the readers take.

    python -m benchmarks.data.download intel molene beijing --into DIR

The sources publish no checksums, so the first download is trusted, and its SHA-256 is written beside it
(``<file>.sha256``). If a checksum is there already, a file that differs is refused. (Pooch unpacks a ``.gz`` file that
the server labels as encoded, as many do, and replaces a file that differs.)
"""

import argparse
import contextlib
import hashlib
import http.client
import io
import os
import re
import tarfile
import tempfile
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from bandits_torch import validation
from bandits_torch.files import atomic_write

_TEN_MINUTES = 600
_HOUR = 3_600
_INTEL_COLUMNS = ["date", "time", "epoch", "moteid", "temperature", "humidity", "light", "voltage"]
_INTEL_PERIOD = ("2004-02-28", "2004-03-21")  # later most batteries fail
_INTEL_LOW_BATTERY = 2.4  # volts; below, the sensors drift away
_INTEL_PLAUSIBLE = {"temperature": (0.0, 50.0), "humidity": (0.0, 100.0), "light": (0.0, 5_000.0)}
_BEIJING_NAME = re.compile(r"PRSA_Data_(\w+)_\d{8}-\d{8}\.csv$")
_BEIJING_ARRAYS = {"pm25": "PM2.5", "o3": "O3", "temp": "TEMP"}
_MOLENE_ARRAYS = {"temperature": ("t", -273.15), "wind": ("ff", 0.0), "rain": ("rr1", 0.0)}
_MOLENE_MISSING = "mq"


def convert_intel(readings: Path, positions: Path, directory: Path) -> list[Path]:
    """Ten-minute means of the Intel Berkeley laboratory's sensors, ``data.txt.gz`` (or unpacked) and ``mote_locs.txt``.

    Keeps readings from 28 February to 21 March 2004, of motes with a position and a battery of 2.4 V or more, if they
    are plausible. ``temperature`` is interpolated linearly over gaps of up to an hour; other gaps stay empty.
    ``observed`` marks bins with a reading.
    """
    motes = pd.read_csv(positions, sep=r"\s+", header=None, names=["moteid", "x", "y"]).dropna()
    frame = pd.read_csv(readings, sep=r"\s+", header=None, names=_INTEL_COLUMNS, on_bad_lines="skip")
    numbers = frame[_INTEL_COLUMNS[3:]].apply(pd.to_numeric, errors="coerce")
    stamps = pd.to_datetime(frame["date"] + " " + frame["time"], errors="coerce", format="ISO8601")
    seconds = (stamps - pd.Timestamp(0)).dt.total_seconds()
    start, stop = (int(pd.Timestamp(day).timestamp()) for day in _INTEL_PERIOD)
    stop += 86_400
    kept = seconds.between(start, stop, inclusive="left") & (numbers["voltage"] >= _INTEL_LOW_BATTERY)
    kept &= numbers["moteid"].isin(motes["moteid"])
    asked = "a file with readings of the motes in positions"
    validation.require(bool(kept.any()), "readings", str(readings), asked)
    table = numbers[kept].assign(bin=((seconds[kept] - start) // _TEN_MINUTES).astype(int))
    for name, (low, high) in _INTEL_PLAUSIBLE.items():
        table[name] = table[name].where(table[name].between(low, high))
    means = table.groupby(["bin", "moteid"]).mean()
    used = motes[motes["moteid"].isin(table["moteid"])].sort_values("moteid")
    bins = np.arange(int(table["bin"].max()) + 1)
    values = {
        name: means[name].unstack("moteid").reindex(index=bins, columns=used["moteid"]).to_numpy()
        for name in (*_INTEL_PLAUSIBLE, "voltage")
    }
    common: dict[str, Any] = {
        "time": start + bins * _TEN_MINUTES,
        "xy": used[["x", "y"]].to_numpy(),
        "mote_id": used["moteid"].to_numpy().astype(np.int64),
    }
    raw = values["temperature"]
    temperature, rest = directory / "intel_temperature.npz", directory / "intel_light_humidity.npz"
    whole = _bridged(raw, _HOUR // _TEN_MINUTES)
    np.savez_compressed(
        temperature, temperature=whole, temperature_raw=raw, observed=~np.isnan(raw), **common
    )
    others: dict[str, Any] = {name: values[name] for name in ("light", "humidity", "voltage")}
    np.savez_compressed(rest, **others, **common)
    return [temperature, rest]


def convert_beijing(archive: Path, directory: Path) -> list[Path]:
    """Hourly air quality of Beijing's sites, from UCI 501's zip (or a zip within it) of one CSV per site. Missing
    values stay missing; the source has no positions."""
    sites: dict[str, pd.DataFrame] = {}
    for site, content in _beijing_files(archive.read_bytes()):
        frame = pd.read_csv(io.BytesIO(content), na_values="NA")
        needed = ["year", "month", "day", "hour", *_BEIJING_ARRAYS.values()]
        absent = [name for name in needed if name not in frame.columns]
        asked = f"CSV files with the columns {', '.join(needed)}"
        validation.require(not absent, "archive", str(archive), asked)
        stamps = pd.to_datetime(frame[["year", "month", "day", "hour"]])
        sites[site] = frame.set_index(_seconds(stamps))
    asked = "a zip of PRSA_Data_<site>_<from>-<to>.csv files"
    validation.require(len(sites) >= 2, "archive", str(archive), asked)
    names = sorted(sites)
    first, last = (pick(sites[n].index[at] for n in names) for pick, at in ((min, 0), (max, -1)))
    time = np.arange(first, last + 1, _HOUR)
    arrays: dict[str, Any] = {"time": time, "site": np.array(names)}
    for array, column in _BEIJING_ARRAYS.items():
        values = np.stack([sites[n][column].reindex(time).to_numpy(dtype=np.float64) for n in names], axis=-1)
        arrays |= {array: values, f"{array}_observed": ~np.isnan(values)}
    out = directory / "beijing_air.npz"
    np.savez_compressed(out, **arrays)
    return [out]


def convert_molene(archive: Path, directory: Path) -> list[Path]:
    """Hourly weather of Brittany in January 2014, from Meteo-France's ``RADOMEH.tar.gz`` of text tables, or one of
    them: for each quantity the stations with a value in every hour. The archive has no positions."""
    frames = [_molene_table(content) for content in _molene_files(archive)]
    frames = [frame for frame in frames if frame is not None]
    asked = "tables with columns numer_sta, date, t, ff and rr1"
    validation.require(bool(frames), "archive", str(archive), asked)
    rows = pd.concat(frames).drop_duplicates(["date", "numer_sta"], keep="last")
    arrays: dict[str, Any] = {}
    for name, (column, shift) in _MOLENE_ARRAYS.items():
        table = rows.pivot(index="date", columns="numer_sta", values=column)
        hours = np.arange(table.index[0], table.index[-1] + 1, _HOUR)
        table = table.reindex(hours).dropna(axis="columns")
        arrays |= {"time": hours, name: table.to_numpy() + shift, f"{name}_name": table.columns.to_numpy(str)}
    out = directory / "molene_weather.npz"
    np.savez_compressed(out, **arrays)
    return [out]


def _bridged(values: np.ndarray, longest: int) -> np.ndarray:
    """Columns with inner gaps of up to ``longest`` rows filled linearly, longer ones left whole."""
    frame = pd.DataFrame(values)
    filled = frame.interpolate(limit_area="inside")
    for column in frame:
        missing = frame[column].isna()
        runs = missing.groupby((missing != missing.shift()).cumsum()).transform("sum")
        filled.loc[missing & (runs > longest), column] = np.nan
    return filled.to_numpy()


def _beijing_files(content: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            found = _BEIJING_NAME.search(name)
            if found:
                yield found.group(1), archive.read(name)
            elif name.endswith(".zip"):
                yield from _beijing_files(archive.read(name))


def _molene_files(archive: Path) -> Iterator[bytes]:
    if not tarfile.is_tarfile(archive):
        yield archive.read_bytes()
        return
    with tarfile.open(archive) as opened:  # members are read, never unpacked to disk
        for member in opened:
            content = opened.extractfile(member) if member.isfile() else None
            if content is not None and member.name.endswith((".txt", ".csv")):
                yield content.read()


def _molene_table(content: bytes) -> pd.DataFrame | None:
    """One table's station, seconds and quantities; None if it is another kind of file."""
    lines = content.decode("latin-1").splitlines()
    header = lines[0] if lines else ""
    separator = ";" if ";" in header else ","
    names = [name.strip() for name in header.split(separator)]
    wanted = ["numer_sta", "date", *(column for column, _ in _MOLENE_ARRAYS.values())]
    if not set(wanted) <= set(names):
        return None
    cells = [line.split(separator) for line in lines[1:]]
    cells = [row for row in cells if len(row) == len(names)]  # a footer closes each table
    frame = pd.DataFrame(cells, columns=names)[wanted].map(str.strip)
    stamps = pd.to_datetime(frame["date"], errors="coerce", format="ISO8601")
    frame = frame[stamps.notna()]
    quantities = frame[wanted[2:]].replace(_MOLENE_MISSING, np.nan).apply(pd.to_numeric, errors="coerce")
    return quantities.assign(numer_sta=frame["numer_sta"], date=_seconds(stamps[stamps.notna()]))


def _seconds(stamps: pd.Series) -> pd.Series:
    return (stamps - pd.Timestamp(0)).dt.total_seconds().astype(np.int64)


_CHUNK = 1 << 20
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error)


@dataclass(frozen=True)
class Source:
    """Raw files' addresses by name, in the order in which ``convert`` takes them, with a folder for the readers' files;
    and the source to acknowledge and its licence."""

    urls: Mapping[str, str]
    convert: Callable[..., list[Path]]
    terms: str


_LABORATORY = "https://db.csail.mit.edu/labdata"
_RADOMEH = "https://donneespubliques.meteofrance.fr/donnees_libres/Hackathon/RADOMEH.tar.gz"
_UCI = "https://archive.ics.uci.edu/static/public/501/beijing+multi+site+air+quality+data.zip"
SOURCES: dict[str, Source] = {
    "intel": Source(
        {name: f"{_LABORATORY}/{name}" for name in ("data.txt.gz", "mote_locs.txt")},
        convert_intel,
        "Intel Berkeley Research Lab; free to use in any format or venue, acknowledgement asked",
    ),
    "molene": Source({"RADOMEH.tar.gz": _RADOMEH}, convert_molene, "Meteo-France, Licence Ouverte"),
    "beijing": Source(
        {"beijing_air_quality.zip": _UCI},
        convert_beijing,
        "Beijing Multi-Site Air Quality, UCI 501, CC BY 4.0",
    ),
}


def fetch(name: str, directory: str | Path, *, timeout: float = 60.0) -> list[Path]:
    """Download a data set's raw files, convert them, and return the NPZ files for the readers; raw files that are in
    the folder are checked, not downloaded again. ``timeout``: seconds without an answer before giving up.

    Raises ValueError for an unknown name, a wrong checksum or a raw file that cannot be read as expected,
    ConnectionError where the source cannot be reached or the connection broke. No partial file remains.
    """
    validation.require(name in SOURCES, "name", name, f"one of {', '.join(SOURCES)}")
    source, folder = SOURCES[name], Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    raw = [download(address, folder / file, timeout=timeout) for file, address in source.urls.items()]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            made = source.convert(*raw, Path(scratch))
        except _UNREADABLE as error:
            said = f"{name}'s raw files are not as expected ({type(error).__name__}): {error}"
            raise ValueError(said) from error
        for path in made:
            os.replace(path, folder / path.name)
        return [folder / path.name for path in made]


def download(url: str, path: str | Path, *, timeout: float = 60.0) -> Path:
    """Download a file, whole or not at all, or check the one that is there, by the checksum in ``<path>.sha256``.
    Without one the file is trusted with a warning, and its checksum is recorded."""
    web = isinstance(url, str) and url.startswith(("https://", "http://"))
    validation.require(web, "url", url, "an address that begins with https:// or http://")
    target = Path(path)
    record = target.with_name(target.name + ".sha256")
    expected, *_ = (record.read_text(encoding="ascii").split() if record.exists() else ()) or (None,)
    if target.exists():
        with target.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        _check(str(target), found, expected)
    else:
        with atomic_write(target) as opened:
            found = _receive(url, opened, timeout)
            _check(url, found, expected)
    if expected is None:
        warnings.warn(
            f"no checksum of {target.name} is known: trusting this file, and recording its SHA-256 {found} "
            f"in {record}",
            stacklevel=2,
        )
        with atomic_write(record) as opened:
            opened.write(f"{found}  {target.name}\n".encode())
    return target


def _receive(url: str, opened: IO[bytes], timeout: float) -> str:
    """Write the answer to an open file and return its SHA-256."""
    digest, size = hashlib.sha256(), 0
    try:
        with contextlib.closing(urllib.request.urlopen(url, timeout=timeout)) as answer:  # http(s) alone
            announced = answer.headers.get("Content-Length")
            while chunk := answer.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                opened.write(chunk)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise ConnectionError(f"cannot download {url}: {error}") from error
    if announced is not None and size != int(announced):
        raise ConnectionError(f"cannot download {url}: got {size} bytes of {announced}, the connection broke")
    return digest.hexdigest()


def _check(what: str, found: str, expected: str | None) -> None:
    if expected is not None and found != expected:
        raise ValueError(f"SHA-256 of {what} must be {expected}, got {found}")


def main() -> None:
    """Fetch the data sets named, and print the files made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="+", choices=SOURCES, help="data sets")
    parser.add_argument("--into", type=Path, required=True, help="folder for raw and converted files")
    asked = parser.parse_args()
    for name in asked.names:
        print(f"{name}: {SOURCES[name].terms}")
        for path in fetch(name, asked.into):
            print(path)


if __name__ == "__main__":
    main()
