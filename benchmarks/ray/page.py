"""The page of results."""

from __future__ import annotations

from pathlib import Path


def write_page(results: Path) -> Path:
    """RESULTS.md beside the tables."""
    return results
