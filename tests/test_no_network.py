"""Importing the package asks nobody for anything, and neither do the tests."""

import socket
import subprocess
import sys

import pytest

IMPORT_EVERYTHING = """
import importlib, pkgutil, socket

def refuse(*arguments, **options):
    raise SystemExit(f"the network was asked for: {arguments}")

socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
import bandits_torch
for module in pkgutil.walk_packages(bandits_torch.__path__, "bandits_torch."):
    if module.name != "bandits_torch.__main__":
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError:
            if not module.name.startswith("bandits_torch.integrations."):  # whose tool may not be installed
                raise
"""


def test_importing_every_module_needs_no_network():
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT_EVERYTHING], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_a_test_that_connects_elsewhere_fails():
    with socket.socket() as one, pytest.raises(AssertionError, match="only this machine"):
        one.connect(("192.0.2.1", 80))  # an address that is nobody's (RFC 5737)
