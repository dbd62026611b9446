"""RESULTS.md and claims.csv of Hong, Li & Tewari (2023), from the CSV files beside them."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import pages
from benchmarks.papers import _claims
from benchmarks.papers._claims import Claim, Finding
from benchmarks.papers._hong_environments import ALGORITHMS, EQUAL, EQUAL_GRIDS, PLAYED

PAPER, TUNED, CALIBRATED = "Hong, Li & Tewari 2023", "ADA-OPKB tuned", "ADA-OPKB calibrated"


def write(out: Path) -> None:
    names = ("totals", "regret", "grids", "tuning", "false_alarms", "delays")
    shown: dict[str, Any] = {name: pages.read(out / f"{name}.csv") for name in names}
    totals, regret = shown.pop("totals"), shown.pop("regret")
    shown |= {name: _chosen(shown[name]) for name in ("grids", "tuning") if shown[name] is not None}
    shown["environments"] = {} if regret is None else dict(list(regret.groupby("environment", sort=False)))
    if totals is not None and totals["algorithm"].str.endswith(EQUAL).any():
        shown["equal"] = equal_grids(totals)
    if (theory := out / "theory.txt").is_file():
        shown["theory"] = theory.read_text()
    found = [] if totals is None else claims(totals)
    _claims.write_page(out, "hong", PAPER, found, searches=EQUAL_GRIDS, **shown)


def claims(totals: pd.DataFrame) -> list[Claim]:
    """What the paper says in section 6 and appendix J, and what was asked besides, with verdicts."""
    judge = _Judge(totals)
    parts = {"sphere-one-switch": "1", "sphere-two-switches": "1", "correlated-d2": "correlated"}
    parts |= {"correlated-d3": "correlated", "cosine": "2", "slow-drift": "drift"}
    asked = [
        (name, f"ADA-OPKB calibrated beats {other}", judge(_claims.less, name, CALIBRATED, other), part)
        for other in (TUNED, "SW-GP-UCB")
        for name, part in parts.items()
    ]
    for name, ranges in PLAYED["ranges"].items():
        for kind, bounds in ranges.items():
            for algorithm in (f"{kind} published", TUNED if kind == "ADA-OPKB" else kind):
                says = f"{algorithm} is in the range of the published code's three runs"
                found = judge(partial(_claims.within, low=bounds[0], high=bounds[1]), name, algorithm)
                asked.append((name, says, found, "1"))
    rows = [(PAPER, *row) for row in _said(judge)] + [("this library", *row) for row in asked]
    return _claims.of_rows("hong", rows)


def _said(judge: "_Judge", equal: bool = False) -> Iterator[tuple[str, str, Finding, str]]:
    """(where, claim, finding, part of the command) of the paper's sentences; algorithms as tuned at first, or by equal
    grids."""

    def named(algorithm: str) -> str:
        by_grids = f"{algorithm}{EQUAL}"
        return (
            by_grids if equal and by_grids in ALGORITHMS else TUNED if algorithm == "ADA-OPKB" else algorithm
        )

    for one in PLAYED["claims"]:
        if "untested" in one:
            if not equal:
                yield one["where"], one["says"], Finding(_claims.UNTESTED, one["untested"]), one["part"]
            continue
        name, pairs, rule = one["on"], one["pairs"], getattr(_claims, one["rule"])
        if "once" in one and (equal or not len(judge.of(name, pairs[0][0]))):
            continue
        column = one.get("column", "regret")
        found = _claims.every([judge(rule, name, *map(named, pair), column=column) for pair in pairs])
        if "printed" in one and not equal:
            printed = judge(rule, name, *map(named, one["printed"]))
            other = f"discount .999, tuned here: {found.verdict}, {found.numbers}"
            found = Finding(printed.verdict, f"{printed.numbers} [{other}]")
        yield one["where"], one["says"], found, one["part"]


class _Judge:
    """What rules of ``_claims`` say of the replicates of a totals.csv."""

    def __init__(self, totals: pd.DataFrame) -> None:
        self.totals = totals

    def of(self, name: str, algorithm: str, column: str = "regret") -> np.ndarray:
        """What each replicate of an algorithm has on an environment."""
        t = self.totals
        return t[(t["environment"] == name) & (t["algorithm"] == algorithm)][column].to_numpy()

    def __call__(
        self, rule: Callable[..., Finding], name: str, *algorithms: str, column: str = "regret"
    ) -> Finding:
        values = [self.of(name, algorithm, column) for algorithm in algorithms]
        if (n := min(map(len, values))) < 2:
            return Finding(_claims.UNTESTED, f"{' or '.join(algorithms)} was not run on {name}")
        if rule is _claims.less:  # replicate k of both plays the same function and meets the same noise
            values = [own[:n] for own in values]
        return rule(*values, algorithms if len(values) > 1 else algorithms[0])


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


def _chosen(tuning: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Of each algorithm the row of its start, the row that was chosen, that setting, and how many were tried."""
    found = {}
    for algorithm, rows in tuning.groupby("algorithm", sort=False):
        is_chosen = rows["chosen"] == "chosen"
        start, row = rows[rows["option"] == "start"].iloc[0], rows[is_chosen].iloc[0]
        setting = {key: value for key, value in json.loads(row["setting"]).items() if value is not None}
        found[algorithm] = {"start": start, "row": row, "setting": setting, "tried": (~is_chosen).sum()}
    return found
