"""``python -m benchmarks.parallel``: eight questions open at once against one at a time: regret, duplicates, and what
asking costs. 15 minutes of a core."""

import os
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import pandas as pd
import torch
import typer

from bandits_torch import AskTell, recipes
from bandits_torch.policies import Policy
from bandits_torch.problems.simulated import make_kernel
from benchmarks import options, pages
from benchmarks.pages import read, render
from benchmarks.parallel.race import KINDS, SIZES, floor, race, random_pull

Q = 8


def _built(name: str, num_arms: int) -> Policy:
    arms = torch.rand(num_arms, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = make_kernel("matern", 0.2)
    if name == "auto":
        return recipes.auto(arms)
    if name == "tv_gp_ucb":
        return recipes.tv_gp_ucb(arms, kernel, 0.01, forgetting_rate=0.03, width=2.0)
    if name == "gp_ucb, covariance":
        return recipes.gp_ucb(arms, kernel, 0.01, width=2.0, form="covariance")
    return getattr(recipes, name)(arms, kernel, 0.01, width=2.0)


RACERS = {"gp_ucb": 10_000, "tv_gp_ucb": 10_000, "bkb": 10_000, "auto": 10_000, "gp_ucb, covariance": 2_000}


def measure(steps: int, rounds: int) -> pd.DataFrame:
    """Medians over ``rounds``, after ``steps`` rewards."""
    rows = []
    for name, num_arms in RACERS.items():
        live = AskTell(_built(name, num_arms))
        clock, noise = 0.0, torch.Generator().manual_seed(1)

        def answer(question: object, live: AskTell = live, noise: torch.Generator = noise) -> None:
            arm = float(question.arm)
            live.tell(question.id, torch.sin(torch.tensor(arm)) + 0.1 * torch.randn((), generator=noise))

        for _ in range(steps):
            clock += 1
            answer(live.ask(clock))
        alone, together = [], []
        for _ in range(rounds):
            start = perf_counter()
            for _ in range(Q):
                clock += 1
                answer(live.ask(clock))
            alone.append(perf_counter() - start)
            clock += 1
            start = perf_counter()
            questions = live.ask(clock, count=Q)
            together.append(perf_counter() - start)
            for question in questions:
                answer(question)
        row = {
            "policy": name,
            "arms": num_arms,
            "rewards": steps,
            "eight steps, ms": 1e3 * median(alone),
            "ask(count=8), ms": 1e3 * median(together),
        }
        rows.append(row | {"ratio": row["ask(count=8), ms"] / row["eight steps, ms"]})
        pages.say(rows[-1])
    return pd.DataFrame(rows)


ONE, ASKED = "one at a time", 1.2
COUNTED = ("8 rolling", "8 in batches", "8 workers")


def above(mean: pd.Series, mode: str, floors: dict[str, Any]) -> float:
    """Mean regret of a mode above its floor, over that of one at a time above its own."""
    return float((mean[mode] - floors[mode].mean()) / (mean[ONE] - floors[ONE].mean()))


def summary(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row for each race and policy; and one for each of their modes of ``COUNTED``: whether the regret, the regret
    above the floors and the regret over the floor are at most ``ASKED`` times, and whether the floor is beyond that."""
    rows, met = [], []
    for (over, problem, policy), part in table.groupby(["over", "problem", "policy"], sort=False):
        row = {"over": over, "problem": problem, "policy": policy}
        wide = part.pivot(index="replicate", columns="mode", values="regret")
        mean = wide.mean()
        row["regret, one at a time"] = f"{mean[ONE]:.1f}"
        extra = max(mean[mode] for mode in COUNTED[:2]) - mean[ONE]
        row["extra, in random pulls"] = f"{extra / random_pull(problem, over, SIZES[over]):.1f}"
        floors = {mode: floor(problem, over, SIZES[over], mode) for mode in (ONE, *COUNTED) if mode in mean}
        row |= {f"floor, {mode}": f"{floors[mode].mean():.1f}" for mode in (ONE, *COUNTED[:2])}
        row["above the floors"] = ", ".join(f"{above(mean, mode, floors):.2f}" for mode in COUNTED[:2])
        most = [ASKED * mean[ONE] - float(floors[mode].mean()) for mode in COUNTED[:2]]
        asked = [one / (mean[ONE] - float(floors[ONE].mean())) for one in most]
        row["goal above the floors"] = ", ".join(f"{one:.2f}" for one in asked)
        for mode in (one for one in part["mode"].unique() if one != ONE):
            r, error = pages.ratio(wide[mode], wide[ONE])
            twice = part[part["mode"] == mode]["twice"].mean()
            row[mode] = f"{r:.2f} +- {error:.2f} ({100 * twice:.0f} %)"
            if mode in COUNTED:
                least = float(floors[mode].mean())
                verdicts = {"regret": r <= ASKED, "above": above(mean, mode, floors) <= ASKED}
                verdicts |= {"floor": mean[mode] / least <= ASKED, "beyond": least > ASKED * mean[ONE]}
                met.append({"race": f"{over} {problem} {policy}", "mode": mode} | verdicts)
        rows.append(row)
    return pd.DataFrame(rows), pd.DataFrame(met)


def write_page(results: Path) -> Path:
    table = pd.concat([pd.read_csv(path) for path in sorted(results.glob("*-*.csv"))])
    times = read(results / "asking.csv")
    found, met = summary(table)
    two = met["mode"].isin(COUNTED[:2])  # modes, of which a table says more
    return render(
        results / "RESULTS.md",
        "parallel/RESULTS.md.jinja",
        asked=ASKED,
        sizes=SIZES,
        tables=dict(list(table.groupby("over"))),
        found=found.fillna(""),
        met={mode: part for mode, part in met.groupby("mode")},
        counted=COUNTED,
        beyond=met.loc[met["beyond"] & two, "race"].unique(),
        times=None if times is None else times.round(2),
    )


PARTS = (*SIZES, "asking")


@options.with_page(write_page)
def main(
    results: Path, only: Annotated[str, typer.Option(help=f"{'; '.join(PARTS)}: these parts alone.")] = ""
) -> None:
    """Measure what was asked for."""
    os.nice(10)
    torch.set_num_threads(1)
    parts = options.chosen(only, PARTS, "only")
    for over in (part for part in parts if part in SIZES):
        for kind in KINDS[:1] if over == "arms, long" else KINDS:
            table = race(kind, over, SIZES[over])
            pages.save(table, results / f"{over.replace(', ', '-')}-{kind}.csv")
    if "asking" in parts:
        pages.save(measure(200, 5), results / "asking.csv", 4)


if __name__ == "__main__":
    options.command(main)()
