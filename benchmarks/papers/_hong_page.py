"""RESULTS.md and claims.csv of Hong, Li & Tewari (2023), from the CSV files beside them."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._claims import Claim, Finding
from benchmarks.papers._hong_environments import ALGORITHMS, EQUAL, EQUAL_GRIDS

PAPER = "Hong, Li & Tewari 2023"
ONE, TWO, STILL, MOVING = "sphere-one-switch", "sphere-two-switches", "cosine-stationary", "cosine"
TUNED, CALIBRATED = "ADA-OPKB tuned", "ADA-OPKB calibrated"
# OPNN's name by the width of its network, and what the claim says of it.
_WIDTHS = {
    "": "",
    ", m = 64": " (m = 64, 50 training steps)",
    ", m = 2048": " (m = 2 048, 50 training steps, 3 replicates)",
}
# Regret of the published code, three runs each; SW-GP-UCB with its downdate put right.
_RANGES = {
    ONE: {"ADA-OPKB": (1900.0, 3800.0), "SW-GP-UCB": (290.0, 430.0)},
    TWO: {"ADA-OPKB": (1700.0, 2100.0), "SW-GP-UCB": (1650.0, 2000.0)},
}


def write(out: Path) -> None:
    names = ("totals", "regret", "grids", "tuning", "false_alarms", "delays")
    totals, regret, grids, tuning, alarms, delays = (pages.read(out / f"{name}.csv") for name in names)
    found, equal, environments = [], None, {}
    if totals is not None:
        found = claims(totals)
        equal = equal_grids(totals) if totals["algorithm"].str.endswith(EQUAL).any() else None
    if regret is not None:
        environments = dict(list(regret.groupby("environment", sort=False)))
    _claims.write_page(
        out,
        "hong",
        PAPER,
        found,
        equal=equal,
        grids=None if grids is None else _chosen(grids),
        searches=EQUAL_GRIDS,
        environments=environments,
        false_alarms=alarms,
        delays=delays,
        theory=(out / "theory.txt").read_text() if (out / "theory.txt").is_file() else None,
        tuning=None if tuning is None else _chosen(tuning),
    )


def claims(totals: pd.DataFrame) -> list[Claim]:
    """What the paper says in section 6 and appendix J, and what was asked besides, with verdicts."""
    judge = _Judge(totals)
    where = {ONE: "1", TWO: "1", "correlated-d2": "correlated", "correlated-d3": "correlated", MOVING: "2"}
    asked = [
        (name, f"ADA-OPKB calibrated beats {other}", judge.less(name, CALIBRATED, other), part)
        for other in (TUNED, "SW-GP-UCB")
        for name, part in (where | {"slow-drift": "drift"}).items()
    ]
    for name, ranges in _RANGES.items():
        for kind, bounds in ranges.items():
            for algorithm in (f"{kind} published", TUNED if kind == "ADA-OPKB" else kind):
                says = f"{algorithm} is in the range of the published code's three runs"
                asked.append((name, says, judge.within(name, algorithm, *bounds), "1"))
    rows = [(PAPER, *row) for row in _said(judge)] + [("this library", *row) for row in asked]
    return _claims.of_rows("hong", rows)


def _said(judge: "_Judge", equal: bool = False) -> list[tuple[str, str, Finding, str]]:
    """(where, claim, finding, part of the command) of the paper's sentences; algorithms as tuned at first, or by equal
    grids."""

    def named(algorithm: str) -> str:
        return f"{algorithm}{EQUAL}" if equal and f"{algorithm}{EQUAL}" in ALGORITHMS else algorithm

    sw, short, wgp, nn = "SW-GP-UCB", "SW-GP-UCB, window 1000", "WGP-UCB", named("ADA-OPNN")
    ada = named("ADA-OPKB") if equal else TUNED
    less, alike, every = judge.less, judge.alike, _claims.every
    worse, level = less(TWO, ada, wgp), alike(TWO, wgp, nn)
    if not equal:
        printed = f"{wgp} published"
        worse = _as_printed(less(TWO, ada, printed), worse)
        level = _as_printed(alike(TWO, printed, nn), level)
    widths = {"": ""} if equal else _WIDTHS
    said = [
        ("figure 1a", "Until the switch SW-GP-UCB has less regret than ADA-OPKB and ADA-OPNN",
         every([less(ONE, sw, other, "until 0.3 T") for other in (ada, nn)]), "1"),
        ("figure 1a", "ADA-OPNN does worse than ADA-OPKB", less(ONE, ada, nn), "1"),
        ("figure 1b", "SW-GP-UCB, tuned on one switch, does worse than ADA-OPKB and ADA-OPNN on two",
         every([less(TWO, other, sw) for other in (ada, nn)]), "1"),
        ("figure 1b", "WGP-UCB, tuned on one switch, does worse than ADA-OPKB on two", worse, "1"),
        ("figure 1b", "WGP-UCB does about as well as ADA-OPNN on two switches", level, "1"),
        *(("figure 2a", f"Training the features helps: OPNN beats OPNN0 on the stationary cosine{words}",
           less(STILL, named(f"OPNN{width}"), named(f"OPNN0{width}")), "2")
          for width, words in widths.items() if not width or len(judge.of(STILL, f"OPNN{width}"))),
        ("figure 2a", "OPNN does about as well as GP-UCB and OPKB",
         every([alike(STILL, named("OPNN"), named(other)) for other in ("GP-UCB", "OPKB")]), "2"),
        ("figure 2b", "SW-GP-UCB with window 3000 is outperformed by ADA-OPKB and ADA-OPNN on the moving cosine",
         every([less(MOVING, other, sw) for other in (ada, nn)]), "2"),
        ("figure 2b", "SW-GP-UCB with window 1000 does best on the moving cosine",
         every([less(MOVING, short, other) for other in (sw, wgp, ada, nn)]), "2"),
        ("figure 2b", "WGP-UCB, tuned on one switch, is outperformed by ADA-OPKB and ADA-OPNN on the moving cosine",
         every([less(MOVING, other, wgp) for other in (ada, nn)]), "2"),
    ]  # fmt: skip
    if not equal:
        said.append(
            ("section 6", "A network of width 2048 and depth 3, its learning rate, steps and regulariser searched for",
             Finding(_claims.UNTESTED, "no GPU here: m = 64, 50 steps at the largest safe rate (OPNN 256, 200, and on "
                     "figure 2a 2 048, 50)"),
             "1")
        )  # fmt: skip
    return said


class _Judge:
    """Findings on the replicates of a totals.csv."""

    def __init__(self, totals: pd.DataFrame) -> None:
        self.totals = totals

    def of(self, name: str, algorithm: str, column: str = "regret") -> np.ndarray:
        """What each replicate of an algorithm has on an environment."""
        t = self.totals
        return t[(t["environment"] == name) & (t["algorithm"] == algorithm)][column].to_numpy()

    def _judged(
        self, rule: Callable[..., Finding], name: str, *algorithms: str, column: str = "regret"
    ) -> Finding:
        values = [self.of(name, algorithm, column) for algorithm in algorithms]
        if min(map(len, values)) < 2:
            return Finding(_claims.UNTESTED, f"{' or '.join(algorithms)} was not run on {name}")
        return rule(*values)

    def less(self, name: str, first: str, second: str, column: str = "regret") -> Finding:
        def paired(a: np.ndarray, b: np.ndarray) -> Finding:
            n = min(len(a), len(b))  # replicate k of both plays the same function and meets the same noise
            return _claims.less(a[:n], b[:n], (first, second))

        return self._judged(paired, name, first, second, column=column)

    def alike(self, name: str, first: str, second: str) -> Finding:
        """Whether both have about the same regret there."""
        return self._judged(partial(_claims.alike, names=(first, second)), name, first, second)

    def within(self, name: str, algorithm: str, low: float, high: float) -> Finding:
        """Whether an algorithm's regret lies in a range there."""
        return self._judged(partial(_claims.within, name=algorithm, low=low, high=high), name, algorithm)


def equal_grids(totals: pd.DataFrame) -> pd.DataFrame:
    """The verdicts on the paper's sentences as the algorithms were tuned at first, and from grids of equal size."""
    judge = _Judge(totals)
    before = {claim: found.verdict for _, claim, found, _ in _said(judge)}
    rows = [
        (where, claim, before[claim], f"**{found.verdict}**", found.numbers.replace(EQUAL, ""))
        for where, claim, found, _ in _said(judge, equal=True)
    ]
    heads = ["where", "what the paper says", "above", "equal grids", "numbers with equal grids"]
    return pd.DataFrame(rows, columns=heads)


def _as_printed(printed: Finding, tuned: Finding) -> Finding:
    """The finding at the discount that the paper prints, beside it that at the one that was tuned here."""
    other = f"discount .999, tuned here: {tuned.verdict}, {tuned.numbers}"
    return Finding(printed.verdict, f"{printed.numbers} [{other}]")


def _chosen(tuning: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Of each algorithm the row of its start, the row that was chosen, that setting, and how many were tried."""
    found = {}
    for algorithm, rows in tuning.groupby("algorithm", sort=False):
        is_chosen = rows["chosen"] == "chosen"
        start, row = rows[rows["option"] == "start"].iloc[0], rows[is_chosen].iloc[0]
        setting = {key: value for key, value in json.loads(row["setting"]).items() if value is not None}
        found[algorithm] = {"start": start, "row": row, "setting": setting, "tried": (~is_chosen).sum()}
    return found
