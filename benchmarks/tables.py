"""Tables of results that grow from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from bandits_torch.files import atomic_write


def keep(path: Path, rows: pd.DataFrame, key: Sequence[str]) -> None:
    """Put rows in a CSV file, in place of those of the same key, in the order of keys; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        rows = replaced(pd.read_csv(path), rows, key)
    rows = rows.sort_values(list(key), kind="stable")
    with atomic_write(path) as file:
        rows.to_csv(file, index=False, float_format="%.6g")


def replaced(table: pd.DataFrame, rows: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """The table with these rows in place of those of the same key."""
    columns = list(key)
    kept = table[~table.set_index(columns).index.isin(rows.set_index(columns).index)]
    return rows if kept.empty else pd.concat([kept, rows], ignore_index=True)
