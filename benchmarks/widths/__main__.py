"""``python -m benchmarks.widths``: play what is asked for, and write the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from benchmarks.widths import races

HERE = Path(__file__).parent
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
PARTS = ("band",)


@app.command()
def main(
    parts: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(PARTS)}; empty: none.")] = "",
    data: Annotated[Path, typer.Option(help="Folder of the real data.")] = Path("shared/data"),
    out: Annotated[Path, typer.Option(help="Folder of tables and page.")] = HERE / "results",
    horizon: Annotated[int, typer.Option(help="Steps of a run.")] = 500,
    replicates: Annotated[int, typer.Option(help="Of each problem.")] = 10,
) -> None:
    """Play the parts; write the page from all tables there are."""
    out.mkdir(parents=True, exist_ok=True)
    for part in filter(None, parts.split(",")):
        played = {"band": (races.band(data), races.BAND)}[part]
        tables = []
        for table in races.totals(*played, horizon, replicates):
            tables.append(table)
            pd.concat(tables).to_csv(out / f"{part}.csv", index=False, float_format="%.6g")


if __name__ == "__main__":
    app()
