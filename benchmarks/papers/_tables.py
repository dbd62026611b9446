"""A data frame as a Markdown table."""

from __future__ import annotations

import pandas as pd


def markdown(frame: pd.DataFrame) -> str:
    """Header, rule and rows; the values as ``str`` has them."""
    lines = [list(map(str, frame.columns)), ["---"] * frame.shape[1], *frame.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
