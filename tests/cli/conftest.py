"""Races of these tests are short: drawing their page would take most of the time."""

import pytest


@pytest.fixture
def without_a_page(monkeypatch):
    """An empty report.html. Whole ones: test_cli_advice.py, tests/test_docs.py, and races in processes of their own."""
    monkeypatch.setattr("bandits_torch.cli.play.page", lambda *given: "<html></html>")
