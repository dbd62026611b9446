"""``python -m benchmarks.cycles``: play the records, and write the page."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks import options, pages
from benchmarks.cycles.page import write_page
from benchmarks.cycles.playing import RECORDS, compare


def main(
    records: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(RECORDS)}.")] = "",
    data: options.Data = options.DATA,
    out: options.Out = None,
    page: options.PageAlone = False,
) -> None:
    """Play, and write what came of it; other records of the table stay."""
    folder, names = pages.results_folder(__file__, out), options.chosen(records, RECORDS, "records")
    for record in [] if page else names:
        pages.keep(folder / "totals.csv", compare(record, data, pages.say), ("record",))
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()
