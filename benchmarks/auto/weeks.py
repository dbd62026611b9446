"""``python -m benchmarks.auto.weeks``: ``auto`` on tables with a day and a week, and ``auto`` told a wrong period."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from bandits_torch import recipes
from bandits_torch.experiments.regret import random_regret
from bandits_torch.kernels import ExponentialForgettingKernel, QuasiPeriodicKernel
from bandits_torch.loop import run
from bandits_torch.policies.policy import Policy
from benchmarks import options, pages
from benchmarks.auto.days import DAY, FOUND, NONE, PAST, WEEK, DaysTable, auto_told, scaled

PLAYED = 576  # rows: 24 days
SIZE = 0.7  # of the week, in units of the day's
DEVELOPMENT, REPORTED = range(120, 123), range(300, 320)
KEY = ("table", "seed", "policy")
BOTH, ONE, NEITHER = "day and week", "day", "no cycle"
TABLES: dict[str, Callable[[int], DaysTable]] = {
    BOTH: lambda seed: DaysTable(seed, week=SIZE, past=1344, played=PLAYED),  # eight weeks are told
    ONE: lambda seed: DaysTable(seed, past=PAST, played=PLAYED),
    NEITHER: lambda seed: DaysTable(seed, cycle=False, past=PAST, played=PLAYED),
}


def _told_both(rate: float, share: float, width: float) -> Callable[[DaysTable], Policy]:
    """``tv_gp_ucb`` with a day's cycle and half as much of a week's, kept for five days and five weeks."""

    def built(problem: DaysTable) -> Policy:
        day, week = (
            QuasiPeriodicKernel(period, 1.0, 5 * period, order=order)
            for period, order in ((DAY, 3), (WEEK, 2))
        )
        known, kept = problem.knowledge, ExponentialForgettingKernel(rate)
        return recipes.tv_gp_ucb(
            problem.arms,
            known.kernel,
            known.noise_variance,
            prior_mean=known.prior_mean,
            time_kernel=scaled(day, share * 2 / 3) + scaled(week, share / 3) + scaled(kept, 1 - share),
            width=width,
        )

    return built


RIVALS = {
    f"kernel told both: rate {rate:g}, share {share:g}, width {width:g}": _told_both(rate, share, width)
    for rate in (0.01, 0.03)
    for share in (0.5, 0.8)
    for width in (1.0, 2.0)
}
RIVAL = "kernel told both: rate 0.01, share 0.8, width 1"  # the best of RIVALS on the seeds that choose
TOLD = {
    f"auto, cycles={period:g}": auto_told(cycles=period)
    for period in (DAY, 1.05 * DAY, 2 * DAY, DAY / 2, 0.95 * DAY)
}
RIGHT = "auto, cycles=24"
TOLD_BOTH = "auto, cycles=[24, 168]"
POLICIES = {
    FOUND: auto_told(),
    NONE: auto_told(cycles=None),
    TOLD_BOTH: auto_told(cycles=[DAY, WEEK]),
    **TOLD,
    **RIVALS,
}
RACED = {BOTH: (NONE, FOUND, TOLD_BOTH, RIVAL), ONE: (NONE, *TOLD), NEITHER: (NONE, RIGHT)}


def play(table: str, seed: int, policy: str) -> dict[str, object]:
    """Total regret of a policy on a table, and that of random play."""
    problem = TABLES[table](seed)
    regret = float(run(POLICIES[policy](problem), problem, problem.horizon, seed=0).regret.sum())
    chance = float(random_regret(problem, problem.horizon).sum())
    return {"table": table, "seed": seed, "policy": policy, "regret": regret, "random": chance}


def write_page(folder: Path) -> Path:
    """``WEEKS.md`` from ``weeks.csv``."""
    table, rows, ratios = pd.read_csv(folder / "weeks.csv"), [], {}
    for name, policies in RACED.items():
        own = table[table["table"] == name]
        cells = own.pivot(index="seed", columns="policy", values="regret")[list(policies)].dropna()
        chance = own.groupby("seed")["random"].first()[cells.index].sum()
        for policy in policies:
            sums = cells[policy].sum(), cells[NONE].sum()
            spread = (cells[policy] - cells[NONE] * sums[0] / sums[1]).std() * math.sqrt(len(cells)) / sums[1]
            ratios[name, policy] = sums[0] / sums[1]
            ratio = "1" if policy == NONE else f"{ratios[name, policy]:.3f} ± {spread:.3f}"
            fewer = "" if policy == NONE else f"{int((cells[policy] < cells[NONE]).sum())} of {len(cells)}"
            rows.append([name, f"`{policy}`", f"{sums[0] / chance:.1%}", ratio, fewer])
    rival = ratios[BOTH, RIVAL]
    wrong = {policy: ratios[ONE, policy] for policy in TOLD if policy != RIGHT}
    most = max(wrong, key=wrong.__getitem__)
    answer = (
        f"With a day and a week, `auto` that is told the history has {ratios[BOTH, FOUND] / rival:.2f} of the regret of "
        f"the kernel told both periods (told the periods as well: {ratios[BOTH, TOLD_BOTH] / rival:.2f}; asked: at most "
        f"1.05). Of `auto` without cycles it has {ratios[BOTH, FOUND]:.2f}. Told a wrong period where there is a day, "
        f"the worst is {most.removeprefix('auto, cycles=')} hours, with {wrong[most]:.2f} of the regret of no cycles; "
        f"told a day where there is none, {ratios[NEITHER, RIGHT]:.2f}."
    )
    about = (
        f"\nTables of thirty products by the hour, as in `DAYS.md`; with a week, 1 344 hours are told as history, else "
        f"{PAST}; {PLAYED} are played; {pages.seeds_of(table, 'seed')}. Regret in expected rewards, as a share of "
        f"random's, and as a ratio of sums to that of `{NONE}`, with its standard error; the last column counts the "
        "tables on which it has less. The protocol is in `../PROTOCOL.md`.\n\n"
    )
    heads = ["table", "policy", "share of random", "ratio", "better on"]
    head = pages.opening("A day and a week, and wrong periods", answer, "python -m benchmarks.auto.weeks")
    return pages.write(folder / "WEEKS.md", head + about + pages.markdown(heads, rows))


def main(
    seeds: Annotated[
        str, typer.Option(help="reported, or development: all settings of the rival.")
    ] = "reported",
    out: options.Out = None,
    page: options.PageAlone = False,
) -> None:
    """Play, and write what came of it."""
    folder = pages.results_folder(__file__, out)
    if seeds == "development":
        rows = [play(BOTH, seed, name) for name in (FOUND, TOLD_BOTH, *RIVALS) for seed in DEVELOPMENT]
        pages.say(pd.DataFrame(rows).groupby("policy")["regret"].mean())
        return
    for seed in [] if page else REPORTED:
        rows = [play(table, seed, name) for table, policies in RACED.items() for name in policies]
        pages.keep(folder / "weeks.csv", pd.DataFrame(rows), KEY)
        pages.say(f"{seed}: " + ", ".join(f"{row['regret']:.0f}" for row in rows))
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()
