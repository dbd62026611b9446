"""``python -m benchmarks.elsewhere``: races on problems that others wrote, against the policies that come with them.

Needs ``pip install gmpb deap river gymnasium mabwiser bayesianbandits``; ``--page`` needs none of them. What is played
is kept at once, and is not played again.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer

from benchmarks import options, pages

AUTO = "ours: auto"
_ERRORS = ("offline_error", "before_change", "regret")


def write_page(results: Path) -> Path:
    tables: dict[str, list[pd.DataFrame]] = {}
    for file in sorted(results.glob("*.csv")):
        table = pd.read_csv(file)
        peaks = "ten" if "environment" in table else "peaks"
        kind = peaks if "offline_error" in table else "bandits" if "reward" in table else "fresh"
        tables.setdefault(kind, []).append(table)
    played = {kind: pd.concat(several) for kind, several in tables.items()}
    shown: dict[str, Any] = {"fresh": played["fresh"]} if "fresh" in played else {}
    if "ten" in played:
        runs = played["ten"].groupby(["policy", "problem", "replicate"])[[*_ERRORS]].mean().reset_index()
        seeds = pages.seeds_of(played["ten"], "replicate", "problem")
        shown["ten"] = _section(runs, *_ERRORS) | {"seeds": seeds, "differences": _differences(runs)}
    if "peaks" in played:
        step = played["peaks"].groupby("policy")["seconds"].median().mul(1000).sort_values()
        shown["peaks"] = _section(played["peaks"], *_ERRORS) | {"step": step}
    if "bandits" in played:
        shown["bandits"] = _section(played["bandits"], "reward")
    return pages.render(results / "RESULTS.md", "elsewhere/RESULTS.md.jinja", auto=AUTO, **shown)


def _section(played: pd.DataFrame, *measures: str) -> dict[str, Any]:
    """Means and errors of these measures, the mean ranks by each, which seeds, and a word where they are few."""
    of = (played, "replicate", "problem")
    by = played.groupby(["policy", "problem"])[[*measures]].agg(["mean", "sem"])
    means = {measure: by[measure]["mean"].unstack() for measure in measures}
    ranks = {
        measure: mean.rank(ascending=measure != "reward").mean(axis=1).sort_values(kind="stable")
        for measure, mean in means.items()
    }
    return {
        "count": played["problem"].nunique(),
        "seeds": pages.seeds_of(*of),
        "few": pages.too_few(*of),
        "problems": sorted(played["problem"].unique()),
        "by": by,
        "rank": ranks,
        "ranks": ranks[measures[0]],
    }


def _differences(runs: pd.DataFrame) -> dict[tuple[str, str], dict[str, pd.Series]]:
    """What ``auto`` has more than each other policy, by policy, measure and problem, seed by seed."""
    found: dict[tuple[str, str], dict[str, pd.Series]] = {}
    for policy, measure in product(sorted(set(runs["policy"]) - {AUTO}), ("offline_error", "regret")):
        for problem, own in runs.groupby("problem"):
            of = own.pivot(index="replicate", columns="policy", values=measure)
            if policy in of:
                found.setdefault((policy, measure), {})[problem] = of[AUTO] - of[policy]
    return found


REPLICATES = 3
PARTS = ("bandits", "peaks", "fresh", "ten")


@options.with_page(write_page)
def main(
    results: Path,
    only: Annotated[str, typer.Option(help=f"{', '.join(PARTS)}: these parts alone.")] = "",
    problems: Annotated[str, typer.Option(help="Comma-separated; default: all.")] = "",
    seeds: Annotated[str, typer.Option(help="Comma-separated, of the peaks.")] = "0,1,2",
) -> None:
    """Play what was asked for."""
    torch.set_num_threads(1)
    parts = options.chosen(only, PARTS, "only")
    of_peaks = options.seeds_of(seeds)
    jobs = [job for part in parts for job in _jobs(part, results, of_peaks)]
    wanted = options.chosen(problems, [name for name, _ in jobs], "problems")
    for name, play in jobs:
        if name in wanted:
            play()


def _jobs(part: str, results: Path, seeds: list[int]) -> list[tuple[str, Callable[[], None]]]:
    """The problems of a part, and what plays each of them where it is not kept."""
    jobs: list[tuple[str, Callable[[], None]]] = []
    if part in ("bandits", "fresh"):
        from benchmarks.elsewhere import bandits

        for name in bandits.ENVIRONMENTS:
            path, play = results / f"{name}.csv", partial(bandits.race, name, REPLICATES)
            if part == "fresh":
                path, play = results / f"fresh-{name}.csv", partial(bandits.race_fresh, name)
            jobs.append((name, partial(_once, path, play)))
        return jobs
    from benchmarks.elsewhere import moving_peaks

    if part == "ten":
        return [(name, partial(_ten_seeds, name, results)) for name in moving_peaks.TEN_PROBLEMS]
    for seed, name in product(seeds, moving_peaks.PROBLEMS):
        play = partial(moving_peaks.race, name, seed)
        jobs.append((name, partial(_once, results / f"{name}-{seed}.csv", play)))
    return jobs


def _once(path: Path, play: Callable[[], pd.DataFrame]) -> None:
    if not path.exists():
        pages.save(play(), path)


def _ten_seeds(name: str, results: Path) -> None:
    """Play what is missing of ten seeds; each run is kept as it is played."""
    from benchmarks.elsewhere import moving_peaks

    path = results / f"ten-{name}.csv"
    kept = pages.played(path, ("policy", "replicate"))
    for seed, optimiser in product(range(moving_peaks.TEN_SEEDS), moving_peaks.TEN):
        if (optimiser, seed) not in kept:
            rows = moving_peaks.play_ten(name, optimiser, seed)
            pages.keep(path, rows, ("problem", "policy", "replicate", "environment"))


if __name__ == "__main__":
    options.command(main)()
