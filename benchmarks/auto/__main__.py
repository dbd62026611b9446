"""How ``auto`` was developed and judged, ``python -m benchmarks.auto``: play environments of the protocol, and write
the page."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from scipy.stats import rankdata

from bandits_torch.experiments.engines import Block
from benchmarks import options, pages
from benchmarks.auto import frontier
from benchmarks.auto.environments import QUIET, RISERS, SHAPES
from benchmarks.auto.limit import REPLICATES
from benchmarks.auto.playing import (
    DEVELOPMENT,
    ENVIRONMENTS,
    HISTORY,
    KEY,
    MISTAKES,
    NEVER,
    PLAYERS,
    POLICIES,
    VALIDATION,
    play,
)
from benchmarks.leaderboard import settings
from benchmarks.pages import read, seeds_of, with_error

LEADERBOARD = Path(__file__).parent.parent / "leaderboard" / "results" / "totals.csv"


def write_page(folder: Path) -> Path:
    ours = pd.read_csv(folder / "totals.csv")
    return pages.render(
        folder / "RESULTS.md",
        "auto/RESULTS.md.jinja",
        seed=settings.SEED,
        replicates=REPLICATES,
        limit=_limit(folder),
        others=_others(ours),
        risers=_risers(ours),
        misled=_misled(ours),
        **_board(),
        **_had(folder, ours),
    )


def _board() -> dict[str, Any]:
    """What ``auto`` comes to, and the leaderboard's environments one by one."""
    everyone = pd.read_csv(LEADERBOARD)
    everyone = everyone[everyone["environment"].isin(settings.RANKED)]
    is_own = everyone["policy"].isin(list(POLICIES))
    board, ours = everyone[~is_own], everyone[is_own]
    rows, summary, of_policy = [], [], {}
    for policy in (name for name in POLICIES if (ours["policy"] == name).any()):
        own = ours[ours["policy"] == policy]
        here = [name for name in settings.RANKED if (own["environment"] == name).any()]
        facts = of_policy[policy] = pd.DataFrame([_facts(board, own, name) for name in here], index=here)
        groups = {"all": here, "development": DEVELOPMENT, "validation": VALIDATION}
        for title, names in groups.items():
            some = facts.loc[[name for name in names if name in here]]
            if not some.empty:
                summary.append([f"`{policy}`", title, *_summary(some)])
        rows += [[f"`{policy}`", *_row(name, facts.loc[name])] for name in here]
    heads = ["policy", "environments", "", "mean rank", "share of random", "best in hindsight"]
    heads += ["ratio of these", "mean ratio", "ratio of sums", "level or first"]
    each = [
        "policy",
        "environment",
        "regret",
        "share of random",
        "best other",
        "its share",
        "rank",
        "level",
        "ms",
    ]
    return {
        "board": board,
        "of_policy": of_policy,
        "summary": pd.DataFrame(summary, columns=heads),
        "environments": pd.DataFrame(rows, columns=each),
    }


def _summary(some: pd.DataFrame) -> list[object]:
    ratios = some["share"].mean() / some["best_share"].mean(), (some["regret"] / some["best"]).mean()
    sums = some["regret"].sum() / some["best"].sum()
    shares = f"{some['share'].mean():.1%}", f"{some['best_share'].mean():.1%}"
    shown = [f"{value:.2f}" for value in (*ratios, sums)]
    return [len(some), f"{some['rank'].mean():.2f}", *shares, *shown, int(some["level"].sum())]


def _row(name: str, facts: pd.Series) -> list[str]:
    own = facts["shown"], f"{facts['share']:.1%}"
    best = f"`{facts['who']}` {facts['best']:.1f}", f"{facts['best_share']:.1%}", f"{facts['rank']:.0f}"
    shown = f"*{name}*" if name in DEVELOPMENT else name
    return [shown, *own, *best, "yes" if facts["level"] else "no", f"{facts['ms']:.0f}"]


def _facts(board: pd.DataFrame, own: pd.DataFrame, environment: str) -> dict[str, object]:
    own = own[own["environment"] == environment]
    others = board[board["environment"] == environment]
    others = others.pivot(index="replicate", columns="policy", values="regret")
    means = others.mean()
    who = str(means.idxmin())
    regret = own.set_index("replicate")["regret"]
    difference = (regret - others[who]).dropna()
    mean, random = float(regret.mean()), float(means["random"])
    return {
        "regret": mean,
        "shown": with_error(regret),
        "share": mean / random,
        "who": who,
        "best": float(means.min()),
        "best_share": float(means.min()) / random,
        "rank": float(rankdata(np.append(means.to_numpy(), mean))[-1]),
        "level": pages.beyond(difference, "less", "level", "more") != "more",
        "ms": float(own["ms_per_step"].iloc[0]),
    }


def _others(ours: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (environment, seed), cell in ours.groupby(["environment", "seed"], sort=False):
        means = cell.groupby("policy")["regret"].mean()
        if "random" not in means:
            continue
        rest = means.drop([name for name in [*POLICIES, *MISTAKES, *NEVER, "random"] if name in means])
        best = f"`{rest.idxmin()}` {rest.min() / means['random']:.1%}" if len(rest) else ""
        row = [environment, seed, len(cell["replicate"].unique())]
        row += [f"{means[name] / means['random']:.1%}" if name in means else "" for name in POLICIES]
        rows.append([*row, best, len(rest)])
    heads = ["environment", "seed", "replicates", *(f"`{name}`" for name in POLICIES), "best other", "others"]
    return pd.DataFrame(rows, columns=heads)


def _limit(folder: Path) -> dict[str, Any] | None:
    if (limit := read(folder / "limit.csv")) is None:
        return None
    board = pd.read_csv(LEADERBOARD)
    board = board[board["replicate"] < REPLICATES]
    means = board.groupby(["environment", "policy"])["regret"].mean().unstack()
    rows = []
    for environment, played in limit.groupby("environment", sort=False):
        best, there = played.nsmallest(1, "regret").iloc[0], means.loc[environment]
        shares = [best["regret"], there.drop(list(POLICIES)).min(), *there[list(POLICIES)]]
        setting = [best["forgetting_rate"], best["width"]]
        rows.append([environment, *setting, *(share / there["random"] for share in shares)])
    numbers = np.array([row[3:] for row in rows])
    rows.append(["mean", "", "", *numbers.mean(0)])
    shown = [[*row[:3], *(f"{100 * share:.1f} %" for share in row[3:])] for row in rows]
    heads = ["environment", "rate", "width", "with these", "best other in hindsight", *POLICIES]
    return {"played": limit, "rows": pd.DataFrame(shown, columns=heads)}


def _risers(ours: pd.DataFrame) -> pd.DataFrame:
    own, rows = (*POLICIES, HISTORY), []
    for environment in RISERS:
        for seed, cell in ours[ours["environment"] == environment].groupby("seed"):
            by_policy = cell.groupby("policy")["regret"]
            means, worst = by_policy.mean(), by_policy.max()
            rivals = means.drop([name for name in own if name in means])
            if rivals.empty:
                continue
            never = worst[rivals.index].max()
            ratios = {
                name: f"{means[name] / rivals.min():.2f} ({worst[name] / never:.0%})" for name in means.index
            }
            shown = [ratios.get(name, "") for name in own]
            best = f"`{rivals.idxmin()}` {rivals.min():.4g}"
            rows.append([environment, seed, cell["replicate"].nunique(), *shown, best, len(rivals)])
    heads = ["environment", "seed", "replicates", *(f"`{name}`" for name in own), "best rival", "rivals"]
    return pd.DataFrame(rows, columns=heads)


def _had(folder: Path, ours: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if (table := read(folder / "frontier.csv")) is None:
        return {}
    own = [*POLICIES, HISTORY]
    means = ours[ours["seed"] == frontier.SEED].groupby(["environment", "policy"])["regret"].mean()
    rows, asked = [], []
    for shape in SHAPES:
        here = table[table["shape"] == shape].set_index("policy")
        points, played = here.loc[[frontier.ANY]], here["paid"].drop(frontier.ANY)
        for policy, paid in played.items():
            lost = [means.get((f"{shape} after {quiet}", policy)) for quiet in QUIET[1:]]
            shown = ["" if x is None else f"{x:.4g}" for x in (paid, frontier.bound(points, paid), *lost)]
            rows.append([shape, f"`{policy}`", *shown])
        for quiet in QUIET[1:]:
            rivals = means[f"{shape} after {quiet}"].drop(own)
            goal = 1.2 * rivals.min()
            shown = [f"{frontier.needed(points, goal):.3g}", *(f"{played[name]:.3g}" for name in own)]
            asked.append([f"{shape} after {quiet}", f"`{rivals.idxmin()}`", f"{goal:.4g}", *shown])
    heads = ["shape", "policy", "paid", "at least", *(f"lost after {quiet}" for quiet in QUIET[1:])]
    other = [
        "environment",
        "best rival",
        "1.2 times its regret",
        "needs",
        *(f"`{name}` pays" for name in own),
    ]
    return {"had": pd.DataFrame(rows, columns=heads), "asked": pd.DataFrame(asked, columns=other)}


def _misled(ours: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (environment, seed), cell in ours.groupby(["environment", "seed"], sort=False):
        means = cell.groupby("policy")["regret"].mean()
        if not {"auto", *MISTAKES} <= set(means.index):
            continue
        regrets = [means["auto"], *means[list(MISTAKES)]]
        ratio = sum(regrets[1:]) / len(MISTAKES) / regrets[0]
        replicates = seeds_of(cell, "replicate", what="replicate")
        rows.append([environment, seed, replicates, *(f"{regret:.1f}" for regret in regrets), f"{ratio:.2f}"])
    heads = ["environment", "seed", "replicates", "rightly"]
    heads += [*(name.removeprefix("auto, ") for name in MISTAKES), "ratio"]
    return pd.DataFrame(rows, columns=heads)


def main(
    environments: Annotated[str, typer.Option(help="Comma-separated; default: the leaderboard's.")] = "",
    policies: Annotated[str, typer.Option(help="Separated by semicolons; default: both of auto's.")] = "",
    seed: Annotated[int, typer.Option(help="Of everything random; not that of the leaderboard.")] = 1_000,
    replicates: Annotated[int, typer.Option(help="Side by side.")] = settings.REPLICATES,
    horizon: Annotated[int, typer.Option(help="Steps.")] = settings.HORIZON,
    data: options.Data = options.DATA,
    out: options.Out = None,
    one_by_one: Annotated[bool, typer.Option(help="A table of its own for each replicate (firm).")] = False,
    page: options.PageAlone = False,
) -> None:
    """Play, and write what came of it. The leaderboard's own runs are those of ``benchmarks.leaderboard``."""
    folder = pages.results_folder(__file__, out)
    wanted = options.chosen(environments or ",".join(settings.RANKED), ENVIRONMENTS, "environments")
    players = options.chosen(policies or ";".join(POLICIES), PLAYERS, "policies")
    for environment, policy in [] if page else product(wanted, players):
        for first in range(replicates) if one_by_one else (0,):
            block = Block(1 if one_by_one else replicates, horizon, first, seed)
            rows = play(environment, policy, block, data)
            pages.keep(folder / "totals.csv", rows, KEY)
        pages.say(f"{environment}, {policy}: {rows['regret'].mean():.1f}")
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()
