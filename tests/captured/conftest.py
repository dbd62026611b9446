"""Blocks are plain calls in these tests, as on a machine without numba, but where a test says otherwise."""

import pytest


@pytest.fixture(autouse=True)
def plain_calls(monkeypatch):
    monkeypatch.setattr("bandits_torch.captured.blocks.compiled_blocks", lambda steps, device: None)
