"""CLOCK.md: the race against the clock, drawn from its tables and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.continuous.race import AUTO, OURS
from benchmarks.pages import markdown, opening, seeds_of, too_few, write

RIVAL, SEEDS = "W-DBO", 5  # seeds that a function and policy should have
WORSE, LONGEST = 1.1, 50.0  # asked: times the best regret; milliseconds of a step at the end
_HEAD = """
The functions move on while a policy thinks. The protocol, written first, is in `PROTOCOL-CLOCK.md`. Other work ran on
the machine: a second
of a processor does less then, for all alike. Most of these functions have their optimum near the middle of their
range, and `auto` expects less of ends than of the middle while little is known: `PROTOCOL.md` has what that is worth
elsewhere.

Five seeds of six policies on eight functions and four turned ones would take 36 hours of one core at 30, 240 and 600 s
together, 27 of them at 600 s (`PROTOCOL-CLOCK.md` has the reckoning). At 600 s `auto` and W-DBO alone are played.
What is missing of five seeds stands at the end of each horizon's section.
"""
_TURNED = """Every second function of the list, turned about the middle of the unit cube by a random rotation and
shifted by up to .35 of a side along each input (`Turned` in `clock.py`; drawn once for each, by its number as seed).
Played with `--turned`; Xopt's and BoTorch's UCB blind to time were not, for want of time.

"""


def write_page(results: Path) -> Path:
    """Write it beside the tables ``clock-SECONDS.csv`` and ``turned-SECONDS.csv``; returns its path."""
    tables = []
    for kind in ("clock", "turned"):
        of_kind = [table for path in results.glob(f"{kind}-*.csv") if len(table := pd.read_csv(path))]
        tables += sorted(of_kind, key=lambda table: table["horizon"].iloc[0])
    sections = [_section(table) for table in tables]
    answer = " ".join(said for said, _ in sections)
    head = opening("The clock counts", answer, "python -m benchmarks.continuous --clock") + _HEAD
    return write(results / "CLOCK.md", head + "".join(text for _, text in sections))


def _section(table: pd.DataFrame) -> tuple[str, str]:
    """A horizon in a sentence; and its regret, steps, time of a step and verdicts, of runs that all have played."""
    horizon, evaluation = table["horizon"].iloc[0], table["evaluation"].iloc[0]
    runs = table.pivot(index=["problem", "replicate"], columns="policy", values="regret")
    every, complete = table, runs.dropna().reset_index()[["problem", "replicate"]]
    table = table.merge(complete, on=["problem", "replicate"])
    told = seeds_of(table, "replicate", "problem").replace("dynamic-", "")
    turned = table["problem"].str.startswith("turned-").all()
    title = f"{horizon:g} s{', functions turned and shifted' if turned else ''}"
    text = f"\n## {title}\n\n{_TURNED if turned else ''}An evaluation takes {evaluation:g} s. {told}.\n\n"
    text += too_few(table, "replicate", "problem")
    text += "Time-averaged regret, the least of a function in bold; ± its standard error where seeds are several.\n\n"
    by = table.groupby(["policy", "problem"], sort=False)["regret"]
    mean, error = by.mean().unstack(), by.sem().unstack()
    rank = mean.rank().mean(axis=1).sort_values(kind="stable")
    heads = ["policy", "mean rank", *(str(name).removeprefix("dynamic-") for name in mean.columns)]
    rows = [
        [str(policy), f"{rank[policy]:.2f}", *(_cell(mean, error, policy, name) for name in mean.columns)]
        for policy in rank.index
    ]
    text += markdown(heads, rows)
    steps = table.groupby("policy")[["queries", "ms", "last_ms"]].mean().loc[rank.index]
    text += "\nMeans over all runs, of processor time; the last ten steps of a run apart.\n\n"
    cells = [
        [str(p), f"{row['queries']:.0f}", f"{row['ms']:.0f}", f"{row['last_ms']:.0f}"]
        for p, row in steps.iterrows()
    ]
    text += markdown(["policy", "steps", "ms a step", "ms at the end"], cells)
    rivals = mean.loc[[name for name in mean.index if name not in (AUTO, *OURS)]]
    less = int((mean.loc[AUTO] < rivals.min()).sum())
    whom = "every rival" if len(rivals) > 1 else f"{rivals.index[0]}, the only rival played,"
    answer = (
        f"Over {title}{',' if turned else ''} `{AUTO}` has less regret than {whom} on {less} of "
        f"{len(mean.columns)} functions, at {steps.loc[AUTO, 'ms']:.0f} ms a step."
    )
    return answer, text + _verdict(table, mean) + _pair(runs) + _missing(every)


def _pair(runs: pd.DataFrame) -> str:
    """``auto`` beside W-DBO alone, function by function, where both have more runs than all policies have."""
    both = runs.reindex(columns=[AUTO, RIVAL]).dropna()
    if len(both) <= len(runs.dropna()):
        return ""
    rows = []
    for name, of in both.groupby("problem", sort=False):
        difference = of[AUTO] - of[RIVAL]
        told = "too few seeds" if len(of) < SEEDS else "less" if _behind(-difference) else "level"
        told = "more" if len(of) >= SEEDS and _behind(difference) else told
        error = f" ± {difference.sem():.3f}" if len(of) > 1 else ""
        values = (f"{of[AUTO].mean():.3f}", f"{of[RIVAL].mean():.3f}", f"{difference.mean():+.3f}{error}")
        rows.append([str(name).removeprefix("dynamic-"), len(of), *values, told])
    heads = ["function", "seeds", AUTO, RIVAL, "difference, ± its standard error", f"`{AUTO}` has"]
    return f"\n`{AUTO}` and {RIVAL} alone, over the runs that both have played:\n\n" + markdown(heads, rows)


def _missing(table: pd.DataFrame) -> str:
    """What the table lacks of five seeds, and what that would take."""
    runs = table.groupby(["policy", "problem"], sort=False)["replicate"].count().unstack(fill_value=0)
    lacking = (SEEDS - runs.clip(upper=SEEDS)).sum(axis=1)
    seconds = (table["queries"] * table["ms"] / 1e3).groupby(table["policy"]).mean()
    told = [f"{policy} {count} of {seconds[policy]:.0f} s" for policy, count in lacking.items() if count]
    if not told:
        return ""
    hours = float((lacking * seconds).sum()) / 3600
    return f"\nRuns missing to {SEEDS} seeds: {', '.join(told)}; {hours:.1f} hours of a core.\n"


def _cell(mean: pd.DataFrame, error: pd.DataFrame, policy: object, name: object) -> str:
    value, spread = mean.loc[policy, name], error.loc[policy, name]
    text = f"{value:.3f}" if pd.isna(spread) else f"{value:.3f} ± {spread:.3f}"
    return f"**{text}**" if value == mean[name].min() else text


def _verdict(table: pd.DataFrame, mean: pd.DataFrame) -> str:
    """What is asked of ``auto`` against those that are not ours."""
    rivals = [name for name in mean.index if name not in (AUTO, *OURS)]
    runs = table.pivot(index=["problem", "replicate"], columns="policy", values="regret")
    held, alone, worst = [], [], {}
    for name in mean.columns:
        own, best = mean.loc[AUTO, name], mean.loc[rivals, name].min()
        worst[str(name)] = own / best
        if own < best:
            alone.append(name)
        behind = [_behind(runs.loc[name, AUTO] - runs.loc[name, rival]) for rival in rivals]
        if not any(behind):
            held.append(name)
    most, last = max(worst, key=lambda name: worst[name]), table[table["policy"] == AUTO]["last_ms"].mean()
    many = len(mean.columns)
    count, of = ("four", 4) if str(mean.columns[0]).startswith("turned-") else ("eight", 8)
    lines = [
        f"* At least {count} functions: {many}: {'met' if many >= of else 'missed'}.",
        f"* Less regret than every rival, or level within two standard errors of the difference (one seed: less), on "
        f"at least {of - 1} of {of}: {len(held)} of {many}: {'met' if len(held) >= of - 1 else 'missed'}. "
        f"Less on {len(alone)}.",
        f"* Nowhere more than {WORSE:g} times the best rival: {worst[most]:.2f} on "
        f"{most.removeprefix('dynamic-')}: {'met' if worst[most] <= WORSE else 'missed'}. By function: "
        + ", ".join(f"{name.removeprefix('dynamic-')} {ratio:.2f}" for name, ratio in worst.items())
        + ".",
        f"* A step of at most {LONGEST:g} ms at the end: {last:.0f} ms: {'met' if last <= LONGEST else 'missed'}.",
    ]
    return f"\nAsked of `{AUTO}` against {', '.join(rivals)}:\n\n" + "\n".join(lines) + "\n"


def _behind(difference: pd.Series) -> bool:
    """Whether the mean is above 0 beyond two standard errors; of one run, above 0."""
    error = float(difference.sem()) if len(difference) > 1 else 0.0
    return float(difference.mean()) > 2 * error
