"""The page of results."""

from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.pages import beyond, read, render

OURS, RAYS, PBT, ASHA, RANDOM = "ours", "Ray's PB2", "PBT", "ASHA", "random"
GIVEN_RATE = "PBT, given the rate"  # what nothing can beat by much that replaces as few trials
_ALL = (OURS, RAYS, PBT, ASHA, RANDOM)
# Who races on which task.
SCHEDULERS = {"triangle": (*_ALL, GIVEN_RATE), "digits-4": _ALL, "digits-8": _ALL, "cartpole": _ALL}
_RACE = ["name", "mean", "two", "seeds", "place", "slow", "worst"]
_AGAIN = 1000  # the first seed of a second set


def write_page(results: Path) -> Path:
    tables = {name: table for name in SCHEDULERS if (table := read(results / f"{name}.csv")) is not None}
    again = {f"{name}-again": table[table["seed"] >= _AGAIN] for name, table in tables.items()}
    played = {name: table[table["seed"] < _AGAIN] for name, table in tables.items()}
    played |= {name: table for name, table in again.items() if not table.empty}
    races = pd.DataFrame([of for name, table in played.items() if (of := _race(name, table))], columns=_RACE)
    task = races["name"].str.split("-").str[0]  # what is trained, in populations of one size or two
    decides = races["name"].str.endswith("-again") | ~(task + "-again").isin(races["name"])
    return render(
        results / "RESULTS.md",
        "ray/RESULTS.md.jinja",
        played=played,
        schedulers=SCHEDULERS,
        ours=OURS,
        races=races,
        trained=(races["place"] == "ahead")[decides].groupby(task[decides]).all(),
    )


def _race(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Ours minus Ray's final score, where both have played, and the times of our decisions."""
    wide = table.pivot(index="seed", columns="scheduler", values="last")
    if not {OURS, RAYS} <= set(wide):
        return {}
    apart, own = (wide[OURS] - wide[RAYS]).dropna(), table[table["scheduler"] == OURS]
    return {
        "name": name,
        "mean": apart.mean(),
        "two": 2 * apart.sem(),
        "seeds": len(apart),
        "place": beyond(apart, "behind", "within two standard errors", "ahead"),
        "slow": own["ms"].max(),
        "worst": own["ms_max"].max(),
    }
