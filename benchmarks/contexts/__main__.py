"""Contexts over arms: against a dense process made anew at every step, and against linear policies of ``coba``.

``python -m benchmarks.contexts``: all races and their page, in about an hour and a half of a core.

The race of ``coba`` is left out, and the page says so, where that package is not installed
(``pip install --no-deps coba``).
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks import options, pages
from benchmarks.contexts import auto, dense, linear
from benchmarks.contexts.auto import ALL_KNOWN
from benchmarks.contexts.dense import DENSE, DRIFT, LISTED, PROBLEMS, STALE, TIMED, WIDTH, WINDOW
from benchmarks.contexts.linear import AUTO, EXPLORATION, LINEAR, OURS
from benchmarks.pages import markdown_of, seeds_of

ASKED_REGRET, ASKED_TIME = 1.1, 20


def write_page(results: Path) -> Path:
    dense, auto = (_together(results, kind) for kind in ("dense-*.csv", "auto-*-*.csv"))
    coba, auto_coba = (pages.read(results / name) for name in ("coba.csv", "auto-coba.csv"))
    said, lines = [], [""]
    if dense is not None:
        said.append(_beside_dense(dense))
        lines += _dense(dense)
    lines += ["## Against linear policies", ""]
    if coba is None:
        lines += ["Left out: the package `coba` is not installed.", ""]
    else:
        said.append(_beside_linear(coba))
        lines += _coba(coba)
    lines += [] if auto is None and auto_coba is None else ["## `auto` without a kernel", ""]
    if auto is not None:
        said.append(_beside_known(auto))
        lines += _auto(auto)
    lines += [] if auto_coba is None else _auto_beside_linear(auto_coba)
    path, command = results / "RESULTS.md", "python -m benchmarks.contexts"
    return pages.publish(path, "Contexts over arms", " ".join(said), command, "\n".join(lines))


def _together(results: Path, pattern: str) -> pd.DataFrame | None:
    """The tables of these names as one; None where there are none."""
    found = sorted(results.glob(pattern))
    return pd.concat(map(pd.read_csv, found)) if found else None


def _beside_known(table: pd.DataFrame) -> str:
    """Regret of ``auto`` over that of the policy that knows everything."""
    total = table.groupby(["problem", "step", "policy"])["regret"].sum().unstack()
    over = total.drop(columns=ALL_KNOWN).div(total[ALL_KNOWN], axis=0)
    ranges = [f"{over[of].min():.2f} to {over[of].max():.2f} with {of.removeprefix('auto, ')}" for of in over]
    return f"`auto` without a kernel has this many times the regret of `{ALL_KNOWN}`: {', '.join(ranges)}."


def _auto(table: pd.DataFrame) -> list[str]:
    regret = table.pivot(index=["problem", "step", "policy"], columns="seed", values="regret")
    rows = []
    for problem, step, policy in regret.index:
        if policy != ALL_KNOWN:
            own, known = (regret.loc[problem, step, name] for name in (policy, ALL_KNOWN))
            row = {"problem": problem, "steps": step, "policy": policy, "regret of each seed": _each(own)}
            rows.append(row | {f"of {ALL_KNOWN}": _each(known), "over it": f"{own.sum() / known.sum():.2f}"})
    return [
        f"`contextual-gp` as above, {seeds_of(table, 'seed', 'problem')}, against `tv_cgp_ucb` over listed",
        f"contexts, which knows kernels, noise and rate of change; its width is {WIDTH}. `auto` is given the arms, and",
        f"either the list of contexts or their number of columns (as features). Asked: at most {ASKED_REGRET}",
        "times the regret of `tv_cgp_ucb`. The settings were chosen on other seeds (`PROTOCOL.md`).",
        "",
        markdown_of(pd.DataFrame(rows)),
        "",
    ]


def _each(values: pd.Series) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _auto_beside_linear(table: pd.DataFrame) -> list[str]:
    wide = table.pivot(index=["environment", "seed"], columns="policy", values="reward")
    short = wide.rsub(wide["best arms"], axis=0)
    means, errors = (getattr(short.groupby("environment", sort=False), way)() for way in ("mean", "sem"))
    ahead = sum(means[AUTO] < means[list(LINEAR)].min(axis=1))
    shown = [AUTO, *LINEAR]
    rows = [
        {"environment": str(name)} | {p: f"{means[p][name]:.4f} +- {errors[p][name]:.4f}" for p in shown}
        for name in means.index
    ]
    return [
        "The environments of `coba` as above, but for 250 steps: mean regret a step. `auto` is given features and",
        "context of each step and has no settings; those of the linear policies are the best on two other seeds.",
        f"`auto` is ahead of both on {ahead} of {len(means)}. Asked: 3 of 4.",
        "",
        markdown_of(pd.DataFrame(rows)),
        "",
    ]


def _beside_dense(table: pd.DataFrame) -> str:
    """Regret and time of ours, contexts listed, over those of the dense refit."""
    said = []
    for kind in PROBLEMS:
        part = table[table["problem"] == kind]
        regret = part.groupby("policy")["regret"].sum()
        ms = part[part["step"] == part["step"].max()].set_index(["seed", "policy"])["ms"].unstack()
        if {LISTED, DENSE} <= set(ms):
            faster = (ms[DENSE] / ms[LISTED]).median()
            said.append(
                f"{regret[LISTED] / regret[DENSE]:.3f} times the regret in 1/{faster:.0f} of the time ({kind})"
            )
    return (
        "Beside a dense process made anew at every step, our process with the contexts listed has "
        f"{', '.join(said)}."
    )


def _beside_linear(table: pd.DataFrame) -> str:
    """On how many environments of coba ours earns most."""
    played = table[table["policy"] != "best arms"]
    means = played.groupby(["environment", "policy"])["reward"].mean().unstack()
    best = int((means.idxmax(axis=1) == "CGP-UCB").sum())
    return f"Beside the linear policies of `coba` CGP-UCB has the least regret on {best} of {len(means)} environments."


def _dense(table: pd.DataFrame) -> list[str]:
    rows = []
    for kind in PROBLEMS:
        part = table[table["problem"] == kind]
        if part.empty:
            continue
        last = part["step"].max()
        regret = part.groupby(["seed", "policy"], sort=False)["regret"].sum().unstack()
        end = part[part["step"] == last].set_index(["seed", "policy"])
        ms, same = end["ms"].unstack(), end["same"].unstack()
        for name in part["policy"].unique():
            faster = ms[DENSE] / ms[name]
            ratio = regret[name] / regret[DENSE]
            rows.append(
                {
                    "problem": kind,
                    "policy": name,
                    "regret of each seed": _each(regret[name]),
                    "over the dense refit's": f"{regret[name].sum() / regret[DENSE].sum():.3f}",
                    "of one seed, at most": f"{ratio.max():.3f}",
                    f"ms a step at {last}": f"{ms[name].median():.2f}",
                    "times faster": f"{faster.median():.1f}",
                    "at least": f"{faster.min():.1f}",
                    "refit asked at": f"{int(end['asked'].max())} steps",
                    "same arms": f"{100 * same[name].mean():.1f} %",
                }
            )
    horizon, seeds = table["step"].max(), seeds_of(table, "seed", "problem")
    return [
        "## Against a dense process made anew at every step",
        "",
        f"`contextual-gp`: 20 arms, 40 contexts, a draw over arm x context that is fixed or drifts (rate {DRIFT} a",
        f"step), {horizon} steps, {seeds}. All take every step in turn, in one process on one thread, with the",
        f"same kernel and width {WIDTH}; the dense refit holds all data, computes its kernel matrix and factors it",
        f"anew at the steps at which it is asked, the last {TIMED} among them, and plays in between what the exact",
        "model over the 800 pairs of arm and context plays (*contexts listed*), whose posterior is its own; *same",
        "arms* is of the steps at which it was asked. Times of the two problems were taken under different loads:",
        "only ratios within a problem compare, and seeds whose times are of an older program have none.",
        f"Asked: regret at most {ASKED_REGRET} times its own, in 1/{ASKED_TIME} of its time.",
        f"Under drift observations are dropped once no mean can change by more than {STALE} prior deviations",
        f"(`StaleObservations`), or but for the last {WINDOW}; what is fixed has no old observations to drop.",
        "",
        markdown_of(pd.DataFrame(rows)),
        "",
    ]


def _coba(table: pd.DataFrame) -> list[str]:
    rows = []
    for name, part in table.groupby("environment", sort=False):
        wide = part.pivot(index="seed", columns="policy", values="reward")
        row = {"environment": str(name)}
        for policy in part["policy"].unique():
            short = wide["best arms"] - wide[policy]
            setting = part[part["policy"] == policy]["setting"].iloc[0]
            note = "" if pd.isna(setting) or not setting else f" ({setting})"
            if policy != "best arms":
                row[policy] = f"{short.mean():.4f} +- {short.sem():.4f}{note}"
        rows.append(row)
    seeds = seeds_of(table, "seed", "environment")
    return [
        "Environments that `coba` generates (five actions, five features of context and action each, all new at every",
        f"step; rewards in [0, 1]), {seeds}: mean regret a step, with its standard error over seeds.",
        f"Settings are the best, on two other seeds and half the steps, of {len(OURS)} for ours (lengthscale",
        f"over median distance, width) and {len(EXPLORATION)} for each of theirs. Their policies see the products of",
        "context and action (`1, a, xa`), which is the true model in `linear`.",
        "",
        markdown_of(pd.DataFrame(rows)),
        "",
    ]


SIZE, SMALL = dense.Size(2000, 5, every=40), dense.Size(40, 2)
PARTS = (*dense.PROBLEMS, "coba", "auto", "auto-coba")


def main(
    only: Annotated[str, typer.Option(help=f"{', '.join(PARTS)}: these parts alone.")] = "",
    seed: Annotated[int | None, typer.Option(help="That seed alone; not of coba.")] = None,
    fast: options.Fast = False,
    page: options.PageAlone = False,
) -> None:
    """Measure what was asked for, then write the page."""
    torch.set_num_threads(1)
    results, size = pages.results_folder(__file__, fast=fast), SMALL if fast else SIZE
    parts = [] if page else options.chosen(only, PARTS, "only")
    seeds = range(size.seeds) if seed is None else range(seed, seed + 1)
    for kind in (part for part in parts if part in dense.PROBLEMS):
        for one in seeds:
            table = dense.race(kind, size, one)
            pages.save(table, results / f"dense-{kind}-{one}.csv", 5)
    if "coba" in parts and linear.has_coba():
        pages.save(linear.race(*((30, 2) if fast else (1000, 5))), results / "coba.csv", 5)
    if "auto-coba" in parts and linear.has_coba():
        racing = (linear.AUTO, *linear.LINEAR)
        table = linear.race(*((30, 2) if fast else (250, 5)), racing)
        pages.save(table, results / "auto-coba.csv", 5)
    fresh = range(auto.FIRST, auto.FIRST + size.seeds) if seed is None else seeds
    for one, kind in product(fresh if "auto" in parts else (), dense.PROBLEMS):
        table = auto.race(kind, one, *((40, 20) if fast else (500, 100)))
        pages.save(table, results / f"auto-{kind}-{one}.csv", 5)
    if {"coba", "auto-coba"} & set(parts) and not linear.has_coba():
        pages.say("left out: coba is not installed (pip install --no-deps coba)")
    pages.say(f"wrote {write_page(results)}")


if __name__ == "__main__":
    options.command(main)()
