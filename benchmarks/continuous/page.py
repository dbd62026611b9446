"""The page and the picture, from the tables of the races."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from bandits_torch.history import versions
from benchmarks.continuous import race
from benchmarks.continuous.race import AUTO, INITIAL, OURS, PROBLEMS
from benchmarks.pages import read, render, save, seeds_of


def write_page(results: Path) -> Path:
    """RESULTS.md, summary.csv and regret.png in the folder of the tables; returns the page's path."""
    tables = [table for name in PROBLEMS if (table := read(results / f"race-{name}.csv")) is not None]
    shown = {"step": read(results / "step.csv"), "auto_step": read(results / "step-auto.csv")}
    if tables:
        frame = pd.concat(tables, ignore_index=True)
        totals = _totals(frame)
        save(totals, results / "summary.csv")
        _picture(frame, results / "regret.png")
        shown |= _shown(frame, totals)
    return render(results / "RESULTS.md", "continuous/RESULTS.md.jinja", race=race, **shown)


def _totals(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per problem and policy: cumulative regret, its standard error, ms a step once past the start: the mean of
    the replicate that had the machine most to itself."""
    runs = frame.groupby(["problem", "policy", "replicate"], sort=False)["regret"].sum().reset_index()
    grouped = runs.groupby(["problem", "policy"], sort=False)["regret"]
    late = frame[frame["step"] > INITIAL].groupby(["problem", "policy", "replicate"], sort=False)["seconds"]
    times = late.mean().groupby(["problem", "policy"], sort=False)
    return pd.DataFrame(
        {
            "regret": grouped.mean(),
            "standard_error": grouped.sem(),
            "replicates": grouped.count(),
            "ms": 1e3 * times.min(),
        }
    ).reset_index()


def _shown(frame: pd.DataFrame, totals: pd.DataFrame) -> dict[str, Any]:
    """What the page says of the races: tables of regrets and times, and who has less of either than the rivals."""
    names = [name for name in PROBLEMS if name in set(totals["problem"])]
    regret, times = (
        totals.pivot(index="policy", columns="problem", values=of)[names] for of in ("regret", "ms")
    )
    ours, rivals = regret.loc[list(OURS)], regret.loc[_rivals(regret.index)]
    best = [(name, _least(ours[name]), _least(rivals[name])) for name in names]
    faster = (times.loc[list(OURS)] < times.loc[_rivals(times.index)].min()).sum()
    ahead = regret.le(rivals.min()) if AUTO in regret.index else None
    return {
        "horizon": frame["step"].max(),
        "seeds": seeds_of(frame, "replicate", "problem"),
        "replicates": frame["replicate"].nunique(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items() if name != "numba"),
        "has_wdbo": "W-DBO" in regret.index,
        "names": names,
        "policies": list(dict.fromkeys(totals["policy"])),
        "of": totals.set_index(["policy", "problem"]).to_dict("index"),
        "most": totals["replicates"].max(),
        "best": best,
        "ahead": [name for name, own, other in best if own[1] <= other[1]],
        "auto": None if ahead is None else [_short(name) for name in names if ahead.loc[AUTO, name]],
        "held": ours.le(rivals.min()).sum(axis=1).to_dict(),
        "faster": faster.rename(_short).to_dict(),
    }


def _short(name: str) -> str:
    return name.removeprefix("dynamic-")


def _least(regrets: pd.Series) -> tuple[str, float]:
    return str(regrets.idxmin()), float(regrets.min())


def _rivals(policies: Iterable[str]) -> list[str]:
    """Those that are neither ours nor random, each once."""
    return [name for name in dict.fromkeys(policies) if name not in (*OURS, AUTO, "random")]


def _picture(frame: pd.DataFrame, path: Path) -> None:
    names = [name for name in PROBLEMS if name in set(frame["problem"])]
    figure = Figure(figsize=(13, 7))
    axes = figure.subplots(2, 3)
    looks: dict[str, dict[str, Any]] = {"random": {"color": "0.6", "ls": ":", "lw": 1.2}}
    looks |= {name: {"color": f"C{i}", "lw": 2} for i, name in enumerate((*OURS, AUTO))}
    looks |= {
        name: {"color": color, "ls": "--", "lw": 1.2}
        for name, color in zip(_rivals(frame["policy"]), mpl.colormaps["Dark2"].colors, strict=False)
    }
    for axis, name in zip(axes.flat, names, strict=False):
        part = frame[frame["problem"] == name]
        for policy in dict.fromkeys(part["policy"]):
            runs = part[part["policy"] == policy].pivot(index="step", columns="replicate", values="regret")
            mean = runs.cumsum().mean(axis=1)
            axis.plot(mean.index, mean, label=policy, **looks[policy])
        axis.set_title(name)
        axis.set_xlabel("step")
        axis.set_ylabel("mean cumulative regret")
    for axis in list(axes.flat)[len(names) :]:
        axis.axis("off")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=5, frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=110)
