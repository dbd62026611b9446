"""``python -m benchmarks.contexts``: contexts over arms, against a dense process made anew at every step, and against
linear policies of ``coba``, where that is installed (``pip install --no-deps coba``). An hour and a half of a core."""

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer

from benchmarks import options, pages
from benchmarks.contexts import auto, dense, linear
from benchmarks.contexts.auto import ALL_KNOWN
from benchmarks.contexts.dense import DENSE, LISTED, PROBLEMS
from benchmarks.contexts.linear import AUTO, CGP, LINEAR
from benchmarks.pages import seeds_of


def write_page(results: Path) -> Path:
    files = (sorted(results.glob(kind)) for kind in ("dense-*.csv", "auto-*-*.csv"))
    beside, without_kernel = (pd.concat(map(pd.read_csv, of)) if of else None for of in files)
    coba, auto_coba = (pages.read(results / name) for name in ("coba.csv", "auto-coba.csv"))
    shown: dict[str, Any] = {"seeds": {}}
    if beside is not None:
        shown |= {"faster": _beside_dense(beside), "raced": _dense(beside), "horizon": beside["step"].max()}
        shown["seeds"]["dense"] = seeds_of(beside, "seed", "problem")
    if coba is not None:
        short = _short(coba)
        settings = coba.groupby(["environment", "policy"])["setting"].first()
        shown |= {"coba": short, "order": coba["environment"].unique(), "settings": settings}
        shown["best"] = int((short.groupby("environment").mean().idxmin(axis=1) == CGP).sum())
        shown["seeds"]["coba"] = seeds_of(coba, "seed", "environment")
    if without_kernel is not None:
        total = without_kernel.groupby(["problem", "step", "policy"])["regret"].sum().unstack()
        shown |= {
            "over": total.drop(columns=ALL_KNOWN).div(total[ALL_KNOWN], axis=0),
            "auto": without_kernel.pivot(
                index=["problem", "step", "policy"], columns="seed", values="regret"
            ),
            "all_known": ALL_KNOWN,
        }
        shown["seeds"]["auto"] = seeds_of(without_kernel, "seed", "problem")
    if auto_coba is not None:
        shown["auto_coba"] = short = _short(auto_coba)[[AUTO, *LINEAR]]
        means = short.groupby("environment").mean()
        shown["ahead"] = int((means[AUTO] < means[list(LINEAR)].min(axis=1)).sum())
    path, template = results / "RESULTS.md", "contexts/RESULTS.md.jinja"
    return pages.render(path, template, dense=dense, linear=linear, **shown)


def _beside_dense(table: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """By problem: regret of ours, contexts listed, over that of the dense refit, and how many times faster it is."""
    said = {}
    for kind in PROBLEMS:
        part = table[table["problem"] == kind]
        regret = part.groupby("policy")["regret"].sum()
        ms = part[part["step"] == part["step"].max()].set_index(["seed", "policy"])["ms"].unstack()
        if {LISTED, DENSE} <= set(ms):
            said[kind] = regret[LISTED] / regret[DENSE], (ms[DENSE] / ms[LISTED]).median()
    return said


def _dense(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Of each problem and policy: regrets by seed, over those of the dense refit, and times and choices at the end."""
    rows = []
    for kind in (one for one in PROBLEMS if (table["problem"] == one).any()):
        part = table[table["problem"] == kind]
        last = part["step"].max()
        regret = part.groupby(["seed", "policy"], sort=False)["regret"].sum().unstack()
        end = part[part["step"] == last].set_index(["seed", "policy"])
        ms, same, asked = end["ms"].unstack(), end["same"].unstack(), int(end["asked"].max())
        for name in part["policy"].unique():
            one = {
                "problem": kind,
                "policy": name,
                "regret": regret[name],
                "dense": regret[DENSE],
                "last": last,
            }
            rows.append(
                one | {"ms": ms[name], "faster": ms[DENSE] / ms[name], "asked": asked, "same": same[name]}
            )
    return rows


def _short(table: pd.DataFrame) -> pd.DataFrame:
    """What each policy falls short of the best arms by, in each environment and seed; policies as they were played."""
    wide = table.pivot(index=["environment", "seed"], columns="policy", values="reward")
    return wide.rsub(wide.pop("best arms"), axis=0)[[p for p in table["policy"].unique() if p != "best arms"]]


SIZE = dense.Size(2000, 5, every=40)
PARTS = (*dense.PROBLEMS, "coba", "auto", "auto-coba")


@options.with_page(write_page)
def main(
    results: Path, only: Annotated[str, typer.Option(help=f"{', '.join(PARTS)}: these parts alone.")] = ""
) -> None:
    """Measure what was asked for."""
    torch.set_num_threads(1)
    parts = options.chosen(only, PARTS, "only")
    for kind in (part for part in parts if part in dense.PROBLEMS):
        for seed in range(SIZE.seeds):
            pages.save(dense.race(kind, SIZE, seed), results / f"dense-{kind}-{seed}.csv", 5)
    if "coba" in parts and linear.has_coba():
        pages.save(linear.race(1000, 5), results / "coba.csv", 5)
    if "auto-coba" in parts and linear.has_coba():
        pages.save(linear.race(250, 5, (AUTO, *LINEAR)), results / "auto-coba.csv", 5)
    fresh = range(auto.FIRST, auto.FIRST + SIZE.seeds) if "auto" in parts else ()
    for seed, kind in product(fresh, dense.PROBLEMS):
        pages.save(auto.race(kind, seed, 500, 100), results / f"auto-{kind}-{seed}.csv", 5)
    if {"coba", "auto-coba"} & set(parts) and not linear.has_coba():
        pages.say("left out: coba is not installed (pip install --no-deps coba)")


if __name__ == "__main__":
    options.command(main)()
