"""A write is whole or not at all: one that fails leaves the file of before, a signal in the middle waits."""

import signal
import threading

import numpy as np
import pytest
import torch

from bandits_torch import History
from bandits_torch.files import interrupts_held_back
from bandits_torch.state_files import read_state, write_state


def a_history(path):
    table, steps = torch.ones(1, 2), torch.arange(2.0)
    History(table.long(), table, table, table, steps, steps).save(path)
    History.load(path)


def a_state(path):
    write_state(path, "run", {"reward": torch.ones(3)})
    read_state(path, "run")


def terminated(number, frame):
    raise KeyboardInterrupt


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def number(request):
    before = signal.signal(signal.SIGTERM, terminated)
    yield request.param
    signal.signal(signal.SIGTERM, before)


WRITERS = pytest.mark.parametrize(("writer", "write"), [("savez", a_state), ("savez_compressed", a_history)])


@WRITERS
def test_a_write_that_fails_leaves_the_file_of_before(writer, write, tmp_path, monkeypatch):
    write(tmp_path / "file")
    before = (tmp_path / "file").read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, writer, full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@WRITERS
def test_a_signal_waits_until_the_file_is_whole(writer, write, number, tmp_path, monkeypatch):
    whole = getattr(np, writer)

    def interrupted(file, **arrays):
        signal.raise_signal(number)
        whole(file, **arrays)

    monkeypatch.setattr(np, writer, interrupted)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "file")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    monkeypatch.undo()
    written = (tmp_path / "file").read_bytes()
    write(tmp_path / "again")
    assert len(written) == len((tmp_path / "again").read_bytes())


def test_an_error_in_the_block_is_raised_and_the_handlers_are_back():
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(OSError, match="full"), interrupts_held_back():
        raise OSError("full")
    assert signal.getsignal(signal.SIGINT) is handler


def test_another_thread_leaves_the_handlers_alone():
    seen = []

    def work():
        with interrupts_held_back():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
