"""One thread per test process, as pytest-xdist runs as many processes as there are cores; the same draws every run; no
network beyond this machine."""

import socket
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    """A test's random numbers do not depend on the tests that ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    """Connections go to this machine only; a local server stands in for downloads."""
    connect, own = socket.socket.connect, {"127.0.0.1", "::1", "localhost", socket.gethostname()}

    def guarded(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and address[0] not in own:
            raise AssertionError(f"a test wants to connect to {address}: only this machine is allowed")
        connect(self, address)  # type: ignore[arg-type]

    socket.socket.connect = guarded  # type: ignore[method-assign]
    yield
    socket.socket.connect = connect  # type: ignore[method-assign]
