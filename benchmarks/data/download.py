"""Real data sets from their official sources, as the NPZ files that the readers take.

    python -m benchmarks.data.download intel molene beijing --into DIR

Nothing is downloaded unless this is called. The sources publish no checksums, so the
package contains none: pass one as an argument, or trust the first download. Its SHA-256 is written beside it
(``<file>.sha256``), and later a file that differs is refused. This detects a broken or changed file, but not a wrong
first download.

Not Pooch: it unpacks a ``.gz`` file that the server labels with ``Content-Encoding: gzip``, as many do, so that neither
the file nor its checksum is the one published. It also replaces an existing file that differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bandits_torch import validation
from benchmarks.data.raw_formats import convert_beijing, convert_intel, convert_molene

_CHUNK = 1 << 20
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error)


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    Attributes:
        urls: address of each raw file, by file name; ``convert`` takes the files in this order.
        convert: called with the raw files and a folder, writes the readers' NPZ files there and returns them.
        terms: source to acknowledge and its licence.
    """

    urls: Mapping[str, str]
    convert: Callable[..., list[Path]]
    terms: str


SOURCES: dict[str, Source] = {
    "intel": Source(
        {
            "data.txt.gz": "https://db.csail.mit.edu/labdata/data.txt.gz",
            "mote_locs.txt": "https://db.csail.mit.edu/labdata/mote_locs.txt",
        },
        convert_intel,
        "Intel Berkeley Research Lab; free to use in any format or venue, acknowledgement asked",
    ),
    "molene": Source(
        {
            "RADOMEH.tar.gz": (
                "https://donneespubliques.meteofrance.fr/donnees_libres/Hackathon/RADOMEH.tar.gz"
            )
        },
        convert_molene,
        "Meteo-France, Licence Ouverte",
    ),
    "beijing": Source(
        {
            "beijing_air_quality.zip": (
                "https://archive.ics.uci.edu/static/public/501/beijing+multi+site+air+quality+data.zip"
            )
        },
        convert_beijing,
        "Beijing Multi-Site Air Quality, UCI 501, CC BY 4.0",
    ),
}


def fetch(
    name: str,
    directory: str | Path,
    *,
    sha256: Mapping[str, str] | None = None,
    urls: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> list[Path]:
    """Download a data set's raw files, convert them, and return the NPZ files for the readers.

    Args:
        name: ``"intel"``, ``"molene"`` or ``"beijing"``.
        directory: for raw and converted files; created if missing. Existing raw files are checked, not downloaded
            again.
        sha256: expected checksum of a raw file, by file name (``SOURCES[name].urls``).
        urls: other addresses of raw files, by file name, for a source that has moved.
        timeout: seconds without an answer before giving up.

    Raises:
        ValueError: unknown name or file name, wrong checksum, a raw file that cannot be read as expected.
        ConnectionError: the source cannot be reached, or the connection broke. No partial file remains.
    """
    validation.require(name in SOURCES, "name", name, f"one of {', '.join(SOURCES)}")
    source = SOURCES[name]
    for argument, given in (("sha256", sha256), ("urls", urls)):
        unknown = sorted(set(given or {}) - set(source.urls))
        validation.require(not unknown, argument, unknown, f"keyed by {', '.join(source.urls)}")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    raw = []
    for file, address in source.urls.items():
        address = (urls or {}).get(file, address)
        raw.append(download(address, folder / file, sha256=(sha256 or {}).get(file), timeout=timeout))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            made = source.convert(*raw, Path(scratch))
        except _UNREADABLE as error:
            raise ValueError(
                f"{name}'s raw files are not as expected ({type(error).__name__}): {error}"
            ) from error
        for path in made:
            os.replace(path, folder / path.name)
        return [folder / path.name for path in made]


def download(url: str, path: str | Path, *, sha256: str | None = None, timeout: float = 60.0) -> Path:
    """Download a file atomically and check it.

    An existing file is checked and kept. The expected checksum is ``sha256``, or else the one recorded in
    ``<path>.sha256``. Without either, the file is trusted with a warning and its checksum is recorded.

    Raises:
        ValueError: wrong checksum (an existing file is kept for inspection).
        ConnectionError: no answer, an error from the server, or fewer bytes than it announced.
    """
    web = isinstance(url, str) and url.startswith(("https://", "http://"))
    validation.require(web, "url", url, "an address that begins with https:// or http://")
    target = Path(path)
    record = target.with_name(target.name + ".sha256")
    expected = sha256.lower() if sha256 is not None else _recorded(record)
    if target.exists():
        with target.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        _check(str(target), found, expected)
    else:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as opened:
                found = _receive(url, opened, timeout)
            _check(url, found, expected)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    if expected is None:
        warnings.warn(
            f"no checksum of {target.name} is known: trusting this file, and recording its SHA-256 {found} "
            f"in {record}",
            stacklevel=2,
        )
    if _recorded(record) != found:
        record.write_text(f"{found}  {target.name}\n", encoding="ascii")
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


def _recorded(record: Path) -> str | None:
    words = record.read_text(encoding="ascii").split() if record.exists() else []
    return words[0] if words else None


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
