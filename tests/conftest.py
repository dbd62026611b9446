"""One thread per test process, as pytest-xdist runs as many processes as there are cores; the same draws every run; no
network beyond this machine.

A run leaves out tests marked ``slow`` and cases of tests marked ``sampled``, unless the command line names them
(``::``). ``--rest`` runs these, as continuous integration does afterwards. ``--full`` runs all, and the long form of
tests that have one.
"""

import socket
from collections import defaultdict
from collections.abc import Iterator
from math import ceil
from zlib import crc32

import pytest
import torch

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="every test and case, in its long form if it has one"
    )
    parser.addoption(
        "--rest", action="store_true", help="the tests and cases that a run leaves out, and no others"
    )
    parser.addoption(
        "--device", default="cpu", help="where tensors are made that name no device: cpu or cuda"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: left out, but for --rest and --full")
    config.addinivalue_line(
        "markers", "sampled(n): one case in n is run, always the same ones; the others as slow"
    )
    if getattr(config.option, "dist", None) == "load":
        config.option.dist = "worksteal"  # pytest-xdist: what a module's tests share is then made once


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("full"):
        return
    named = tuple(arg.split("/")[-1] for arg in config.args if "::" in arg)
    asked = [item for item in items if not (named and item.nodeid.split("/")[-1].startswith(named))]
    slow = _slow(asked)
    gone = set(items) - slow if config.getoption("rest") else slow
    config.hook.pytest_deselected(items=list(gone))
    items[:] = [item for item in items if item not in gone]


def _slow(items: list[pytest.Item]) -> set[pytest.Item]:
    """The items marked ``slow``, and of every test marked ``sampled`` (n) all cases but one in n."""
    found, cases = set(), defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow"):
            found.add(item)
        elif item.get_closest_marker("sampled"):
            cases[item.nodeid.split("[")[0]].append(item)
    for each in cases.values():
        each.sort(key=lambda item: crc32(item.nodeid.encode()))
        found.update(each[ceil(len(each) / each[0].get_closest_marker("sampled").args[0]) :])
    return found


def pytest_report_header(config: pytest.Config) -> str:
    return (
        "long forms"
        if config.getoption("full")
        else "short forms where there are such: --full runs the long ones"
    )


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of a test was asked for."""
    return bool(request.config.getoption("full"))


@pytest.fixture(autouse=True)
def _device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tensors of a test are made on the device asked for, those of its parameters on the CPU."""
    device = request.config.getoption("device")
    if device == "cpu":
        yield
        return
    torch.set_default_device(device)
    yield
    torch.set_default_device(None)


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
