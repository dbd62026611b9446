"""The page of results: regret with eight questions open over that of one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.pages import markdown_of, opening, seeds_of, write
from benchmarks.parallel.race import SIZES, Size, floor, random_pull

ONE, ASKED = "one at a time", 1.2
COUNTED = ("8 rolling", "8 in batches", "8 workers")


def ratio(table: pd.DataFrame, mode: str) -> tuple[float, float]:
    """Mean regret of a mode over that of one at a time, and its standard error (delta method, replicates paired)."""
    wide = table.pivot(index="replicate", columns="mode", values="regret")
    base, other = wide[ONE], wide[mode]
    r = float(other.mean() / base.mean())
    error = (other - r * base).std(ddof=1) / base.mean() / math.sqrt(len(base)) if len(base) > 1 else math.nan
    return r, float(error)


def above(table: pd.DataFrame, mode: str, floors: dict[str, Any]) -> float:
    """Mean regret of a mode above its floor, over that of one at a time above its own."""
    wide = table.pivot(index="replicate", columns="mode", values="regret").mean()
    return float((wide[mode] - floors[mode].mean()) / (wide[ONE] - floors[ONE].mean()))


def allowed(mean: pd.Series, floors: dict[str, Any], mode: str) -> float:
    """What ``above`` may be at most, for a regret of ``ASKED`` times that of one at a time."""
    return float((ASKED * mean[ONE] - floors[mode].mean()) / (mean[ONE] - floors[ONE].mean()))


def summary(table: pd.DataFrame, sizes: dict[str, Size]) -> pd.DataFrame:
    """One row for each race and policy."""
    rows = []
    for (over, problem, policy), part in table.groupby(["over", "problem", "policy"], sort=False):
        row = {"over": over, "problem": problem, "policy": policy}
        row["regret, one at a time"] = f"{part[part['mode'] == ONE]['regret'].mean():.1f}"
        mean = part.groupby("mode")["regret"].mean()
        extra = max(mean[mode] for mode in COUNTED[:2]) - mean[ONE]
        row["extra, in random pulls"] = f"{extra / random_pull(problem, over, sizes[over]):.1f}"
        floors = {mode: floor(problem, over, sizes[over], mode) for mode in (ONE, *COUNTED) if mode in mean}
        row |= {f"floor, {mode}": f"{floors[mode].mean():.1f}" for mode in (ONE, *COUNTED[:2])}
        row["above the floors"] = ", ".join(f"{above(part, mode, floors):.2f}" for mode in COUNTED[:2])
        row["asked above the floors"] = ", ".join(
            f"{allowed(mean, floors, mode):.2f}" for mode in COUNTED[:2]
        )
        for mode in part["mode"].unique():
            if mode != ONE:
                r, error = ratio(part, mode)
                twice = part[part["mode"] == mode]["twice"].mean()
                row[mode] = f"{r:.2f} +- {error:.2f} ({100 * twice:.0f} %)"
                if mode in COUNTED:
                    row[f"_{mode}"] = r
                    row[f"_above {mode}"] = above(part, mode, floors)
                    row[f"_beyond {mode}"] = float(floors[mode].mean() > ASKED * mean[ONE])
                    row[f"_floor {mode}"] = float(mean[mode] / floors[mode].mean())
        rows.append(row)
    return pd.DataFrame(rows)


def write_page(results: Path, sizes: dict[str, Size] = SIZES) -> Path:
    """RESULTS.md beside the tables, which were played at these sizes."""
    table = pd.concat([pd.read_csv(path) for path in sorted(results.glob("*-*.csv"))])
    asking = results / "asking.csv"
    times = pd.read_csv(asking) if asking.exists() else None
    found = summary(table, sizes)
    found = found.reindex(columns=[*found.columns, *_missing(found)])
    hidden = [name for name in found.columns if name.startswith("_")]
    counted = [
        f"{int((found[f'_{mode}'] <= ASKED).sum())} of {int(found[f'_{mode}'].notna().sum())} ({mode})"
        for mode in COUNTED
    ]
    answer = (
        f"With eight questions open the regret is at most {ASKED} times that of one at a time, after equal numbers of "
        f"rewards, in so many races: {', '.join(counted)}. Without the regret that waiting costs anyone, the ratio is "
        f"at most {ASKED} in {_of(found, '_above', lambda x: x <= ASKED)}."
    )
    lines = [
        opening("Eight questions at once", answer, "python -m benchmarks.parallel"),
        "Regret with eight questions open over that of one at a time, at equal",
        "numbers of rewards and the same drift for each reward, with the standard error of the ratio, and in brackets",
        "the share of questions that ask for the arm of another open one (over points: within 0.01 of its point).",
        "*Rolling*: a question a step, each answered seven questions later. *In batches*: eight questions of one",
        "moment, then eight answers in reverse order, and the next batch eight steps later. *Workers*: the next batch",
        "one step later, as eight workers would ask who are each as fast as the one, so that less changes between two",
        "rewards. *Not counted*: the policy does not know what is open.",
        "",
        "Eight questions wait for seven rewards at the start and after every change, whatever the policy. So the",
        "largest extra regret, rolling or in batches, stands beside them, in pulls at random. Where nothing changes",
        "it is paid once, and a large share of little.",
        "",
        "*Floor*: regret that no policy can be below in expectation, at these problems and seeds: that of a player who",
        "knows without noise all that was true when the question was asked whose answer is the latest (one step ago,",
        "one at a time; eight with eight open), and who has to guess where the function was drawn anew in between.",
        "*Above the floors*: regret above it with eight open, rolling and in batches, over that of one at a time above",
        "its own: what the policy itself loses by eight questions, without what anybody loses by waiting. *Asked above",
        f"the floors*: what that may be at most for a ratio of {ASKED}; below 0 no policy can, near 0 it would have to",
        "know nearly all that waiting lets it know. Other rules of choosing than GP-BUCB's, none of them better:",
        "`PROTOCOL.md` beside this folder.",
        "",
        *(
            f"Over {over}: {size.horizon} rewards; of seed {size.seed}, "
            f"{seeds_of(table[table['over'] == over], 'replicate', 'problem', 'replicate')}."
            for over, size in sizes.items()
        ),
        "",
        f"Beyond reach, since the floor is above {ASKED} times the regret of one at a time:",
        f"{_of(found, '_beyond', lambda x: x > 0)}, {_names(found)}.",
        f"Above the floors, ratios at most {ASKED}: {_of(found, '_above', lambda x: x <= ASKED)}.",
        f"At most {ASKED} times the floor itself: {_of(found, '_floor', lambda x: x <= ASKED)}.",
        "",
        markdown_of(found.drop(columns=hidden).fillna("")),
        "",
        "## What asking costs",
        "",
        "Medians of one run on one core: eight steps (ask, tell) of one question each, and `ask(count=8)`.",
        "",
        "Not measured yet." if times is None else markdown_of(times.round(2)),
        "",
    ]
    return write(results / "RESULTS.md", "\n".join(lines))


def _missing(found: pd.DataFrame) -> list[str]:
    names = [f"_{what}{mode}" for what in ("", "above ", "beyond ", "floor ") for mode in COUNTED]
    return [name for name in names if name not in found.columns]


def _of(found: pd.DataFrame, what: str, holds: Callable[[pd.Series], pd.Series]) -> str:
    told = []
    for mode in COUNTED[:2]:
        column = found[f"{what} {mode}"]
        told.append(f"{int(holds(column).sum())} of {int(column.notna().sum())} ({mode})")
    return ", ".join(told)


def _names(found: pd.DataFrame) -> str:
    """The races that no policy can win so."""
    beyond = found[[f"_beyond {mode}" for mode in COUNTED[:2]]].gt(0).any(axis=1)
    told = [f"{row.over} {row.problem} {row.policy}" for row in found[beyond].itertuples()]
    return "; ".join(told) or "none"
