"""``python -m benchmarks.auto.weeks``: ``auto`` on tables with a day and a week, and ``auto`` with a wrong period."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from bandits_torch import run
from bandits_torch.experiments import random_regret
from benchmarks import options, pages
from benchmarks.auto.days import DAY, FOUND, NONE, PAST, WEEK, DaysTable, auto_with, known_cycles

PLAYED = 576  # rows: 24 days
SIZE = 0.7  # of the week, in units of the day's
DEVELOPMENT, REPORTED = range(120, 123), range(300, 320)
KEY = ("table", "seed", "policy")
BOTH, ONE, NEITHER = "day and week", "day", "no cycle"
TABLES: dict[str, Callable[[int], DaysTable]] = {
    BOTH: lambda seed: DaysTable(seed, week=SIZE, past=1344, played=PLAYED),  # eight weeks are given
    ONE: lambda seed: DaysTable(seed, past=PAST, played=PLAYED),
    NEITHER: lambda seed: DaysTable(seed, cycle=False, past=PAST, played=PLAYED),
}


RIVALS = {
    f"kernel with both periods: rate {rate:g}, share {share:g}, width {width:g}": known_cycles(
        {DAY: (3, share * 2 / 3), WEEK: (2, share / 3)}, 1 - share, rate, width
    )
    for rate, share, width in product((0.01, 0.03), (0.5, 0.8), (1.0, 2.0))
}
# The best of RIVALS on the seeds that choose.
RIVAL = "kernel with both periods: rate 0.01, share 0.8, width 2"
PERIODS = {
    f"auto, cycles={period:g}": auto_with(cycles=period) for period in (DAY, 1.05 * DAY, 2 * DAY, DAY / 2)
}
RIGHT = "auto, cycles=24"
GIVEN_BOTH = "auto, cycles=[24, 168]"  # on the seeds that choose
POLICIES = {
    FOUND: auto_with(),
    NONE: auto_with(cycles=None),
    GIVEN_BOTH: auto_with(cycles=[DAY, WEEK]),
    **PERIODS,
    **RIVALS,
}
RACED = {BOTH: (FOUND, RIVAL), ONE: (NONE, *PERIODS), NEITHER: (NONE, RIGHT)}
BASES = {BOTH: RIVAL, ONE: NONE, NEITHER: NONE}  # whose regret is 1


def play(table: str, seed: int, policy: str) -> dict[str, object]:
    """Total regret of a policy on a table, and that of random play."""
    problem = TABLES[table](seed)
    regret = float(run(POLICIES[policy](problem), problem, problem.horizon, seed=0).regret.sum())
    chance = float(random_regret(problem, problem.horizon).sum())
    return {"table": table, "seed": seed, "policy": policy, "regret": regret, "random": chance}


def write_page(folder: Path) -> Path:
    """``WEEKS.md`` from ``weeks.csv``; of each table the seeds that all of its policies were played on."""
    table, rows = pd.read_csv(folder / "weeks.csv"), {}
    for name, policies in RACED.items():
        own, base = table[table["table"] == name], BASES[name]
        cells = own.pivot(index="seed", columns="policy", values="regret")[list(policies)].dropna()
        chance = own.groupby("seed")["random"].first()[cells.index].sum()
        for policy in policies:
            ratio, error = pages.ratio(cells[policy], cells[base])
            row = {
                "tables": len(cells),
                "share": cells[policy].sum() / chance,
                "ratio": ratio,
                "error": error,
            }
            rows[name, policy] = row | {"base": base, "better": (cells[policy] < cells[base]).sum()}
    return pages.render(
        folder / "WEEKS.md",
        "auto/WEEKS.md.jinja",
        played=table,
        past=PAST,
        steps=PLAYED,
        both=rows[BOTH, FOUND]["ratio"],
        neither=rows[NEITHER, RIGHT]["ratio"],
        costs={policy.split("=")[1]: rows[ONE, policy]["ratio"] for policy in PERIODS},
        rows=rows,
    )


@options.with_page(write_page)
def main(
    folder: Path,
    seeds: Annotated[
        str, typer.Option(help="reported, some by commas, or development: the rival's.")
    ] = "reported",
) -> None:
    """Play what is not kept yet, and write what came of it."""
    if seeds == "development":
        rows = [play(BOTH, seed, name) for name in (FOUND, GIVEN_BOTH, *RIVALS) for seed in DEVELOPMENT]
        pages.say(pd.DataFrame(rows).groupby("policy")["regret"].mean())
        raise typer.Exit
    file = folder / "weeks.csv"
    kept = pages.played(file, KEY)
    wanted = options.seeds_of(seeds, {"reported": REPORTED})
    plays = [(table, seed, one) for seed in wanted for table in RACED for one in RACED[table]]
    for each in plays:
        if each not in kept:
            row = play(*each)
            pages.keep(file, pd.DataFrame([row]), KEY)
            pages.say(f"{', '.join(map(str, each))}: {row['regret']:.0f} of {row['random']:.0f}")


if __name__ == "__main__":
    options.command(main)()
