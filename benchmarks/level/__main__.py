"""``python -m benchmarks.level``: a level that all arms share, and the price of not knowing it. Ten minutes."""

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from bandits_torch import recipes
from bandits_torch.policies import Observation, Policy
from benchmarks import options, pages

SEED, ARMS, STEPS, REPLICATES, NOISE = 3000, 10, 1200, 20, 0.3
AUTO, SHARED, KNOWN = "auto", "auto(shared_level=True)", "auto, level taken off"
RIVALS = ("epsilon_greedy", "sliding_window_ucb", "discounted_ts")
POLICIES = (AUTO, SHARED, KNOWN, *RIVALS)
BINARY = "0 and 1"


def cases(seed: int) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """By name, the arms' parts, (steps, replicates, arms), and the level, (steps, replicates), or None."""
    random = np.random.default_rng(seed)
    t, walk = np.arange(STEPS), lambda *shape: random.normal(size=(STEPS, *shape)).cumsum(0)

    def drawn(pieces: int) -> np.ndarray:
        return random.uniform(size=(pieces, REPLICATES, ARMS)).repeat(STEPS // pieces, 0)

    phase = random.uniform(0, 2 * np.pi, (REPLICATES, ARMS))
    waves = 2 * np.sin(2 * np.pi * t / 170) + 1.5 * np.sin(2 * np.pi * t / 410 + 1)
    day = 2 * np.sin(2 * np.pi * t / 24)
    return {
        "a walk, steps of .1": (drawn(1), 0.1 * walk(REPLICATES)),
        "a walk, steps of .3": (drawn(1), 0.3 * walk(REPLICATES)),
        "two waves": (drawn(1), waves[:, None].repeat(REPLICATES, 1)),
        "a day of 24 steps": (drawn(1), day[:, None].repeat(REPLICATES, 1)),
        "jumps": (drawn(1), 3 * random.normal(size=(STEPS // 60, REPLICATES)).repeat(60, 0)),
        "a walk, and other arms at half time": (drawn(2), 0.1 * walk(REPLICATES)),
        "constant": (drawn(1), None),
        "six pieces": (drawn(6), None),
        "walks": (drawn(1) + 0.03 * walk(REPLICATES, ARMS), None),
        "waves out of phase": (0.5 + 0.5 * np.sin(2 * np.pi * t[:, None, None] / 300 + phase), None),
        BINARY: (0.05 + 0.9 * drawn(1), None),
    }


def build(policy: str, replicates: int) -> Policy:
    """The policy, told the number of arms, and two rivals the horizon."""
    if policy in RIVALS:
        told = {} if policy == "epsilon_greedy" else {"horizon": STEPS}
        return getattr(recipes, policy)(ARMS, replicates=replicates, seed=0, **told)
    return recipes.auto(ARMS, replicates=replicates, shared_level=policy == SHARED)


def play(case: str, policy: str, seed: int, replicates: int = REPLICATES) -> pd.DataFrame:
    """A row for each replicate: the regret of the policy and of random play."""
    drawn = cases(seed)
    parts, level = drawn[case]
    random = np.random.default_rng([seed, list(drawn).index(case)])
    made, which = build(policy, replicates), np.arange(replicates)
    regret, of_random = np.zeros(replicates), np.zeros(replicates)
    for t in range(STEPS):
        draw = random.uniform(size=REPLICATES) if case == BINARY else random.normal(size=REPLICATES)
        choice, part, draw = made.choose(float(t)), parts[t, :replicates], draw[:replicates]
        paid = part[which, choice.arm]
        reward = (draw < paid).astype(float) if case == BINARY else paid + NOISE * draw
        if level is not None and policy != KNOWN:
            reward = reward + level[t, :replicates]
        made.learn(Observation(float(t), choice.arm, torch.from_numpy(reward), choice.why))
        regret += part.max(1) - paid
        of_random += part.max(1) - part.mean(1)
    return pd.DataFrame(
        {"case": case, "policy": policy, "replicate": which, "level": level is not None}
        | {"regret": regret, "random": of_random}
    )


def write_page(folder: Path) -> Path:
    table = pd.read_csv(folder / "level.csv")
    means = table.groupby(["case", "policy"], sort=False)[["regret", "random"]].mean()
    regret, under = means["regret"].unstack(), table.groupby("case", sort=False)["level"].first()

    def share(own: pd.DataFrame) -> str:
        mean, error = own["regret"].mean() / own["random"].mean(), own["regret"].sem() / own["random"].mean()
        return f"{mean:.1%} ± {error:.1%}"

    shares = table.groupby(["case", "policy"], sort=False)[["regret", "random"]].apply(share).unstack()

    def ratio(other: str, level: bool) -> pd.Series:
        return (regret[SHARED] / regret[other])[under[under == level].index]

    def mean(ratios: pd.Series) -> float:
        return float(np.exp(np.log(ratios).mean()))

    return pages.render(
        folder / "RESULTS.md",
        "level/RESULTS.md.jinja",
        rows=table,
        shares=shares.reindex(regret.index).fillna("").reset_index(),
        of_auto=mean(ratio(AUTO, True)),
        most=ratio(AUTO, True).max(),
        of_known=mean(ratio(KNOWN, True)),
        without=mean(ratio(AUTO, False)),
        worst=ratio(AUTO, False).max(),
    )


@options.with_page(write_page)
def main(folder: Path, seed: Annotated[int, typer.Option(help="Of arms, levels and noise.")] = SEED) -> None:
    """Play every policy on every case, and keep each case's table as it comes."""
    rows: list[pd.DataFrame] = []
    for case, (_, level) in cases(seed).items():
        for policy in POLICIES:
            if policy == KNOWN and level is None:
                continue
            rows.append(play(case, policy, seed).assign(seed=seed, steps=STEPS))
            pages.say(
                f"{case}, {policy}: {rows[-1]['regret'].mean() / rows[-1]['random'].mean():.1%} of random's"
            )
        pages.save(pd.concat(rows), folder / "level.csv")


if __name__ == "__main__":
    options.command(main)()
