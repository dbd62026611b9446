"""``python -m benchmarks.widths``: play what is asked for, and write the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from benchmarks.widths import races, ratios
from benchmarks.widths.page import write_page

HERE = Path(__file__).parent
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
PARTS = (*races.PARTS, "ratios")


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
        if part == "ratios":
            ratios.table().to_csv(out / "ratios.csv", index=False, float_format="%.6g")
            ratios.regrets().to_csv(out / "dual.csv", index=False, float_format="%.6g")
            continue
        problems, policies = races.PARTS[part]
        tables = []
        for table in races.totals(problems(data), policies, horizon, replicates):
            tables.append(table)
            pd.concat(tables).to_csv(out / f"{part}.csv", index=False, float_format="%.6g")
    print(f"wrote {write_page(out)}")


if __name__ == "__main__":
    app()
