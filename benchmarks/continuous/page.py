"""The page and the picture, from the tables of the races."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

from bandits_torch.history import versions
from benchmarks.continuous.race import AUTO, INITIAL, OURS, PROBLEMS, REFIT, SMOOTH, WIDTH, WIDTHS
from benchmarks.continuous.step import AUTO_DIM
from benchmarks.pages import markdown, publish, read, save, seeds_of, write

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def write_page(results: Path, fast: bool = False) -> Path:
    """RESULTS.md, summary.csv and regret.png in the folder of the tables; returns the page's path."""
    page = results / "RESULTS.md"
    tables = [table for name in PROBLEMS if (table := read(results / f"race-{name}.csv")) is not None]
    steps = _step(read(results / "step.csv")) + _auto_step(read(results / "step-auto.csv"))
    if not tables:
        return write(page, steps)
    frame = pd.concat(tables, ignore_index=True)
    totals = _totals(frame)
    save(totals, results / "summary.csv")
    _picture(frame, results / "regret.png")
    title, command = "Dynamic standard functions over continuous domains", "python -m benchmarks.continuous"
    return publish(page, title, _answer(totals), command, _text(frame, totals, fast), steps)


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


def _text(frame: pd.DataFrame, totals: pd.DataFrame, fast: bool) -> str:
    measured = ["regret", "standard_error", "replicates", "ms"]
    regret, error, counts, times = (
        totals.pivot(index="policy", columns="problem", values=name) for name in measured
    )
    most = counts.max().max()
    names = [name for name in PROBLEMS if name in regret.columns]
    policies = list(dict.fromkeys(totals["policy"]))
    head, figures, clock = ["policy", *(name.removeprefix("dynamic-") for name in names)], [], []
    for policy in policies:
        at = [(policy, name) for name in names]
        figures.append([policy, *(_figure(regret.loc[i], error.loc[i], counts.loc[i], most) for i in at)])
        clock.append([policy, *(f"{times.loc[i]:.0f}".replace("nan", "-") for i in at)])
    said = _verdicts(regret[names], times[names])
    replicates, horizon = frame["replicate"].nunique(), frame["step"].max()
    seeds = seeds_of(frame, "replicate", "problem")
    missing = ""
    if "W-DBO" not in policies:
        missing += "\n**W-DBO is left out: the package `wdbo-algo` is not installed.**\n"
    if len(names) < len(PROBLEMS):
        count = f"{len(names)} of the {len(PROBLEMS)}"
        missing += f"\n**Only {count} functions have been run; without `--problems` all are.**\n"
    if replicates == 1:
        missing += "\n**One replicate: no standard error, and no verdict that would stand.**\n"
    shrunk = "\n**A shrunk run (`--fast`): the figures mean nothing.**\n" if fast else ""
    wrote = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"""
{horizon} steps, {seeds}, one thread; {wrote}.
{shrunk}{missing}
The last input of each function is time, the step over the horizon. Our upper confidence bounds have width {WIDTH:g},
plain BoTorch's {" and ".join(f"{width:g}" for width in WIDTHS)}, W-DBO its own. All begin with the same {INITIAL} Sobol
points. Ours learn kernel, noise and mean as they go: a fit after those, after every {REFIT} steps, when predictions
turn bad and at restarts; the window is half the horizon. `{SMOOTH}` has a Matern kernel of smoothness 3/2
over time, which begins at a third of the horizon, in place of exponential forgetting. BoTorch's `SingleTaskGP` is
fitted anew every step. Standard errors over few replicates are rough. Ours know beforehand what `Knowledge` of the
problem tells: a guess of the kernel, the noise, the forgetting rate, four candidate priors. Their width, the kernel
over time and the prior that holds length-scales together were settled on the same functions with other seeds (100 to
103); that restarts bring a fit was added after three replicates of `et_gp_ucb` had been seen, and it played them again.
`{AUTO}` is told the bounds alone, and begins with its own 2 (d + 1) Sobol points. While little is known it expects
less of the ends of ranges than of their middle, where most of these functions have their optimum; `PROTOCOL.md` has
what that is worth elsewhere.

![Mean cumulative regret](regret.png)

## Mean cumulative regret ± standard error

{markdown(head, figures)}
{said}
## Milliseconds a step (choose and learn), after step {INITIAL}

Means over the steps, fits included, of the replicate in which the policy was quickest: other work ran on the machine.

{markdown(head, clock)}
"""


def _answer(totals: pd.DataFrame) -> str:
    """On how many functions ``auto``, and the best of our other policies, at least equal the best rival."""
    regret = totals.pivot(index="policy", columns="problem", values="regret")
    rivals, count = regret.loc[_rivals(regret.index)].min(), len(regret.columns)
    best = int((regret.loc[list(OURS)].min() <= rivals).sum())
    said = "The best of our policies that know the problem has at most the regret of the best rival (BoTorch's UCB and "
    said += f"LogEI, W-DBO) on {best} of {count} functions"
    if AUTO not in regret.index:
        return f"{said}."
    return (
        f"{said}; `{AUTO}`, given the bounds alone, on {int((regret.loc[AUTO] <= rivals).sum())} of {count}."
    )


def _verdicts(regret: pd.DataFrame, times: pd.DataFrame) -> str:
    """Who has less regret on each function, and who takes less time; policies in rows, functions in columns."""
    ours, rivals = regret.loc[list(OURS)], regret.loc[_rivals(regret.index)]
    said = ""
    for name in regret.columns:
        verb = "at least equals" if ours[name].min() <= rivals[name].min() else "falls short of"
        said += (
            f"* {name}: the best of ours, {ours[name].idxmin()} ({ours[name].min():.0f}), {verb} the best of theirs, "
            f"{rivals[name].idxmin()} ({rivals[name].min():.0f}).\n"
        )
    if AUTO in regret.index:
        ahead = regret.columns[regret.loc[AUTO] <= rivals.min()]
        better = ahead.str.removeprefix("dynamic-")
        said += f"\n`{AUTO}`, told nothing but the bounds, at least equals the best of theirs on {len(better)} of "
        said += f"{len(regret.columns)}: {', '.join(better) or 'none'}.\n"
    held = (ours <= rivals.min()).sum(axis=1)
    said += "\nHow often each of ours alone at least equals the best of theirs: "
    said += ", ".join(f"{policy} {held[policy]} of {len(regret.columns)}" for policy in OURS) + ".\n"
    faster = (times.loc[list(OURS)] < times.loc[_rivals(times.index)].min()).sum()
    said += "\nFaster a step than every rival: of ours, " + ", ".join(
        f"{count} of {len(OURS)} on {str(name).removeprefix('dynamic-')}" for name, count in faster.items()
    )
    return said + ".\n"


def _rivals(policies: Iterable[str]) -> list[str]:
    """Those that are neither ours nor random, each once."""
    return [name for name in dict.fromkeys(policies) if name not in (*OURS, AUTO, "random")]


def _figure(regret: float, error: float, count: float, most: float) -> str:
    """With the number of replicates where they are fewer than others'; a dash where there are none."""
    if regret != regret:
        return "-"
    few = "" if count == most else f" ({count:.0f})"
    return (f"{regret:.0f}" if error != error else f"{regret:.0f} ± {error:.0f}") + few


def _step(frame: pd.DataFrame | None) -> str:
    if frame is None:
        return ""
    whole = frame["choose"] + frame["learn"]
    ratio = (whole / frame["alone"]).median()
    return (
        f"## A step at {frame['observations'].iloc[0]} observations, d = 4\n\n"
        f"`python -m benchmarks.continuous --step`: a whole step of tv_gp_ucb with fixed hyperparameters (choose and "
        f"learn) takes {1e3 * whole.median():.0f} ms, `optimize_acqf` alone on the same model, with as many restarts, "
        f"raw samples and rounds, {1e3 * frame['alone'].median():.0f} ms; the median of {len(frame)} ratios, "
        f"interleaved in one process, is {ratio:.2f}. Learning is {1e3 * frame['learn'].median():.1f} ms of it.\n"
    )


def _auto_step(frame: pd.DataFrame | None) -> str:
    if frame is None:
        return ""
    text = (
        "\n## A step of auto beside plain BoTorch's\n\n`python -m benchmarks.continuous --step`: processor time of one "
        f"thread, d = {AUTO_DIM}, means of five steps in turn; of `auto` choose and learn, a refinement of members "
        "among them; of BoTorch a fit of `SingleTaskGP` and `optimize_acqf` of its UCB (4 restarts, 64 raw "
        "samples).\n\n"
    )
    rows = []
    for row in frame.to_dict("records"):
        ms = [f"{1e3 * row[name]:.0f}" for name in ("auto_seconds", "auto_longest", "botorch_seconds")]
        ratio = row["auto_seconds"] / row["botorch_seconds"]
        rows.append([f"{row['observations']:.0f}", f"{row['held']:.0f}", *ms, f"{ratio:.2f}"])
    return text + markdown(["rewards", "auto holds", "auto, ms", "longest, ms", "BoTorch, ms", "ratio"], rows)


def _picture(frame: pd.DataFrame, path: Path) -> None:
    names = [name for name in PROBLEMS if name in set(frame["problem"])]
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), squeeze=False)
    looks: dict[str, dict[str, Any]] = {"random": {"color": "0.6", "ls": ":", "lw": 1.2}}
    looks |= {name: {"color": f"C{i}", "lw": 2} for i, name in enumerate((*OURS, AUTO))}
    looks |= {
        name: {"color": color, "ls": "--", "lw": 1.2}
        for name, color in zip(_rivals(frame["policy"]), plt.get_cmap("Dark2").colors, strict=False)  # type: ignore[attr-defined]
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
    plt.close(figure)
