"""The page: tracking error and rate of every generator, and what is asked of ours."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.pages import read, render, too_few, with_error

OPENING = 10  # random shots that all generators are given
OURS = "ours"
_DRIFTING = "Xopt, time-dependent UCB"
ORACLE, ORACLE_OF_LEAST = "given those of all values", "given those of small values"  # what ``oracle`` plays
_EDGES = (50, 100, 200, 500, 1_000, 2_000)  # shots between which errors and rates of ours are told apart
TRACKER, LATE = "exact tracker", "the same, {} shots late"  # what ``limit`` plays


def write_page(out: Path) -> Path:
    table = pd.read_csv(out / "shots.csv")
    complete = set.intersection(*table.groupby("player")["seed"].agg(set))  # seeds that all have played
    table = table[(table["shot"] >= OPENING) & table["seed"].isin(complete)]
    ours, most = table[table["player"] == OURS], int(table.loc[table["player"] != OURS, "shot"].max()) + 1
    same = table[table["shot"] < most]
    runs = same.groupby(["player", "seed"], sort=False)["error"].mean()
    shown = runs.groupby("player", sort=False).agg(with_error, digits=3, errors=2)
    means = runs.groupby("player", sort=False).mean()
    xopt = means[means.index.str.startswith("Xopt")]
    decided = {OURS, _DRIFTING} <= set(means.index)  # else only some have played
    last = int(ours["shot"].max()) + 1 if decided else OPENING
    seconds = same.groupby("player")["seconds"].mean()
    return render(
        out / "RESULTS.md",
        "xopt/RESULTS.md.jinja",
        table=table,
        seeds=complete,
        opening_shots=OPENING,
        shots=int(table["shot"].max()) + 1,
        most=most,
        lengths=(ours.groupby("seed")["shot"].max() + 1).to_dict(),
        same=same,
        shown=shown,
        rate=seconds[_DRIFTING] / seconds[OURS] if decided else None,
        best=xopt.idxmin() if decided else None,
        share=means[OURS] / xopt.min() if decided else None,
        ours=ours,
        edges=list(pairwise([OPENING, *(edge for edge in _EDGES if edge < last), last])),
        oracle=_oracle(read(out / "oracle.csv")),
        limit=read(out / "limit.csv"),
    )


def _oracle(table: pd.DataFrame | None) -> dict[str, Any] | None:
    """Ours beside one that is given what ours has to learn."""
    if table is None:
        return None
    rows, better = [], {}
    for span, words in (("error", "all shots after the opening"), ("late", "the second half")):
        runs = table.pivot(index="seed", columns="what", values=span).dropna()
        less = {name: runs[OURS] - runs[name] for name in runs.columns if name != OURS}
        cells = {
            name: f"{with_error(runs[name], 3, 2)} ({with_error(of, 3, 2)})" for name, of in less.items()
        }
        rows.append({"error over": words, OURS: with_error(runs[OURS], 3, 2)} | cells)
        better[words] = [name for name, of in less.items() if of.mean() > 2 * of.sem()]
    played = table[table["seed"].isin(runs.index)]
    few = too_few(played, "seed", "what")
    return {"played": played, "few": few, "errors": pd.DataFrame(rows), "better": better}
