"""``python -m benchmarks.bernoulli.log_odds``: does ``log_odds_ucb`` earn more than ``auto`` on rewards of 0 and 1
(PROTOCOL.md)?"""

import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from bandits_torch import recipes, run
from bandits_torch.policies import Observation
from bandits_torch.problems import Replay
from benchmarks import options, pages
from benchmarks.bernoulli.__main__ import KINDS, REPLICATES, RIVALS, ROWS, drawn

NAME = "log_odds_ucb"
NO_HISTORY = {f"{name}, no history": name for name in ("auto", NAME)}
POLICIES = ("auto", *RIVALS, NAME, *NO_HISTORY)
_SHOWN = ("auto", NAME, *NO_HISTORY)  # of which shares are on the page
SEEDS = {"reported": range(9100, 9110), "development": range(8000, 8010)}
PAST = 0.2  # of the rows, which are known before: what ``Replay`` takes by itself
_LEAST = 0.98  # of the best rival, asked on each kind
_KEY = ("kind", "seed", "policy")


def of_record(kind: str, seed: int, name: str) -> float:
    """The chances of the arms that a policy, given what ``Replay`` knows, pulls in the rows played, added up."""
    warnings.simplefilter("ignore", UserWarning)
    chances, record = drawn(kind, seed)
    problem = Replay(torch.from_numpy(record))
    horizon = problem.horizon
    policy = recipes.build(name, problem, replicates=1, horizon=horizon, seed=seed)
    arms = run(policy, problem, horizon, seed=seed).arms
    return float(torch.from_numpy(chances[-horizon:]).gather(1, arms.T).sum())


def of_records(kind: str, seeds: Sequence[int], name: str) -> list[float]:
    """The same for each seed of a policy without a history, so that all records are played at once, each by
    ``REPLICATES`` replicates if the policy draws; the mean over these."""
    draws = REPLICATES if recipes.registered(name).seeded else 1
    both = [drawn(kind, seed) for seed in seeds for _ in range(draws)]
    chances, records = (torch.from_numpy(np.stack(one)) for one in zip(*both, strict=True))
    steps, arms = range(round(PAST * ROWS), ROWS), records.shape[-1]
    given = {"horizon": len(steps), "seed": seeds[0]}
    call = recipes.RECIPES[name]
    known = {key: value for key, value in given.items() if key in inspect.signature(call).parameters}
    policy, replicate = call(arms, replicates=len(both), **known), torch.arange(len(both))
    total = torch.zeros(len(both), dtype=torch.float64)
    for t in steps:
        choice = policy.choose(float(t))
        policy.learn(Observation(float(t), choice.arm, records[replicate, t, choice.arm], choice.why))
        total += chances[replicate, t, choice.arm]
    return total.reshape(len(seeds), draws).mean(-1).tolist()


def by_kind(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What each policy earned, mean over the records of a kind, and its share of the largest of the rivals' means."""
    means = table.pivot_table(index="kind", columns="policy", values="expected").loc[list(KINDS)]
    return means, means.div(means[list(RIVALS)].max(axis=1), axis=0)


def lead(table: pd.DataFrame) -> tuple[float, float]:
    """How far the share of the best rival lies above ``auto``'s, mean over the kinds, and its standard error over the
    seeds. The best rival of a kind is that of the mean over all seeds."""
    best = table.pivot_table(index="kind", columns="policy", values="expected")[list(RIVALS)].max(axis=1)
    wide = table.pivot_table(index=["seed", "kind"], columns="policy", values="expected")
    ahead = ((wide[NAME] - wide["auto"]).unstack() / best).mean(axis=1)
    return float(ahead.mean()), float(ahead.sem())


def write_page(folder: Path) -> Path:
    table = pd.read_csv(folder / "log_odds.csv")
    table = table[table["seed"].isin(SEEDS["reported"])]
    (means, shares), (ahead, error) = by_kind(table), lead(table)
    shown = shares[list(_SHOWN)].map("{:.3f}".format).rename(columns="share of {}".format)
    rows = means[list(POLICIES)].map("{:.0f}".format).join(shown)
    return pages.render(
        folder / "LOG_ODDS.md",
        "bernoulli/LOG_ODDS.md.jinja",
        table=table,
        shares=shares,
        average=shares.mean(),
        ahead=ahead,
        error=error,
        below=shares[NAME][shares[NAME] < _LEAST],
        rows=rows.rename_axis(index="record").reset_index(),
    )


@options.with_page(write_page)
def main(
    folder: Path,
    policies: Annotated[str, typer.Option(help="Separated by semicolons; all by default.")] = "",
    seeds: Annotated[str, typer.Option(help="reported, or development.")] = "reported",
) -> None:
    """Play what is not kept yet, and write what came of it."""
    path = folder / "log_odds.csv"
    (which,) = options.chosen(seeds, SEEDS, "seeds")
    kept = pages.played(path, _KEY)
    for name in options.chosen(policies, POLICIES, "policies"):
        for kind in KINDS:
            missing = [seed for seed in SEEDS[which] if (kind, seed, name) not in kept]
            if not missing:
                continue
            found = (
                of_records(kind, missing, NO_HISTORY.get(name, name))
                if name in (*RIVALS, *NO_HISTORY)
                else [of_record(kind, seed, name) for seed in missing]
            )
            rows = [(kind, seed, name, value) for seed, value in zip(missing, found, strict=True)]
            pages.keep(path, pd.DataFrame(rows, columns=[*_KEY, "expected"]), _KEY)
        pages.say(f"played {name}")
    table = pd.read_csv(path)
    played = set(table.loc[table["seed"].isin(SEEDS["reported"]), "policy"])
    if played != set(POLICIES):
        raise typer.Exit  # no page yet


if __name__ == "__main__":
    options.command(main)()
