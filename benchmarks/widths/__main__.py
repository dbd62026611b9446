"""``python -m benchmarks.widths``: play what is asked for, and write the page."""

from __future__ import annotations

from typing import Annotated

import pandas as pd
import typer

from benchmarks import options, pages
from benchmarks.widths import races, ratios
from benchmarks.widths.page import write_page

PARTS = (*races.PARTS, "ratios")


def main(
    parts: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(PARTS)}; empty: none.")] = "",
    data: options.Data = options.DATA,
    out: options.Out = None,
    horizon: Annotated[int, typer.Option(help="Steps of a run.")] = 500,
    replicates: Annotated[int, typer.Option(help="Of each problem.")] = 10,
) -> None:
    """Play the parts; write the page from all tables there are."""
    folder = pages.results_folder(__file__, out)
    for part in options.chosen(parts, PARTS, "parts") if parts else ():
        if part == "ratios":
            pages.save(ratios.table(), folder / "ratios.csv")
            pages.save(ratios.regrets(), folder / "dual.csv")
            continue
        problems, policies = races.PARTS[part]
        tables = []
        for table in races.totals(problems(data), policies, horizon, replicates):
            tables.append(table)
            pages.save(pd.concat(tables), folder / f"{part}.csv")
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()
