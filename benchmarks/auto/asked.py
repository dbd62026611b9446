"""What was asked of looking again, what it came to, and what cannot be had: ``python -m benchmarks.auto.asked``.

``looks.csv`` has the time of a step with looks and without (``--time``), ``then.csv`` the leaderboard's mean regret of
``auto`` when the ranks were asked for, before it looked again.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer

from bandits_torch import Domain, recipes
from benchmarks import options, pages
from benchmarks.auto import frontier
from benchmarks.auto.__main__ import LEADERBOARD
from benchmarks.auto.environments import AFTER, DOMAINS, RISERS, SHAPES, Riser
from benchmarks.auto.playing import HISTORY, MISTAKES, NEVER, POLICIES, UNSEEN
from benchmarks.auto.step import policies, step_seconds
from benchmarks.continuous.__main__ import HORIZON
from benchmarks.leaderboard import settings

GIVEN, NO_KERNEL = POLICIES
OWN = (*POLICIES, HISTORY)
CAME_SINCE = ("predictive_sampling", "dal", "dal w=2")  # to the leaderboard, after the ranks were asked for
RANK, SHARE = {GIVEN: 2.93, NO_KERNEL: 7.36}, {GIVEN: 0.206, NO_KERNEL: 0.271}  # asked
RATIO, STATIONARY, SAME, MISLED, THIRD = 1.2, 0.026, 1.03, 1.3, 1 / 3
UNFOUND = 0.98  # of what never finding costs: who loses more did not find it
ARMS, STEPS, STEP_MS = 200, 64, 5.0
PAIRS = tuple(zip(POLICIES, NEVER, strict=True))
UNDER_MISTAKES = ("stationary", "tv-gp-0.01", "four-switches")


def write_page(folder: Path) -> Path:
    totals, board = pd.read_csv(folder / "totals.csv"), leaderboard(pd.read_csv(LEADERBOARD))
    then = pd.read_csv(folder / "then.csv").pivot(index="environment", columns="policy", values="regret")
    points, of_seed = pd.read_csv(folder / "frontier.csv"), totals[totals["seed"] == frontier.SEED]
    partial = of_seed[of_seed["environment"] == "partial-switches"].groupby("policy")["regret"]
    tau = recipes.auto(Domain(torch.tensor([[0.0], [1.0]]).double())).looks.tau
    mistaken = {name: _means(totals[totals["seed"] == 7_000], name) for name in UNDER_MISTAKES}
    return pages.render(
        folder / "ASKED.md",
        "auto/ASKED.md.jinja",
        program=sys.modules[__name__],
        shapes=_risers(of_seed[of_seed["environment"].isin(RISERS)], points),
        given=_leaderboard(board, then),
        stationary=_stationary(of_seed, board, then, points),
        partial={own: [partial.get_group(name) for name in (own, never)] for own, never in PAIRS},
        same=_same(of_seed),
        mistaken={name: of[list(MISTAKES)].mean() / of[GIVEN] for name, of in mistaken.items()},
        steps=_steps(pd.read_csv(folder / "looks.csv"), pd.read_csv(folder / "step.csv")),
        # Observations before the first look over a domain.
        first=next(t for t in range(10_000) if t >= tau(t)),
        risers=totals[totals["environment"].isin(RISERS) & totals["policy"].isin(OWN)],
        seed=frontier.SEED,
        domain_horizon=HORIZON,
        **_rank(board, then),
    )


def leaderboard(totals: pd.DataFrame) -> pd.DataFrame:
    """Mean regret of the leaderboard's environments (rows) and policies."""
    ranked = totals[totals["environment"].isin(settings.RANKED)]
    return ranked.groupby(["environment", "policy"])["regret"].mean().unstack().loc[list(settings.RANKED)]


def mean_rank(means: pd.DataFrame, own: str, others: list[str]) -> float:
    """Of ``own`` among itself and the others; 1 is the least regret."""
    return 1 + float((means[others].lt(means[own], axis=0)).sum(axis=1).mean())


def most_for(means: pd.DataFrame, own: str, others: list[str], rank: float, environment: str) -> float:
    """The regret below which ``own`` must stay in one environment, all else as it is, to have this mean rank; NaN if
    none is low enough."""
    rest = means.drop(index=environment)
    ahead = rest[others].lt(rest[own], axis=0).sum(axis=1).sum()
    allowed = int(np.floor((rank - 1) * len(means) - ahead + 1e-9 + 0.005 * len(means)))
    there = np.sort(means.loc[environment, others].to_numpy())
    return float(there[allowed]) if 0 <= allowed < len(there) else np.nan


def _risers(here: pd.DataFrame, points: pd.DataFrame) -> list[dict[str, Any]]:
    """Of each shape: in how many replicates what rose was found, regrets over the best rival's, and what the bound says
    of the cases after 500 and 2 000 quiet steps: what looks must cost, and what is paid."""
    shapes, played = [], set(here["environment"])
    for shape in (*SHAPES, *DOMAINS):
        cells = [name for name in RISERS if Riser(name).shape == shape and name in played]
        beside = [name for name in cells if not set(here[here["environment"] == name]["policy"]) <= set(OWN)]
        counts = {own: [found(here, name, own) for name in cells] for own in OWN}
        counts = {own: of_cells for own, of_cells in counts.items() if any(of for _, of in of_cells)}
        every = [one for of_cells in counts.values() for one in of_cells]
        of = [(own, name) for own in counts for name in beside]
        ratios = [_means(here, name).get(own, np.nan) / _best(here, name) for own, name in of]
        mine = points[points["shape"] == shape].set_index("policy")
        late = {quiet: name for name in beside if (quiet := Riser(name).quiet) >= 500}
        goals = {quiet: RATIO * _best(here, name) for quiet, name in late.items()}
        needs = {quiet: frontier.needed(mine.loc[[frontier.ANY]], goal) for quiet, goal in goals.items()}
        line = {"name": shape, "cells": cells, "beside": beside, "counts": counts, "ratios": ratios}
        line |= {
            "needs": needs,
            "most": max(of for _, of in every),
            "found": all(some == of for some, of in every),
        }
        shapes.append(line | {"paid": mine.loc[list(OWN), "paid"] if shape in SHAPES else None})
    return shapes


def found(here: pd.DataFrame, name: str, own: str) -> tuple[int, int]:
    """In how many of how many replicates what rose was found; never finding it costs 3 000 a step of unrelated arms, 1
    of a region or a hill."""
    never = AFTER * (3_000.0 if Riser(name).shape in SHAPES[:2] else 1.0)
    regret = here[(here["environment"] == name) & (here["policy"] == own)]["regret"]
    return int((regret < UNFOUND * never).sum()), len(regret)


def _means(here: pd.DataFrame, name: str) -> pd.Series:
    return here[here["environment"] == name].groupby("policy")["regret"].mean()


def _best(here: pd.DataFrame, name: str) -> float:
    """The regret of the best rival."""
    return float(_means(here, name).drop(list(OWN), errors="ignore").min())


def _leaderboard(board: pd.DataFrame, then: pd.DataFrame) -> list[dict[str, Any]]:
    """Of each policy the mean rank, that among those that stood then, and that of the ``auto`` of then; and shares."""
    lines, of_then = [], board.assign(**{name: then[name] for name in POLICIES})
    for own in POLICIES:
        others = [name for name in board if name != own]
        share, before = (float((means[own] / board["random"]).mean()) for means in (board, then))
        line = {"own": own, "rank": mean_rank(board, own, others), "share": share, "share_before": before}
        line["stood"] = mean_rank(board, own, [name for name in others if name not in CAME_SINCE])
        lines.append(line | {"rank_before": mean_rank(of_then, own, others)})
    return lines


def _stationary(
    here: pd.DataFrame, board: pd.DataFrame, then: pd.DataFrame, points: pd.DataFrame
) -> list[dict[str, Any]]:
    """Regret where nothing changes, and what at most 2.6 % of random's leaves for looks."""
    region, name = points[points["shape"] == SHAPES[2]], f"{SHAPES[2]} after 500"
    curve = region[region["policy"] == frontier.ANY]
    goal, random, lines = RATIO * _best(here, name), board.loc["stationary", "random"], []
    for own in POLICIES:
        now, before = board.loc["stationary", own], then.loc["stationary", own]
        left = STATIONARY * random - before
        line = {"own": own, "now": now, "before": before, "random": random, "goal": goal, "left": left}
        lines.append(line | {"lost": frontier.bound(curve, left), "needs": frontier.needed(curve, goal)})
    return lines


def _rank(board: pd.DataFrame, then: pd.DataFrame) -> dict[str, Any]:
    others = [name for name in board if name not in POLICIES]
    stood = [name for name in others if name not in CAME_SINCE]
    before = board.assign(**{name: then[name] for name in POLICIES})
    calm = board.copy()
    calm.loc["stationary", list(POLICIES)] = then.loc["stationary", list(POLICIES)]
    cases = [
        (f"the `auto` of then, among the {len(stood)} that stood then", before, stood),
        (f"the `auto` of then, among all {len(others)} of now", before, others),
        (f"`auto` as it is, among the {len(stood)} that stood then", board, stood),
        *((f"`auto` as it is, among these and `{name}`", board, [*stood, name]) for name in CAME_SINCE),
        (f"`auto` as it is, among all {len(others)} of now", board, others),
        (f"the same, stationary as without looks, among the {len(stood)}", calm, stood),
        (f"the same, stationary as without looks, among all {len(others)}", calm, others),
    ]
    rows = []
    for title, means, rivals in cases:
        each = [mean_rank(means, own, [*rivals, *(p for p in POLICIES if p != own)]) for own in POLICIES]
        rows.append([title, *(f"{rank:.2f}" for rank in each)])
    both, lost = [*others, NO_KERNEL], []
    ahead = board[both].lt(board[GIVEN], axis=0)
    for name, count in ahead.sum(axis=1).sort_values(ascending=False, kind="stable").items():
        if count:
            who = ", ".join(f"`{one}`" for one in both if ahead.loc[name, one])
            lost.append([name, f"{count / len(board):.2f}", who])
    return {
        "stood": len(stood),
        "others": len(others),
        "cases": pd.DataFrame(rows, columns=["", *(f"`{own}`" for own in POLICIES)]),
        "lost": pd.DataFrame(lost, columns=["environment", "rank lost", "ahead"]),
        "at_best": mean_rank(before, GIVEN, both),
        "most": most_for(board, GIVEN, both, RANK[GIVEN], "stationary"),
        "now": board.loc["stationary", GIVEN],
        "then": then.loc["stationary", GIVEN],
    }


def _same(of_seed: pd.DataFrame) -> list[dict[str, Any]]:
    """Regret with looks over that without, on records and tables, with its error and how many replicates there are."""
    lines = []
    for own, never in PAIRS:
        cells = {}
        for name in (*UNSEEN, "firm"):
            cell = of_seed[of_seed["environment"] == name]
            both = cell.pivot_table(index="replicate", columns="policy", values="regret")
            pairs = both[[own, never]].dropna()
            cells[name] = *pages.ratio(pairs[own], pairs[never]), len(pairs)
        most = max(one[0] for one in cells.values())
        lines.append({"own": own, "never": never, "cells": cells, "most": most})
    return lines


def _steps(looks: pd.DataFrame, quiet: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """The time of a step on a quiet machine, without looks, in ms; and what looks multiply it by."""
    alone = quiet[(quiet["arms"] == ARMS) & (quiet["replicates"] == 1)].set_index("policy")["mean_ms"]
    of = looks.set_index("policy")
    return {own: (alone[own], of["ms"][own] / of["ms_without"][own]) for own in POLICIES}


def step_costs() -> pd.DataFrame:
    """Median processor time of a step at 200 arms, with looks and without, played in turn; in ms."""
    rows = []
    for own in POLICIES:
        seconds: dict[str, list[float]] = {"ms": [], "ms_without": []}
        for _ in range(3):
            seconds["ms"] += step_seconds(policies(ARMS, 1)[own], STEPS)
            seconds["ms_without"] += step_seconds(policies(ARMS, 1, look_again=0.0)[own], STEPS)
        medians = {name: 1e3 * float(np.median(taken)) for name, taken in seconds.items()}
        rows.append({"policy": own, **medians})
    return pd.DataFrame(rows)


@options.with_page(write_page)
def main(
    folder: Path,
    time: Annotated[bool, typer.Option("--time", help="Measure a step first (OMP_NUM_THREADS=1).")] = False,
) -> None:
    """Write the page."""
    if time:
        torch.set_num_threads(1)
        pages.save(step_costs(), folder / "looks.csv", 3)


if __name__ == "__main__":
    options.command(main)()
