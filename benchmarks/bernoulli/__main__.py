"""``python -m benchmarks.bernoulli``: does what a race of a table of 0 and 1 advises earn what the best policy for such
rewards earns?"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from bandits_torch import Policy, recipes, run
from bandits_torch.experiments import random_regret
from bandits_torch.experiments.comparison import compare
from bandits_torch.experiments.earned import earned
from bandits_torch.problems import Replay
from benchmarks import options, pages

ROWS = 1000
Chances = np.ndarray


def _switching(g: np.random.Generator, arms: int, switches: int) -> Chances:
    at = np.sort(g.choice(np.arange(150, ROWS - 100), switches, replace=False))
    levels = g.uniform(0.05, 0.45, (switches + 1, arms))
    return levels[np.searchsorted(at, np.arange(ROWS), side="right")]


def _drifting(g: np.random.Generator, arms: int, memory: float, related: float = 0.0) -> Chances:
    """Log-odds that forget: a process of correlation exp(-tau / memory), related over arms by a length-scale."""
    place = np.arange(arms)
    covariance = np.exp(-0.5 * ((place[:, None] - place) / related) ** 2) if related else np.eye(arms)
    root = np.linalg.cholesky(covariance + 1e-6 * np.eye(arms))
    a, f = np.exp(-1 / memory), np.empty((ROWS, arms))
    f[0] = root @ g.standard_normal(arms)
    for t in range(1, ROWS):
        f[t] = a * f[t - 1] + np.sqrt(1 - a * a) * (root @ g.standard_normal(arms))
    return 1 / (1 + np.exp(-(np.log(0.2) - np.log1p(-0.2) + 0.8 * f)))


def _swinging(g: np.random.Generator, arms: int, period: float) -> Chances:
    t, phase = np.arange(ROWS)[:, None], g.uniform(0, 2 * np.pi, arms)
    return 0.2 + g.uniform(0.05, 0.15, arms) * np.cos(2 * np.pi * t / period + phase)


KINDS: dict[str, Callable[[np.random.Generator], Chances]] = {
    "still, 6 arms": lambda g: np.tile(g.uniform(0.05, 0.25, 6), (ROWS, 1)),
    "still, 20 arms": lambda g: np.tile(g.uniform(0.05, 0.45, 20), (ROWS, 1)),
    "rare, 8 arms": lambda g: np.tile(g.uniform(0.005, 0.05, 8), (ROWS, 1)),
    "often, 4 arms": lambda g: np.tile(g.uniform(0.6, 0.95, 4), (ROWS, 1)),
    "a switch, 6 arms": lambda g: _switching(g, 6, 1),
    "3 switches, 10 arms": lambda g: _switching(g, 10, 3),
    "drift over 500, 6 arms": lambda g: _drifting(g, 6, 500.0),
    "drift over 100, 6 arms": lambda g: _drifting(g, 6, 100.0),
    "cycle of 400, 5 arms": lambda g: _swinging(g, 5, 400.0),
    "related, 25 arms": lambda g: _drifting(g, 25, 500.0, related=4.0),
}


def drawn(kind: str, seed: int) -> tuple[Chances, np.ndarray]:
    """The chances and the record (ROWS, N) of a kind."""
    g = np.random.default_rng([seed, list(KINDS).index(kind)])
    chances = KINDS[kind](g)
    return chances, (g.random(chances.shape) < chances).astype(float)


RIVALS = ("discounted_ts", "glr_kl_ucb", "sliding_window_ucb", "epsilon_greedy")
REPORTED, REPLICATES = 7000, 4


def play(kind: str, seed: int) -> pd.DataFrame:
    """A row per policy: what the arms that it pulled had to pay, what it earned, and whether it is advised."""
    warnings.simplefilter("ignore", UserWarning)
    chances, record = drawn(kind, seed)
    problem = Replay(torch.from_numpy(record), replicates=REPLICATES)

    def build(name: str, part: Replay, steps: int) -> Policy:
        return recipes.build(name, part, replicates=REPLICATES, horizon=steps, seed=seed)

    horizon = problem.horizon
    names = ("auto", "random", *RIVALS)
    histories = {name: run(build(name, problem, horizon), problem, horizon, seed=seed) for name in names}
    random = random_regret(problem, horizon)
    gained = earned(problem, histories, random)
    compared = compare(problem, histories, random, build, seed, gained)
    advice = compared.advice
    advised = advice.taken or advice.policy
    true = torch.from_numpy(chances[-horizon:])
    rows = [
        {
            "kind": kind,
            "seed": seed,
            "policy": name,
            "expected": float(true.gather(1, history.arms.T).sum(0).mean()),
            "earned": gained.policies[name],
            "advised": name == advised,
            "verdict": advice.verdict,
        }
        for name, history in histories.items()
    ]
    return pd.DataFrame(rows).assign(
        random=float(true.mean(1).sum()), attainable=gained.attainable, best=float(true.amax(1).sum())
    )


def write_page(folder: Path) -> Path:
    table = pd.read_csv(folder / "totals.csv")
    played = dict(list(table.groupby("kind")))
    records = {kind: played[kind].set_index("policy") for kind in KINDS if kind in played}
    shares = []
    for own in records.values():
        own["share"] = own["expected"] / own.loc[list(RIVALS), "expected"].max()
        shares.append({"advised": own["share"][own["advised"]].iloc[0], "auto": own["share"]["auto"]})
    shown = {
        "table": table,
        "records": records,
        "shares": pd.DataFrame(shares),
        "policies": ("auto", *RIVALS),
    }
    return pages.render(folder / "RESULTS.md", "bernoulli/RESULTS.md.jinja", **shown)


@options.with_page(write_page)
def main(
    folder: Path,
    kinds: Annotated[str, typer.Option(help="Of the records, separated by semicolons; all by default.")] = "",
    seed: Annotated[int, typer.Option(help="Of the records.")] = REPORTED,
) -> None:
    """Play, and write what came of it; other records of the table stay."""
    for kind in options.chosen(kinds, KINDS, "kinds"):
        rows = play(kind, seed)
        pages.keep(folder / "totals.csv", rows, ("kind", "seed"))
        pages.say(rows.to_string())


if __name__ == "__main__":
    options.command(main)()
