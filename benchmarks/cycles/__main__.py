"""``python -m benchmarks.cycles``: play the records, and write the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cycles.page import write_page
from benchmarks.cycles.playing import compare
from benchmarks.cycles.records import RECORDS
from benchmarks.tables import keep

HERE = Path(__file__).parent
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    records: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(RECORDS)}.")] = ",".join(
        RECORDS
    ),
    data: Annotated[Path, typer.Option(help="Folder of the real data.")] = Path("shared/data"),
    out: Annotated[Path, typer.Option(help="Folder of table and page.")] = HERE / "results",
    page: Annotated[bool, typer.Option(help="Write the page from the table alone.")] = False,
) -> None:
    """Play, and write what came of it; other records of the table stay."""
    path = out / "totals.csv"
    for record in [] if page else records.split(","):
        rows = compare(record, data, lambda line: print(line, flush=True))
        keep(path, rows, ("record",))
    print(f"wrote {write_page(out)}")


if __name__ == "__main__":
    app()
