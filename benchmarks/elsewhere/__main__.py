"""``python -m benchmarks.elsewhere``: races on problems that others wrote, against the policies that come with them.

Needs ``pip install gmpb deap river gymnasium mabwiser bayesianbandits``; ``--page`` needs none of them. What is played
goes to results/PROBLEM-SEED.csv (peaks), results/PROBLEM.csv (bandits) and results/fresh-PROBLEM.csv (the final
environments of PROTOCOL.md) at once, and what is there is not played again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks import options, pages
from benchmarks.pages import markdown, seeds_of, too_few

AUTO = "ours: auto"
_HEAD = """
Nobody is told more than the bounds or the number of arms. The protocol stands at the head of `moving_peaks.py` and
`bandits.py`; nothing was tuned on these problems.
"""
_PEAKS = """
## Moving peaks, the longer form: {count} of the 14 instances

{seeds}. Mean over seeds; in brackets the standard error, where there are several. Evaluations between changes are a
hundredth of the published (at least 10; so F8 would be F7, and is left out): these figures are not those of the
competitions. A single run says little: last digits that differ between processors lead to other runs.

{few}"""
_TEN = """
## Ten seeds on {count} instances

{seeds}. `PROTOCOL-TEN.md`, written first, says what is played: where fifty evaluations lie between changes, two
environments; where ten do, six. In brackets the
standard error over seeds. The competitions and deap's papers print errors after 1 000 to 5 000 evaluations between
changes. Nowhere do evaluations agree, so no published figure stands beside these.

"""
_TEN_DIFFERENCES = """### Differences of `auto`, seed by seed

Mean of what `auto` has less that of the other; less and more: beyond two standard errors, in brackets.

"""
_MEASURES = {
    "offline_error": "Offline error: optimum minus the best since the last change, mean over evaluations",
    "before_change": "Error before a change",
    "regret": "Regret: optimum minus value, mean over evaluations",
}
_BANDITS = """
## Bandits of river: sum of rewards

{seeds}, the same environments for all; in brackets the standard error of the mean. A mean rank is
over the problems that a policy has played: bayesianbandits' are too slow for a hundred arms.

{few}"""

_FRESH = """
## Why others are ahead on candy-cane: {count} fresh environments

`PROTOCOL.md` was written before they were played, and says what the development environments showed: `auto` starts
without what a beta prior says, that chances are spread over [0, 1]. In brackets the standard error of the mean
difference, environment by environment.

"""


def write_page(results: Path) -> Path:
    tables = [pd.read_csv(file) for file in sorted(results.glob("*.csv"))]
    peaks = [table for table in tables if "offline_error" in table and "environment" not in table]
    ten = [table for table in tables if "offline_error" in table and "environment" in table]
    bandits = [table for table in tables if "reward" in table]
    fresh = [table for table in tables if "total" in table]
    said, parts = [], [_HEAD]
    if ten:
        told, text = _ten(pd.concat(ten))
        said.append(told)
        parts.append(text)
    if peaks:
        longer = "instances in the longer form"
        said.append(_place(pd.concat(peaks), "offline_error", longer, largest_first=False))
        parts.append(_peaks(pd.concat(peaks)))
    if bandits:
        said.append(_place(pd.concat(bandits), "reward", "bandits", largest_first=True))
        parts.append(_bandits(pd.concat(bandits)))
    if fresh:
        parts.append(_fresh(pd.concat(fresh)))
    path, command = results / "RESULTS.md", "python -m benchmarks.elsewhere"
    return pages.publish(path, "Problems that others wrote", " ".join(said), command, *parts)


def _peaks(played: pd.DataFrame) -> str:
    count, seeds = played["problem"].nunique(), seeds_of(played, "replicate", "problem")
    text = _PEAKS.format(count=count, seeds=seeds, few=too_few(played, "replicate", "problem"))
    tables = [f"### {title}\n\n{_table(played, of, largest_first=False)}" for of, title in _MEASURES.items()]
    text += "\n".join(tables)
    step = played.groupby("policy")["seconds"].median().mul(1000).sort_values()
    told = ", ".join(f"{policy} {ms:.0f} ms" for policy, ms in step.items())
    return f"{text}\nMedian of the seconds of a step, beside other work: {told}.\n"


def _ten(played: pd.DataFrame) -> tuple[str, str]:
    """How ``auto`` stands against each, in a sentence; and the section."""
    seeds = seeds_of(played, "replicate", "problem")
    text = _TEN.format(count=played["problem"].nunique(), seeds=seeds)
    runs = played.groupby(["policy", "problem", "replicate"])[[*_MEASURES]].mean().reset_index()
    for measure, title in _MEASURES.items():
        text += f"### {title}\n\n{_table(runs, measure, largest_first=False)}\n"
    rows, said = [], []
    for policy in sorted(set(runs["policy"]) - {AUTO}):
        for measure in ("offline_error", "regret"):
            row = [policy, measure.replace("_", " ")]
            counts = {"less": 0, "level": 0, "more": 0}
            for _, own in runs.groupby("problem"):
                of = own.pivot(index="replicate", columns="policy", values=measure)
                if policy not in of:
                    row.append("")
                    continue
                more = of[AUTO] - of[policy]
                fate = pages.beyond(more, "less", "level", "more")
                counts[fate] += 1
                row.append(f"{more.mean():+.1f} ({more.sem():.1f}), {fate}")
            rows.append(row)
            if measure == "offline_error":
                said.append(f"{policy} {counts['less']}, {counts['level']}, {counts['more']}")
    text += _TEN_DIFFERENCES + markdown(["auto against", "of", *sorted(runs["problem"].unique())], rows)
    count = played["problem"].nunique()
    told = (
        f"With ten seeds on {count} instances of moving peaks `auto` has less offline error, is level, has more "
        f"(beyond two standard errors) than: {'; '.join(said)}."
    )
    return told, text


def _bandits(played: pd.DataFrame) -> str:
    of = (played, "replicate", "problem")
    return _BANDITS.format(seeds=seeds_of(*of), few=too_few(*of)) + _table(
        played, "reward", largest_first=True
    )


def _fresh(played: pd.DataFrame) -> str:
    rows = []
    for name, group in played.groupby("problem"):
        totals = group.pivot(index="environment", columns="policy", values="total")
        for policy in totals.mean().sort_values(ascending=False).index:
            more = totals[policy] - totals["auto"]
            told = "" if policy == "auto" else f"{more.mean():+.1f} ({more.sem():.1f})"
            rows.append([str(name), policy, f"{totals[policy].mean():.1f}", told])
    count = played["environment"].nunique()
    return _FRESH.format(count=count) + markdown(["problem", "policy", "rewards", "more than auto"], rows)


def _place(played: pd.DataFrame, measure: str, what: str, *, largest_first: bool) -> str:
    """Where ``auto`` stands by mean rank, and who is first."""
    ranks = _ranks(played, measure, largest_first)
    few = " (too few seeds for a verdict)" if too_few(played, "replicate", "problem") else ""
    count = f"{played['problem'].nunique()} {what}"
    if AUTO not in ranks:
        return f"On {count} `{ranks.index[0]}` has the best mean rank, {ranks.iloc[0]:.2f}{few}."
    place = int((ranks < ranks[AUTO]).sum()) + 1
    first = "" if place == 1 else f"; the first is {ranks.index[0]} with {ranks.iloc[0]:.2f}"
    return (
        f"On {count} `auto` has the mean rank {ranks[AUTO]:.2f}, place {place} of {len(ranks)}{first}{few}."
    )


def _ranks(played: pd.DataFrame, measure: str, largest_first: bool) -> pd.Series:
    """The mean rank of each policy over the problems that it has played, the best first."""
    mean = played.groupby(["policy", "problem"])[measure].mean().unstack()
    return mean.rank(ascending=not largest_first).mean(axis=1).sort_values(kind="stable")


def _table(played: pd.DataFrame, measure: str, *, largest_first: bool) -> str:
    """Policies as rows, the best mean rank first; problems as columns."""
    by = played.groupby(["policy", "problem"])[measure]
    rank = _ranks(played, measure, largest_first)
    shown = by.agg(_cell).unstack().fillna("").loc[rank.index]
    shown.insert(0, "mean rank", rank.map("{:.2f}".format))
    return markdown(["policy", *shown.columns], shown.reset_index().to_numpy())


def _cell(values: pd.Series) -> str:
    return f"{values.mean():.1f}" + (f" ({values.sem():.1f})" if len(values) > 1 else "")


REPLICATES = 3
PARTS = ("bandits", "peaks", "fresh", "ten")


def main(
    only: Annotated[str, typer.Option(help=f"{', '.join(PARTS)}: these parts alone.")] = "",
    problems: Annotated[str, typer.Option(help="Comma-separated; default: all.")] = "",
    seeds: Annotated[str, typer.Option(help="Comma-separated, of the peaks.")] = "0,1,2",
    page: options.PageAlone = False,
) -> None:
    """Play what was asked for, then write the page."""
    torch.set_num_threads(1)
    results = pages.results_folder(__file__)
    if not page:
        parts = options.chosen(only, PARTS, "only")
        of_peaks = options.seeds_of(seeds)
        jobs = [job for part in parts for job in _jobs(part, results, of_peaks)]
        wanted = options.chosen(problems, [name for name, _ in jobs], "problems")
        for name, play in jobs:
            if name in wanted:
                play()
    pages.say(f"wrote {write_page(results)}")


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
