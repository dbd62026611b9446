"""What was asked of looking again, what it came to, and what cannot be had: ``python -m benchmarks.auto.asked``.

Writes ``results/ASKED.md`` from tables that are kept: ``totals.csv``, ``frontier.csv``, ``looks.csv`` and ``then.csv``
beside it, ``step.csv`` and the leaderboard's. ``looks.csv`` has the time of a step with looks and without (``--time``);
``then.csv`` the leaderboard's mean regret of ``auto`` before it looked again, when the ranks were asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer

from bandits_torch import recipes
from bandits_torch.domain import Domain
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
# Asked, measured, by which command, whether it is met; why not, or at what price.
Item = tuple[str, str, str, bool, str]
_BOARD = '`python -m benchmarks.leaderboard --policies "auto;auto, no kernel"`'


def write_page(folder: Path) -> Path:
    totals, board = pd.read_csv(folder / "totals.csv"), leaderboard(pd.read_csv(LEADERBOARD))
    then = pd.read_csv(folder / "then.csv").pivot(index="environment", columns="policy", values="regret")
    points = pd.read_csv(folder / "frontier.csv")
    items = [
        *_risers(totals, points),
        *_leaderboard(board, then),
        *_stationary(totals, board, then, points),
        *_others(totals),
        *_steps(pd.read_csv(folder / "looks.csv"), pd.read_csv(folder / "step.csv")),
    ]
    return pages.render(
        folder / "ASKED.md",
        "auto/ASKED.md.jinja",
        items=items,
        risers=totals[totals["environment"].isin(RISERS) & totals["policy"].isin(OWN)],
        unfound=UNFOUND,
        seed=frontier.SEED,
        ranks=list(RANK.values()),
        came_since=CAME_SINCE,
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


def _play(environments: str, seed: int, replicates: int, more: str = "") -> str:
    played = f'--environments "{environments}" --seed {seed} --replicates {replicates}{more}'
    return f"`python -m benchmarks.auto {played}`"


# -- risers --------------------------------------------------------------------------------------------


def _risers(totals: pd.DataFrame, points: pd.DataFrame) -> list[Item]:
    """Found in every replicate, and 1.2 of the best rival: a line for each shape."""
    here = totals[(totals["seed"] == frontier.SEED) & totals["environment"].isin(RISERS)]
    lines: list[Item] = []
    for shape in (*SHAPES, *DOMAINS):
        played = set(here["environment"])
        cells = [name for name in RISERS if Riser(name).shape == shape and name in played]
        beside = [name for name in cells if not set(here[here["environment"] == name]["policy"]) <= set(OWN)]
        counts = {own: [found(here, name, own) for name in cells] for own in OWN}
        counts = {own: of_cells for own, of_cells in counts.items() if any(of for _, of in of_cells)}
        each = [f"`{own}` {', '.join(f'{some} of {of}' for some, of in counts[own])}" for own in counts]
        most = max(of for of_cells in counts.values() for _, of in of_cells)
        command = _play(",".join(cells), frontier.SEED, most)
        everywhere = all(some == of for of_cells in counts.values() for some, of in of_cells)
        asked = f"{_after(shape, cells)}: found in every replicate"
        lines.append((asked, "; ".join(each), command, everywhere, "" if everywhere else _why_unfound(shape)))
        of = [(own, name) for own in counts for name in beside]
        ratios = [_means(here, name).get(own, np.nan) / _best(here, name) for own, name in of]
        within = sum(ratio <= RATIO for ratio in ratios)
        shown = f"{min(ratios):.2f} to {max(ratios):.2f}, {within} of {len(ratios)} within"
        met = within == len(ratios)
        why = "" if met else _price(shape, points, here, beside)
        asked = f"{_after(shape, beside)}: at most {RATIO} of the best rival"
        lines.append((asked, shown, command, met, why))
    return lines


def _after(shape: str, cells: list[str]) -> str:
    return f"{shape} after {', '.join(str(Riser(name).quiet) for name in cells)}"


def _never(name: str) -> float:
    """What never finding costs: 3 000 a step of unrelated arms, 1 of a region or a hill."""
    return AFTER * (3_000.0 if Riser(name).shape in SHAPES[:2] else 1.0)


def found(here: pd.DataFrame, name: str, own: str) -> tuple[int, int]:
    regret = here[(here["environment"] == name) & (here["policy"] == own)]["regret"]
    return int((regret < UNFOUND * _never(name)).sum()), len(regret)


def _means(here: pd.DataFrame, name: str) -> pd.Series:
    return here[here["environment"] == name].groupby("policy")["regret"].mean()


def _best(here: pd.DataFrame, name: str) -> float:
    """The regret of the best rival."""
    return float(_means(here, name).drop(list(OWN), errors="ignore").min())


def _why_unfound(shape: str) -> str:
    if shape in DOMAINS:
        return (
            "at most eight looks in 7 sqrt(t + 300) steps: after 2000 steps 11 in the 500 that are counted, fewer than "
            "the hill's balls that the domain has; `look_again=3.5` lost no less after 100 and 500 (protocol)"
        )
    return (
        "with the kernel there are at most six looks in 14 sqrt(t + 300) steps, and the worst arms wait for up to "
        "twice as many; sooner looks found it in 20 of 20 after 500 and cost 2.3 more on stationary (protocol)"
    )


def _price(shape: str, points: pd.DataFrame, here: pd.DataFrame, cells: list[str]) -> str:
    """What the bound says of the cases after 500 and 2 000 quiet steps: what looks must cost, and who pays as much."""
    mine = points[points["shape"] == shape].set_index("policy")
    said = []
    for name in (cell for cell in cells if Riser(cell).quiet >= 500):
        needs = frontier.needed(mine.loc[[frontier.ANY]], RATIO * _best(here, name))
        words = f"after {Riser(name).quiet} looks must cost {pages.figures(needs)} in 400 quiet steps"
        if shape in SHAPES:
            times = [needs / mine.loc[own, "paid"] for own in OWN]
            out = "out of reach at that price" if min(times) > 1 else "the bound leaves room"
            words += f", {min(times):.2f} to {max(times):.2f} of what `auto` pays: {out}"
        said.append(words)
    if shape in DOMAINS:
        said.append("`look_again=3.5` lost no less (protocol)")
    return "; ".join(said)


# -- the leaderboard -----------------------------------------------------------------------------------


def _leaderboard(board: pd.DataFrame, then: pd.DataFrame) -> list[Item]:
    lines: list[Item] = []
    for own in POLICIES:
        others = [name for name in board if name != own]
        rank = mean_rank(board, own, others)
        stood = mean_rank(board, own, [name for name in others if name not in CAME_SINCE])
        before = mean_rank(board.assign(**{name: then[name] for name in POLICIES}), own, others)
        asked = f"`{own}`, mean rank at most {RANK[own]}"
        shown = f"{rank:.2f}; {stood:.2f} among those that stood then"
        why = f"see below: the `auto` of then would have {before:.2f} today"
        lines.append((asked, shown, _BOARD, rank <= RANK[own], why))
    for own in POLICIES:
        share, before = (float((means[own] / board["random"]).mean()) for means in (board, then))
        met = share <= SHARE[own] + 5e-4
        asked = f"`{own}`, mean share of random's at most {SHARE[own]:.1%}"
        lines.append((asked, f"{share:.1%}", _BOARD, met, "" if met else f"looks: {before:.1%} without them"))
    return lines


def _stationary(
    totals: pd.DataFrame, board: pd.DataFrame, then: pd.DataFrame, points: pd.DataFrame
) -> list[Item]:
    """At most 2.6 % of random's, and what that leaves for looks."""
    region, here = points[points["shape"] == SHAPES[2]], totals[totals["seed"] == frontier.SEED]
    curve, name = region[region["policy"] == frontier.ANY], f"{SHAPES[2]} after 500"
    goal, random = RATIO * _best(here, name), board.loc["stationary", "random"]
    needs, lines = frontier.needed(curve, goal), []
    for own in POLICIES:
        now, before = board.loc["stationary", own], then.loc["stationary", own]
        left = STATIONARY * random - before
        why = (
            f"without any look {before:.1f}, {before / random:.1%}: looks may cost {left:.1f}, so at least "
            f"{frontier.bound(curve, left):.0f} is lost until a region is found, and at most {goal:.0f} is asked, for "
            f"which they must cost {needs:.1f}: both together are out of reach of every rule of looks"
        )
        asked = f"`{own}`, stationary at most {STATIONARY:.1%} of random's ({STATIONARY * random:.1f})"
        met = now / random <= STATIONARY + 5e-4
        lines.append((asked, f"{now:.1f}, {now / random:.1%}", _BOARD, met, why))
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


# -- the rest ------------------------------------------------------------------------------------------


def _others(totals: pd.DataFrame) -> list[Item]:
    lines: list[Item] = []
    never = dict(zip(POLICIES, NEVER, strict=True))
    of_seed = totals[totals["seed"] == frontier.SEED]
    here = of_seed[of_seed["environment"] == "partial-switches"]
    for own in POLICIES:
        with_looks, without = (here[here["policy"] == name]["regret"] for name in (own, never[own]))
        shown = (
            f"{with_looks.max():.0f} to {without.max():.0f} of {len(with_looks)}; nine of ten below "
            f"{with_looks.quantile(0.9):.0f} to {without.quantile(0.9):.0f}"
        )
        why = f"no bound is known; in the mean {with_looks.mean():.0f}, without looks {without.mean():.0f}"
        asked = f"`{own}`, worst run of partial-switches at most a third"
        command = _play("partial-switches", frontier.SEED, 100)
        lines.append((asked, shown, command, with_looks.max() <= THIRD * without.max(), why))
    for own in POLICIES:
        shown, ratios = [], []
        for name in (*UNSEEN, "firm"):
            cell = of_seed[of_seed["environment"] == name]
            pairs = cell.pivot_table(index="replicate", columns="policy", values="regret")
            pairs = pairs[[own, never[own]]].dropna()
            ratio = pairs[own].sum() / pairs[never[own]].sum()
            error = (pairs[own] - ratio * pairs[never[own]]).sem() / pairs[never[own]].mean()
            ratios.append(ratio)
            shown.append(f"{name} {ratio:.2f} ± {error:.2f} ({len(pairs)})")
        which = f' --policies "{own};{never[own]}"'
        of_records = _play(",".join(UNSEEN), frontier.SEED, 10, which)
        command = f"{of_records} and {_play('firm', frontier.SEED, 20, f' --one-by-one{which}')}"
        met = max(ratios) <= SAME + 5e-3
        why = "" if met else "forty products that share nothing are forty balls, and each is looked at"
        asked = f"`{own}`, records and tables at most {SAME} of without looks"
        lines.append((asked, ", ".join(shown), command, met, why))
    for name in ("stationary", "tv-gp-0.01", "four-switches"):
        means = _means(totals[totals["seed"] == 7_000], name)
        ratio = means[list(MISTAKES)].mean() / means[GIVEN]
        before = "looks are not why: without them 1.48 on stationary, 1.30 on four-switches (protocol)"
        asked, met = f"a wrong prior, {name}: at most {MISLED}", ratio <= MISLED
        lines.append((asked, f"{ratio:.2f}", _play(name, 7_000, 100), met, "" if met else before))
    return lines


# -- what a step costs ---------------------------------------------------------------------------------


def _steps(looks: pd.DataFrame, quiet: pd.DataFrame) -> list[Item]:
    """The time on a quiet machine, without looks, times what looks add; and that races over a domain see none."""
    lines: list[Item] = []
    for own in POLICIES:
        here = looks[looks["policy"] == own].iloc[0]
        alone = quiet[(quiet["policy"] == own) & (quiet["arms"] == ARMS) & (quiet["replicates"] == 1)]
        ratio, before = here["ms"] / here["ms_without"], float(alone["mean_ms"].iloc[0])
        now = before * ratio
        shown = f"{now:.1f} ms: {ratio:.2f} times the {before:.1f} ms without looks on a quiet machine"
        asked = f"`{own}`, a step at {ARMS} arms at most {STEP_MS:.0f} ms"
        lines.append((asked, shown, "`python -m benchmarks.auto.asked --time`", now <= STEP_MS, ""))
    tau = recipes.auto(Domain(torch.tensor([[0.0], [1.0]]).double())).looks.tau
    first = next(t for t in range(10_000) if t >= tau(t))
    shown = f"the same to the number: the first look comes after {first} observations, the races end after {HORIZON}"
    asked = f"races over a domain at most {SAME}"
    return [*lines, (asked, shown, "`python -m benchmarks.continuous`", first > HORIZON, "")]


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


def main(
    time: Annotated[bool, typer.Option("--time", help="Measure a step first (OMP_NUM_THREADS=1).")] = False,
    out: options.Out = None,
) -> None:
    """Write the page."""
    folder = pages.results_folder(__file__, out)
    if time:
        torch.set_num_threads(1)
        pages.save(step_costs(), folder / "looks.csv", 3)
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()
