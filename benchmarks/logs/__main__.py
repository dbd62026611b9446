"""``python -m benchmarks.logs``: value policies from logs whose truth is known, start warm, and write the page."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bandits_torch import ArmContext, recipes, value
from bandits_torch.policies import Observation, Policy
from bandits_torch.problems import GPDraws, Log, TVGPDraws
from benchmarks import options, pages

REPORTED, LOGS, STARTS = 20_000, 200, 20
ROWS, LEARNING_ROWS, ROWS_UNDER, TRUE_RUNS = 600, 400, 300, 200
LEARNED_SHARE, LEARNED_SHARE_UNDER = 4, 10  # a policy that learns is valued on one log of so many
NAMES = ("desk", "phone", "tablet")
BY_CONTEXT = np.array([[0.0, 0.3, 0.6, 0.9], [0.9, 0.6, 0.3, 0.0], [0.2, 0.8, 0.8, 0.2]])  # of each context
SKEWED, NOISE = np.array([0.1, 0.2, 0.3, 0.4]), 0.5
DAYS, SENSORS = slice(1000, 1288), 10  # rows of ten minutes
LOGGED, PLAYED, ARMS = 500, 200, 20


def means_of(rows: int, drifting: bool) -> np.ndarray:
    """Expected rewards (rows, 4)."""
    waves = 0.5 * np.sin(np.arange(rows)[:, None] / 150 + np.arange(4)) if drifting else np.zeros((rows, 1))
    return np.array([0.0, 0.3, 0.6, 0.9]) + waves


def drawn(seed: int, rows: int, skewed: bool, drifting: bool) -> Log:
    """A log of four arms."""
    draw, means = np.random.default_rng(seed), means_of(rows, drifting)
    chance = SKEWED if skewed else np.full(4, 0.25)
    arms = draw.choice(4, rows, p=chance)
    rewards = means[np.arange(rows), arms] + NOISE * draw.normal(size=rows)
    columns = (torch.from_numpy(column) for column in (np.arange(float(rows)), arms, rewards))
    return Log(*columns, propensity=torch.from_numpy(chance[arms]) if skewed else None)


def means_under(contexts: np.ndarray, drifting: bool) -> np.ndarray:
    """Expected rewards (rows, 4) under contexts (rows, c): three listed, or two numbers of which one matters."""
    if contexts.shape[1] == 1:
        still = BY_CONTEXT[contexts[:, 0].astype(int)]
    else:
        still = np.cos(3 * (contexts[:, :1] - np.arange(4) / 3))
    return still + means_of(len(contexts), drifting) - means_of(1, False)


def drawn_under(seed: int, rows: int, listed: bool, skewed: bool, drifting: bool) -> tuple[Log, np.ndarray]:
    """A log of four arms under contexts, and the expected rewards (rows, 4). Where it is skewed an arm is preferred
    that depends on the context."""
    draw = np.random.default_rng([seed, 1])
    contexts = draw.integers(3, size=(rows, 1)).astype(float) if listed else draw.uniform(size=(rows, 2))
    preferred = (contexts[:, 0] if listed else 4 * contexts[:, 0]).astype(int)
    chance = 0.1 + 0.6 * np.eye(4)[preferred] if skewed else np.full((rows, 4), 0.25)
    arms = (chance.cumsum(1) < draw.random((rows, 1))).sum(1)
    means, k = means_under(contexts, drifting), np.arange(rows)
    rewards = means[k, arms] + NOISE * draw.normal(size=rows)
    columns = (torch.from_numpy(column) for column in (np.arange(float(rows)), arms, rewards))
    given = torch.from_numpy(chance[k, arms]) if skewed else None
    names = NAMES if listed else ()
    log = Log(*columns, ("a", "b", "c", "d"), given, contexts=torch.from_numpy(contexts), context_names=names)
    return log, means


@cache
def truth_of(skewed: bool, drifting: bool) -> float:
    """What UCB1 earns per step on the simulator if it learns from a part of its steps."""
    share = 0.1 if skewed else 0.25
    return float(np.mean([learned_in_part(run, share, LEARNING_ROWS, drifting) for run in range(TRUE_RUNS)]))


def learned_in_part(run: int, share: float, rows: int, drifting: bool) -> float:
    """What UCB1 earns per step on the simulator if it learns from a random share of its steps."""
    steps = ((None, means) for means in means_of(rows, drifting))
    return earned(recipes.ucb1(4), steps, share, np.random.default_rng([run, 7]))


def earned(
    policy: Policy,
    steps: Iterable[tuple[ArmContext | None, np.ndarray]],
    share: float,
    draw: np.random.Generator,
) -> float:
    """What a policy earns per step, each with its context and expected rewards, if it learns from a random share."""
    paid = []
    for step, (context, means) in enumerate(steps):
        choice = policy.choose(float(step), context)
        paid.append(means[int(choice.arm)])
        if draw.random() < share:
            reward = torch.tensor([paid[-1] + NOISE * draw.normal()]).double()
            policy.learn(Observation(float(step), choice.arm, reward, choice.why))
    return sum(paid) / len(paid)


def row_of(setting: str, policy: str, seed: int, log: Log, what: object, truth: float) -> dict[str, object]:
    """A row of the table: the estimate beside the truth."""
    found, row = value(log, what, warm_up=0.0), {"setting": setting, "policy": policy, "seed": seed}
    row |= {name: getattr(found, name) for name in ("estimator", "value", "low", "high")}
    return row | {"truth": truth}


def fixed(seeds: range) -> list[dict[str, object]]:
    """Policies that do not learn, on simulated logs."""
    rows = []
    for setting, skewed, drifting in SETTINGS:
        truth = means_of(ROWS, drifting).mean(0)
        for seed in seeds:
            log, arm = drawn(seed, ROWS, skewed, drifting), seed % 4
            rows.append(row_of(setting, "one arm", seed, log, torch.eye(4).double()[arm], truth[arm]))
            alike = torch.full((4,), 0.25, dtype=torch.float64)
            rows.append(row_of(setting, "all alike", seed, log, alike, truth.mean()))
    return rows


def under(seeds: range) -> list[dict[str, object]]:
    """Policies that do not learn, on simulated logs under contexts: one arm, and the best of each context."""
    rows = []
    for setting, listed, skewed, drifting in SETTINGS_UNDER:
        for seed in seeds:
            log, means = drawn_under(seed, ROWS, listed, skewed, drifting)
            arm, k = seed % 4, np.arange(ROWS)
            one = torch.eye(4).double()[arm]
            rows.append(row_of(setting, "one arm", seed, log, one, means[:, arm].mean()))
            best = means_under(log.contexts.numpy(), False).argmax(1)
            each = torch.eye(4).double()[torch.from_numpy(best)]
            rows.append(row_of(setting, "best of the context", seed, log, each, means[k, best].mean()))
    return rows


def learning(seeds: range) -> list[dict[str, object]]:
    rows = []
    for setting, skewed, drifting in SETTINGS:
        truth = truth_of(skewed, drifting)
        for seed in seeds[::LEARNED_SHARE]:
            log = drawn(seed, LEARNING_ROWS, skewed, drifting)
            rows.append(row_of(setting, "ucb1", seed, log, recipes.ucb1(4), truth))
    return rows


def learner() -> Policy:
    """CGP-UCB over arms and contexts that are unrelated."""
    apart = RBFKernel().double()
    apart.lengthscale = torch.tensor(0.1).double()
    arms, contexts = torch.arange(4.0).double().unsqueeze(-1), torch.arange(3.0).double().unsqueeze(-1)
    listed = {"context_dim": 1, "context_kernel": apart, "contexts": contexts}
    return recipes.cgp_ucb(arms, apart, NOISE**2, width=2.0, **listed)


@cache
def truth_under(skewed: bool) -> float:
    """What that policy earns per step on the simulator if it learns from a part of its steps."""
    return float(np.mean([learned_under(run, 0.1 if skewed else 0.25) for run in range(TRUE_RUNS)]))


def learned_under(run: int, share: float) -> float:
    """What it earns per step on the simulator if it learns from a random share of its steps."""
    draw = np.random.default_rng([run, 8])
    contexts = (draw.integers(3) for _ in range(ROWS_UNDER))  # drawn step by step, between the other numbers
    steps = ((ArmContext(torch.tensor([float(k)])), BY_CONTEXT[k]) for k in contexts)
    return earned(learner(), steps, share, draw)


def learning_under(seeds: range) -> list[dict[str, object]]:
    """CGP-UCB, which learns, on simulated logs under listed contexts."""
    rows = []
    for setting, listed, skewed, drifting in SETTINGS_UNDER:
        if listed and not drifting:
            for seed in seeds[::LEARNED_SHARE_UNDER]:
                log, _ = drawn_under(seed, ROWS_UNDER, True, skewed, False)
                rows.append(row_of(setting, "cgp_ucb", seed, log, learner(), truth_under(skewed)))
    return rows


def table(seeds: range, data: Path) -> list[dict[str, object]]:
    """One sensor always, on logs drawn from two days of temperatures."""
    days = np.load(data / "intel_temperature.npz")["temperature"][DAYS].astype(float)
    record = days[:, np.isfinite(days).all(0)][:, :SENSORS]
    rows, steps = [], torch.arange(len(record)).double()
    for seed in seeds:
        arms = torch.from_numpy(np.random.default_rng(seed).integers(SENSORS, size=len(record)))
        log = Log(steps, arms, torch.from_numpy(record)[torch.arange(len(record)), arms])
        arm = seed % SENSORS
        one = torch.eye(SENSORS).double()[arm]
        rows.append(row_of("Intel temperatures", "one sensor", seed, log, one, record[:, arm].mean()))
    return rows


def warm(seeds: range) -> list[dict[str, object]]:
    """Regret of 200 steps after 500 logged ones, of ``auto`` with the log and without."""
    rows: list[dict[str, object]] = []
    steps = torch.arange(LOGGED)
    for seed, world in product(seeds, WORLDS):
        draw = np.random.default_rng(seed)
        problem = WORLDS[world](num_arms=ARMS, seed=seed)
        worth = torch.stack([problem.expected_rewards(k + 1).reshape(-1) for k in range(LOGGED + PLAYED)])
        rewards = worth + 0.1 * torch.from_numpy(draw.normal(size=worth.shape))
        arms = torch.from_numpy(draw.integers(ARMS, size=LOGGED))
        log = Log(steps.double(), arms, rewards[steps, arms], tuple(map(str, range(ARMS))))
        for name, policy in (("with", recipes.auto(ARMS, log=log)), ("without", recipes.auto(ARMS))):
            regret = lost(policy, worth, rewards)
            rows.append({"world": world, "policy": name, "seed": seed, "regret": regret})
    return rows + warm_under(seeds)


def warm_under(seeds: range) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for seed in seeds:
        log, means = drawn_under(seed, LOGGED + PLAYED, True, False, False)
        columns = ("times", "arms", "rewards", "contexts")
        first = replace(log, **{column: getattr(log, column)[:LOGGED] for column in columns})
        noise = NOISE * torch.from_numpy(np.random.default_rng([seed, 2]).normal(size=len(means)))
        worth = torch.from_numpy(means)
        for name, policy in (("with", recipes.auto(4, log=first)), ("without", recipes.auto(4, contexts=3))):
            regret = lost(policy, worth, worth + noise.unsqueeze(-1), log.contexts)
            rows.append({"world": "listed contexts", "policy": name, "seed": seed, "regret": regret})
    return rows


def lost(policy: Policy, worth: Tensor, rewards: Tensor, contexts: Tensor | None = None) -> float:
    """Regret of the steps after the logged ones, given what every step's arms are worth and pay, (steps, N) each."""
    total = 0.0
    for k in range(LOGGED, LOGGED + PLAYED):
        choice = policy.choose(float(k), None if contexts is None else ArmContext(contexts[k]))
        total += float(worth[k].max() - worth[k, choice.arm])
        policy.learn(Observation(float(k), choice.arm, rewards[k, choice.arm], choice.why))
    return total


WORLDS = {"stationary": GPDraws, "drifting": partial(TVGPDraws, forgetting_rate=0.01)}
SETTINGS = [
    (f"{arms}, {world}", arms == "skewed", world == "drifting")
    for arms, world in product(("uniform", "skewed"), ("stationary", "drifting"))
]
SETTINGS_UNDER = [
    (f"{contexts}, {name}", contexts == "listed contexts", *of)
    for contexts, (name, *of) in product(("listed contexts", "numbers as contexts"), SETTINGS)
]
PARTS: dict[str, Callable[[range, Path], list[dict[str, object]]]] = {
    "fixed": lambda seeds, data: fixed(seeds),
    "learning": lambda seeds, data: learning(seeds),
    "table": table,
    "under": lambda seeds, data: under(seeds),
    "learning-under": lambda seeds, data: learning_under(seeds),
    "warm": lambda seeds, data: warm(seeds[:STARTS]),
}


def write_page(folder: Path) -> Path:
    names = [name for name in PARTS if name != "warm" and (folder / f"{name}.csv").exists()]
    every = pd.concat([pd.read_csv(folder / f"{name}.csv") for name in names], ignore_index=True)
    every["held"] = (every["low"] <= every["truth"]) & (every["truth"] <= every["high"])
    every["error"] = every["value"] - every["truth"]
    every["reach"] = (every["high"] - every["low"]) / 2
    starts = pd.read_csv(folder / "warm.csv")
    regrets = starts.pivot(index=["world", "seed"], columns="policy", values="regret")
    total = regrets.groupby("world").mean()
    return pages.render(
        folder / "RESULTS.md",
        "logs/RESULTS.md.jinja",
        every=every,
        shares=every.groupby(["setting", "policy"])["held"].mean(),
        starts=starts,
        regrets=regrets,
        saved=100 * (1 - total["with"] / total["without"]),
        logged=LOGGED,
        played=PLAYED,
        arms=ARMS,
        noise=NOISE,
    )


@options.with_page(write_page)
def main(
    folder: Path,
    parts: Annotated[str, typer.Option(help=f"Of {', '.join(PARTS)}; all by default.")] = "",
    data: options.Data = options.DATA,
    seed: Annotated[int, typer.Option(help="Of the first log.")] = REPORTED,
    logs: Annotated[int, typer.Option(help="How many of each setting.")] = LOGS,
) -> None:
    """Play, and write what came of it; tables of other parts stay."""
    seeds = range(seed, seed + logs)
    for part in options.chosen(parts, PARTS, "parts"):
        pages.save(pd.DataFrame(PARTS[part](seeds, data)), folder / f"{part}.csv")
        pages.say(f"played {part}")


if __name__ == "__main__":
    options.command(main)()
