"""RESULTS.md and claims.csv of Calandriello et al. (2019), from the CSV files beside them."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._claims import NOT_RUN, Finding, judged

PAPER, OURS = "Calandriello et al. 2019", "asked of this library"
Rows = Iterator[tuple[str, str, str, Finding, str]]  # as ``_claims.of_rows`` takes them
# (arms, steps): seconds of BKB and of batch BKB, published and asked for here
_PUBLISHED = {(1000, 2000): (13.8, 1.2), (10_000, 500): (26.2, 11.2)}
_ASKED = {(1000, 2000): (3.0, 0.6), (10_000, 500): (6.0, 3.0)}
_WAYS = ("BKB, a draw a step", "batch BKB, C 5")


def write(out: Path) -> None:
    tables = {
        name: rows
        for name in (*_CLAIMS, "settings", "batch")
        if (rows := pages.read(out / f"{name}.csv")) is not None
    }
    said = [row for name, claims in _CLAIMS.items() if name in tables for row in claims(tables[name])]
    shown = {name: rows if name == "regret" else _plain(rows) for name, rows in tables.items()}
    _claims.write_page(out, "calandriello", PAPER, _claims.of_rows("calandriello", said), **shown)


def _starvation(rows: pd.DataFrame) -> Rows:
    late = rows[rows["t"] == rows["t"].max()].set_index("posterior")
    far, inside = late["smallest_deviation_far"], late["share_within_3_sigma"]
    said = "; ".join(
        f"{name}: smallest sigma on [0.8, 1] {far[name]:.3f}, {100 * inside[name]:.1f} % of all arms within 3 sigma"
        for name in late.index
    )
    numbers = f"t = {rows['t'].max()}. {said}"
    honest = judged(far["BKB"] > 0.99 and inside["BKB"] > 0.99, numbers)
    yield PAPER, "Figure 2", "BKB's variance does not starve", honest, "starvation"
    for name in ("subset of regressors", "random Fourier features"):
        says = f"{name} starve: away from the data they are much surer than the prior"
        sure = judged(far[name] < 0.5, f"{numbers} (asked: a sigma below half the prior's)")
        yield PAPER, "Figure 2", says, sure, "starvation"


def _coverage(rows: pd.DataFrame) -> Rows:
    share = rows["share_within_3_sigma"]
    numbers = ", ".join(f"t = {t}: {100 * s:.0f} %" for t, s in zip(rows["t"], share, strict=True))
    says = "random Fourier features starve: at a fixed number of them the truth leaves their band as t grows"
    falls = (share.diff().iloc[1:] < 0).all() and share.iloc[-1] < 0.9
    asked = f"of all arms within 3 sigma, {numbers} (asked: falling, to below 90 %)"
    yield PAPER, "Figure 2", says, judged(falls, asked), "coverage"


def _accuracy(rows: pd.DataFrame) -> Rows:
    share, runs = rows.set_index("preset")["share_within"], rows["runs"].iloc[0]
    numbers = ", ".join(f"{name}: {100 * value:.1f} % of {runs} runs" for name, value in share.items())
    says = "with probability 1 - delta the variances are within a factor alpha of the exact ones, at all arms and steps"
    yield PAPER, "Theorem 1", says, judged(share["theory"] >= 0.9, numbers), "accuracy"


def _regret(rows: pd.DataFrame) -> Rows:
    for width, group in rows.groupby("width", sort=False):
        mean = group.groupby("sampler")["regret"].mean()
        says = f"with the width {width}, BKB at qbar 5 has at most 5 % more regret than the exact sampler"
        found = NOT_RUN._replace(numbers="not played")
        if "BKB, qbar 5" in mean:  # else a run was cut short
            ours, exact = mean["BKB, qbar 5"], mean["exact"]
            numbers = f"{ours:.1f} against {exact:.1f}: {100 * (ours / exact - 1):+.1f} %"
            found = judged(ours <= 1.05 * exact, numbers)
        yield OURS, "section 5", says, found, "regret"


def _growth(rows: pd.DataFrame) -> Rows:
    first, early, half, end = (rows.iloc[k] for k in (0, 2, -2, -1))
    more, slower = end["draw"] / half["draw"], end["ms_per_step"] / early["ms_per_step"]
    drawn = (
        f"from t = {half['t']:.0f} to {end['t']:.0f} a draw grows {more:.2f} times; "
        f"{first['draw']:.0f} arms at t = {first['t']:.0f}, {end['draw']:.0f} at {end['t']:.0f}"
    )
    says = "the dictionary grows as the effective dimension, more slowly than t"
    yield PAPER, "Theorem 1", says, judged(more < (end["t"] / half["t"]) ** 0.5, drawn), "growth"
    cost = (
        f"{early['ms_per_step']:.2f} ms at t = {early['t']:.0f}, {end['ms_per_step']:.2f} ms after "
        f"{end['t'] / early['t']:.0f} times as many steps: {slower:.2f} times (asked: below 2); exact "
        f"{end['exact_ms_per_step']:.2f} ms"
    )
    yield PAPER, "abstract", "the cost of a step hardly grows with t", judged(slower < 2, cost), "growth"


def _adaptive(rows: pd.DataFrame) -> Rows:
    rows = rows.sort_values("lengthscale")
    said = ", ".join(
        f"l {row['lengthscale']:g}: d_eff {row['effective_dimension']:.0f}, draw {row['draw']:.1f}"
        for row in rows.to_dict("records")
    )
    falls = all(a > b for a, b in itertools.pairwise(rows["draw"]))
    says = "the size of the dictionary adapts to the function: fewer arms where d_eff is smaller"
    yield PAPER, "section 3.2", says, judged(falls, said), "adaptive"


def _times(rows: pd.DataFrame) -> Rows:
    for (arms, steps), published in _PUBLISHED.items():
        here = rows[(rows["arms"] == arms) & (rows["steps"] == steps)].set_index("policy")["seconds"]
        for way, theirs, asked in zip(_WAYS, published, _ASKED[arms, steps], strict=True):
            if way in here.index:
                numbers = f"{here[way]:.2f} s; published code {theirs} s on another machine"
                says = f"{way}: A = {arms}, T = {steps} in at most {asked} s on one core"
                yield OURS, "times", says, judged(here[way] <= asked, numbers), "times"


def _numpy(rows: pd.DataFrame) -> Rows:
    for row in rows.to_dict("records"):
        times, same, size = (
            row["printed_times"],
            row["cholesky_same_choices"],
            f"A = {row['arms']}, T = {row['steps']}",
        )
        numbers = (
            f"{times:.2f} times; at the last step our products alone allow {row['times_by_products']:.1f}, the least "
            f"{row['times_at_most']:.1f}"
        )
        says = f"BKB, a draw a step: {size} at least 4 times faster than plain NumPy"
        yield OURS, "times", says, judged(times >= 4, numbers), "numpy"
        says = f"BKB chooses as NumPy with a Cholesky factor does: {size}"
        alike = judged(same == row["steps"], f"the same arm at {same} of {row['steps']} steps")
        yield OURS, "Figure 1", says, alike, "numpy"


_CLAIMS: dict[str, Callable[[pd.DataFrame], Rows]] = {
    "starvation": _starvation,
    "coverage": _coverage,
    "accuracy": _accuracy,
    "regret": _regret,
    "growth": _growth,
    "adaptive": _adaptive,
    "times": _times,
    "numpy": _numpy,
}


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns with blanks in their names, nothing where there is no number."""
    plain = frame.rename(columns=lambda name: str(name).replace("_", " "))
    return plain.astype(object).where(plain.notna(), "")
