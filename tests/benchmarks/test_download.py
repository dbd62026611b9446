"""Downloads from a server on this machine: whole and checked, or nothing left behind."""

import dataclasses
import gzip
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bandits_torch.problems import MoleneWind
from benchmarks.data.download import SOURCES, download, fetch
from tests.benchmarks.raw_files import molene_lines, write_molene

CONTENT = b"some bytes" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        content = self.server.contents.get(name)  # type: ignore[attr-defined]
        self.server.asked.append(name)  # type: ignore[attr-defined]
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        if name.endswith(".gz"):
            self.send_header("Content-Encoding", "x-gzip")
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if name == "half" else content)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


class Server:
    """Addresses and contents of the test server, and what it was asked for."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.contents: dict[str, bytes] = {"whole": CONTENT, "half": CONTENT}
        self.asked: list[str] = []
        server.contents, server.asked = self.contents, self.asked  # type: ignore[attr-defined]
        self.port = server.server_address[1]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"


@pytest.fixture
def server() -> Iterator[Server]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Server(running)
        running.shutdown()
        thread.join()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch, server: Server) -> Callable[[str, str], None]:
    """Lets a data set's only raw file come from the server on this machine."""

    def move(name: str, at: str) -> None:
        (file,) = SOURCES[name].urls
        monkeypatch.setitem(SOURCES, name, dataclasses.replace(SOURCES[name], urls={file: server.url(at)}))

    return move


def test_a_compressed_file_is_kept_as_it_was_sent(tmp_path: Path, server: Server) -> None:
    """Servers label such files as encoded, and many readers then unpack them on the way."""
    content = gzip.compress(CONTENT)
    server.contents["file.gz"] = content
    with pytest.warns(UserWarning, match=hashlib.sha256(content).hexdigest()):
        assert download(server.url("file.gz"), tmp_path / "file.gz").read_bytes() == content


def test_first_download_is_trusted_with_a_warning_and_recorded(tmp_path: Path, server: Server) -> None:
    with pytest.warns(UserWarning, match=f"no checksum of file is known: trusting this file.*{DIGEST}"):
        download(server.url("whole"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert (tmp_path / "file.sha256").read_text() == f"{DIGEST}  file\n"
    assert _names(tmp_path) == ["file", "file.sha256"]
    (tmp_path / "any").touch()
    assert (
        len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
    )  # others may read it, as any new file


def test_a_later_download_must_agree_with_the_record(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file.sha256").write_text(f"{DIGEST}  file\n")
    server.contents["whole"] = CONTENT + b"!"
    with pytest.raises(ValueError, match=f"SHA-256 of .* must be {DIGEST}, got"):
        download(server.url("whole"), tmp_path / "file")
    assert _names(tmp_path) == ["file.sha256"]
    server.contents["whole"] = CONTENT
    assert download(server.url("whole"), tmp_path / "file").exists()


def test_a_file_already_there_is_checked_and_not_downloaded(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file.sha256").write_text(f"{DIGEST}  file\n")
    for _ in range(2):
        download(server.url("whole"), tmp_path / "file")
    assert server.asked == ["whole"]
    (tmp_path / "file").write_bytes(b"spoilt")
    with pytest.raises(ValueError, match=f"must be {DIGEST}"):
        download(server.url("whole"), tmp_path / "file")
    assert server.asked == ["whole"]


@pytest.mark.parametrize("name", ["half", "absent"])
def test_broken_connection_leaves_nothing_behind(tmp_path: Path, server: Server, name: str) -> None:
    with pytest.raises(ConnectionError, match=f"cannot download .*{name}"):
        download(server.url(name), tmp_path / "file")
    assert _names(tmp_path) == []


@pytest.mark.parametrize("silent", [True, False])
def test_a_server_that_is_silent_or_not_there_is_given_up(tmp_path: Path, silent: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if silent:
            other.listen()
        with pytest.raises(ConnectionError, match="cannot download"):
            download(f"http://127.0.0.1:{other.getsockname()[1]}/x", tmp_path / "file", timeout=0.2)
    assert _names(tmp_path) == []


def test_fetch_downloads_converts_and_plays(tmp_path: Path, server: Server, moved) -> None:
    archive = write_molene(tmp_path / "made_up", {"a.txt": molene_lines(range(48))})
    server.contents["molene"] = archive.read_bytes()
    moved("molene", "molene")
    folder = tmp_path / "data"
    with pytest.warns(UserWarning, match="no checksum of RADOMEH"):
        (path,) = fetch("molene", folder)
    assert path == folder / "molene_weather.npz"
    assert _names(folder) == ["RADOMEH.tar.gz", "RADOMEH.tar.gz.sha256", "molene_weather.npz"]
    assert MoleneWind(folder).horizon == 38


def test_fetch_of_a_file_in_another_format_is_refused(tmp_path: Path, moved) -> None:
    names = {"beijing": "beijing_air_quality.zip", "molene": "RADOMEH.tar.gz"}
    for name, file in names.items():
        moved(name, "whole")
        refused = pytest.raises(ValueError, match=f"{name}'s raw files are not as expected")
        with pytest.warns(UserWarning, match="no checksum"), refused:
            fetch(name, tmp_path / name)
        assert _names(tmp_path / name) == [file, f"{file}.sha256"]


def test_fetch_refuses_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name must be one of intel, molene, beijing, got 'mars'"):
        fetch("mars", tmp_path)


def test_every_source_is_named_with_its_terms() -> None:
    for source in SOURCES.values():
        assert source.terms
        assert all(url.startswith("https://") for url in source.urls.values())
