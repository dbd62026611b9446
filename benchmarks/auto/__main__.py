"""How ``auto`` was developed and judged, ``python -m benchmarks.auto``: play environments of the protocol, and write
the page."""

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from scipy.stats import rankdata

from bandits_torch.experiments import Block
from benchmarks import options, pages
from benchmarks.auto import frontier, playing
from benchmarks.auto.environments import QUIET, RISERS, SHAPES
from benchmarks.auto.limit import REPLICATES
from benchmarks.leaderboard import settings
from benchmarks.pages import read, with_error

LEADERBOARD = Path(__file__).parent.parent / "leaderboard" / "results" / "totals.csv"


def write_page(folder: Path) -> Path:
    ours = pd.read_csv(folder / "totals.csv")
    return pages.render(
        folder / "RESULTS.md",
        "auto/RESULTS.md.jinja",
        seed=settings.SEED,
        replicates=REPLICATES,
        limit=_limit(folder),
        ours=ours,
        policies=list(playing.POLICIES),
        own=[*playing.POLICIES, playing.HISTORY],
        mistakes=list(playing.MISTAKES),
        never=list(playing.NEVER),
        risers=[name for name in RISERS if (ours["environment"] == name).any()],
        **_board(),
        **_had(folder, ours),
    )


def _board() -> dict[str, Any]:
    """What ``auto`` comes to, and the leaderboard's environments one by one."""
    everyone = pd.read_csv(LEADERBOARD)
    everyone = everyone[everyone["environment"].isin(settings.RANKED)]
    is_own = everyone["policy"].isin(list(playing.POLICIES))
    board, of_policy = everyone[~is_own], {}
    for policy, own in everyone[is_own].groupby("policy"):
        here = [name for name in settings.RANKED if (own["environment"] == name).any()]
        of_policy[policy] = pd.DataFrame([_facts(board, own, name) for name in here], index=here)
    groups = {"all": settings.RANKED, "development": playing.DEVELOPMENT, "validation": playing.VALIDATION}
    return {"board": board, "of_policy": of_policy, "groups": groups}


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


def _limit(folder: Path) -> dict[str, Any] | None:
    """What was played, and its best beside the leaderboard's, shares of random's by environment."""
    if (played := read(folder / "limit.csv")) is None:
        return None
    board = pd.read_csv(LEADERBOARD)
    board = board[board["replicate"] < REPLICATES]
    means = board.groupby(["environment", "policy"])["regret"].mean().unstack()
    best = played.loc[played.groupby("environment", sort=False)["regret"].idxmin()].set_index("environment")
    there = means.loc[best.index]
    other = there.drop(columns=list(playing.POLICIES)).min(axis=1)
    shares = pd.DataFrame({"with these": best["regret"], "best other in hindsight": other})
    shares = shares.join(there[list(playing.POLICIES)]).div(there["random"], axis=0)
    return {"played": played, "best": best, "shares": shares}


def _had(folder: Path, ours: pd.DataFrame) -> dict[str, Any]:
    """What each policy pays at rest and then loses, and what 1.2 of the best rival asks for, if that was computed."""
    if (table := read(folder / "frontier.csv")) is None:
        return {}
    own = [*playing.POLICIES, playing.HISTORY]
    means = ours[ours["seed"] == frontier.SEED].groupby(["environment", "policy"])["regret"].mean()
    had, asked = [], []
    for shape in SHAPES:
        here = table[table["shape"] == shape].set_index("policy")
        points, played = here.loc[[frontier.ANY]], here["paid"].drop(frontier.ANY)
        for policy, paid in played.items():
            lost = [means.get((f"{shape} after {quiet}", policy)) for quiet in QUIET[1:]]
            had.append((shape, policy, [paid, frontier.bound(points, paid), *lost]))
        for quiet in QUIET[1:]:
            rivals = means[f"{shape} after {quiet}"].drop(own)
            goal = 1.2 * rivals.min()
            pays = [frontier.needed(points, goal), *played[own]]
            asked.append((f"{shape} after {quiet}", rivals.idxmin(), goal, pays))
    return {"had": had, "asked": asked, "quiet": QUIET[1:]}


@options.with_page(write_page)
def main(
    folder: Path,
    environments: Annotated[str, typer.Option(help="Comma-separated; default: the leaderboard's.")] = "",
    policies: Annotated[str, typer.Option(help="Separated by semicolons; default: both of auto's.")] = "",
    seed: Annotated[int, typer.Option(help="Of everything random; not that of the leaderboard.")] = 1_000,
    replicates: Annotated[int, typer.Option(help="Side by side.")] = settings.REPLICATES,
    horizon: Annotated[int, typer.Option(help="Steps.")] = settings.HORIZON,
    data: options.Data = options.DATA,
    one_by_one: Annotated[bool, typer.Option(help="A table of its own for each replicate (firm).")] = False,
) -> None:
    """Play, and write what came of it. The leaderboard's own runs are those of ``benchmarks.leaderboard``."""
    wanted = options.chosen(environments or ",".join(settings.RANKED), playing.ENVIRONMENTS, "environments")
    players = options.chosen(policies or ";".join(playing.POLICIES), playing.PLAYERS, "policies")
    for environment, policy in product(wanted, players):
        for first in range(replicates) if one_by_one else (0,):
            block = Block(1 if one_by_one else replicates, horizon, first, seed)
            rows = playing.play(environment, policy, block, data)
            pages.keep(folder / "totals.csv", rows, playing.KEY)
        pages.say(f"{environment}, {policy}: {rows['regret'].mean():.1f}")


if __name__ == "__main__":
    options.command(main)()
