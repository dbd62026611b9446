"""The page: tracking error and rate of every generator, and what is asked of ours."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.pages import read, render, seeds_of, too_few, with_error

OPENING = 10  # random shots that all generators are given
OURS = "ours"
_DRIFTING = "Xopt, time-dependent UCB"
ORACLE, ORACLE_OF_LEAST = "given those of all values", "given those of small values"  # what ``oracle`` plays
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
    seconds = same.groupby("player")["seconds"].mean()
    limit = read(out / "limit.csv")
    return render(
        out / "RESULTS.md",
        "xopt/RESULTS.md.jinja",
        table=table,
        seeds=complete,
        shots=int(table["shot"].max()) + 1,
        most=most,
        lengths=(ours.groupby("seed")["shot"].max() + 1).to_dict(),
        generators=_generators(same, shown, most),
        shown=shown,
        rate=seconds[_DRIFTING] / seconds[OURS] if decided else None,
        best=xopt.idxmin() if decided else None,
        share=means[OURS] / xopt.min() if decided else None,
        further=_further(ours) if decided else None,
        oracle=_oracle(read(out / "oracle.csv")),
        limit=limit,
        limits=None if limit is None else _limits(limit),
    )


def _generators(same: pd.DataFrame, shown: pd.Series, most: int) -> pd.DataFrame:
    """Error and rate of every generator over the shots that all have."""
    rows = []
    for name, runs in same.groupby("player", sort=False):
        late = runs[runs["shot"] >= most // 2].groupby("seed")["error"].mean().mean()
        end = runs[runs["shot"] >= most - 10]
        rates = [f"{1 / of['seconds'].mean():.2f}" for of in (runs, end)]
        seeds, failed = runs["seed"].nunique(), int(runs["failed"].sum())
        rows.append((name, seeds, shown[name], f"{late:.3f}", *rates, failed))
    heads = ["generator", "seeds", f"error, shots {OPENING} to {most - 1}", f"from shot {most // 2}"]
    return pd.DataFrame(rows, columns=[*heads, "shots a second", "at the last ten", "failed fits"])


def _further(ours: pd.DataFrame) -> pd.DataFrame:
    """Error and rate of ours, as shots go on."""
    shots = int(ours["shot"].max()) + 1
    edges, rows = [OPENING, *[edge for edge in (50, 100, 200, 500, 1_000, 2_000) if edge < shots], shots], []
    for low, high in pairwise(edges):
        part = ours[(ours["shot"] >= low) & (ours["shot"] < high)]
        error, rate = part.groupby("seed")["error"].mean().mean(), 1 / part["seconds"].mean()
        seeds = seeds_of(ours[ours["shot"] >= low], "seed")
        rows.append((f"{low} to {high - 1}", f"{error:.3f}", f"{rate:.1f}", seeds))
    return pd.DataFrame(rows, columns=["shots", "error", "shots a second", "seeds"])


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


def _limits(limit: pd.DataFrame) -> pd.DataFrame:
    """What the drift alone costs one who knows all else."""
    each = sorted(limit.groupby("what"), key=lambda pair: pair[1]["early"].mean())
    rows = [[what, *(with_error(own[span], 3, 2) for span in ("early", "all"))] for what, own in each]
    return pd.DataFrame(rows, columns=["strengths", "error, first shots", "all shots"])
