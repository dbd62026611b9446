"""``python -m benchmarks.diagnosis``: draw the files, diagnose them, and write the page."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from bandits_torch import diagnose
from bandits_torch.problems.tables import read_table
from benchmarks import options, pages
from benchmarks.diagnosis.files import draw

REPORTED = 50
_NEAR, _CLEAR = 5, 2.0  # rows; deviations of the noise


def judge(number: int) -> dict[str, object]:
    """The truth of a file beside what was said of it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        path = Path(folder) / "file.csv"
        truth = draw(number, path)
        found = diagnose(read_table(path))
    told = [one.after for one in found.jumps or ()]
    left, hits = list(told), []
    for at in truth.jumps:
        near = [one for one in left if abs(one - at) <= _NEAR]
        hits.append(bool(near))
        if near:
            left.remove(min(near, key=lambda one: abs(one - at)))
    right = [truth.period is not None and abs(one.length / truth.period - 1) < 0.05 for one in found.periods]
    low, high = found.noise_interval or (float("nan"), float("nan"))
    return {
        "file": number,
        "kind": truth.kind,
        "said": found.values,
        "rows": truth.rows,
        "arms": truth.arms,
        "missing": truth.missing,
        "period": truth.period,
        "periods_told": " ".join(f"{one.length:.5g}" for one in found.periods),
        "periods_right": sum(right),
        "own_told": len(found.own_periods),
        "drift": truth.drift,
        "drift_told": bool(found.drift),
        "jumps": " ".join(map(str, truth.jumps)),
        "sizes": " ".join(f"{size:.2f}" for size in truth.sizes),
        "jumps_told": " ".join(map(str, told)),
        "jumps_found": sum(hits),
        "clear": sum(size >= _CLEAR for size in truth.sizes),
        "clear_found": sum(hit for hit, size in zip(hits, truth.sizes, strict=True) if size >= _CLEAR),
        "noise": truth.noise,
        "low": low,
        "high": high,
        "covered": low <= truth.noise <= high,
    }


def write_page(folder: Path) -> Path:
    """Write ``RESULTS.md`` beside the table it is made from."""
    table = pd.read_csv(folder / "files.csv", keep_default_na=True)
    cycles = table["period"].notna()
    lists = {
        name: table[name].astype("string").fillna("").str.split()
        for name in ("jumps", "jumps_told", "periods_told")
    }
    count = {name: values.map(len) for name, values in lists.items()}

    def share(part: float, whole: float) -> str:
        return f"{int(part)} of {int(whole)}" + (f" ({part / whole:.2f})" if whole else "")

    rows = [
        ["kind", share((table["kind"] == table["said"]).sum(), len(table)), ""],
        [
            "cycle, of all arms",
            share(table["periods_right"].sum(), count["periods_told"].sum()),
            share((table.loc[cycles, "periods_right"] > 0).sum(), cycles.sum()),
        ],
        [
            "jumps",
            share(table["jumps_found"].sum(), count["jumps_told"].sum()),
            share(table["jumps_found"].sum(), count["jumps"].sum()),
        ],
        ["jumps of two deviations or more", "", share(table["clear_found"].sum(), table["clear"].sum())],
        [
            "drift",
            share((table["drift_told"] & (table["drift"] > 0)).sum(), table["drift_told"].sum()),
            share((table["drift_told"] & (table["drift"] > 0)).sum(), (table["drift"] > 0).sum()),
        ],
    ]
    covered = table["covered"].mean()
    answer = (
        f"Of {len(table)} files the kind is right in {(table['kind'] == table['said']).sum()}; of the cycles told "
        f"{rows[1][1]} are right and {rows[1][2]} are found; of the jumps told {rows[2][1]} are right and {rows[2][2]} "
        f"are found; the 90 % interval of the noise holds it in {covered:.0%} of the files (asked: 85 to 95 %)."
    )
    text = pages.opening(
        "What a diagnosis says of files of known truth", answer, "python -m benchmarks.diagnosis"
    )
    about = (
        f"\n{pages.seeds_of(table, 'file')}; `PROTOCOL.md` was written first, and says what counts as right. Cycles of "
        f"single arms that do not exist were told in {int((table['own_told'] > 0).sum())} files.\n\n"
    )
    return pages.write(
        folder / "RESULTS.md", text + about + pages.markdown(["", "right of those told", "found"], rows)
    )


def main(
    first: Annotated[int, typer.Option(help="Number of the first file.")] = 0,
    files: Annotated[int, typer.Option(help="How many.")] = REPORTED,
    out: options.Out = None,
    page: options.PageAlone = False,
) -> None:
    """Draw, diagnose, and write what came of it; other files of the table stay."""
    folder = pages.results_folder(__file__, out)
    if not page:
        rows = pd.DataFrame([judge(number) for number in range(first, first + files)])
        pages.keep(folder / "files.csv", rows, ("file",))
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()
