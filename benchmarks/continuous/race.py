"""The race: every policy on every dynamic function, replicate by replicate, with the same noise."""

import importlib.util
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import MaternKernel

from bandits_torch import make, recipes, run, validation
from bandits_torch.policies import Policy
from bandits_torch.problems import ContinuousProblem
from benchmarks.continuous.rivals import WDBO, PlainBoTorch
from benchmarks.pages import save, say

PROBLEMS = (
    "dynamic-ackley",
    "dynamic-hartmann6",
    "dynamic-shekel",
    "dynamic-griewank",
    "dynamic-levy",
    "dynamic-styblinski-tang",
)
SMOOTH = "tv_gp_ucb, smooth"  # a Matern kernel over time in place of exponential forgetting
OURS = ("tv_gp_ucb", SMOOTH, "sw_gp_ucb", "et_gp_ucb", "pe_gp_ucb")
AUTO = "auto"  # given the bounds alone
WIDTH = 1.0  # of our upper confidence bounds
WIDTHS = (1.0, 2.0)  # of plain BoTorch's; W-DBO has its own
INITIAL = 10  # Sobol points of ours and the rivals' alike, then the first fit
REFIT = 10  # observations between our fits; the rivals fit at every step


def racers(problem: ContinuousProblem, horizon: int, seed: int) -> dict[str, Callable[[], Policy]]:
    """Every policy by name, built when called; W-DBO only where its package is installed."""

    def plain(acquisition: str, **options: Any) -> Callable[[], Policy]:
        return lambda: PlainBoTorch(
            problem.domain, horizon, INITIAL, seed, acquisition=acquisition, **options
        )

    policies: dict[str, Callable[[], Policy]] = {"random": lambda: ours("random", problem, horizon, seed)}
    policies |= {name: lambda name=name: ours(name, problem, horizon, seed) for name in OURS}
    policies[AUTO] = lambda: recipes.auto(problem.domain, seed=seed)
    for blind, over_time in (("time an input", True), ("blind to time", False)):
        for width in WIDTHS:
            of_width = f"BoTorch UCB of width {width:g}, {blind}"
            policies[of_width] = plain("ucb", over_time=over_time, width=width)
        policies[f"BoTorch LogEI, {blind}"] = plain("logei", over_time=over_time)
    if has_wdbo():
        policies["W-DBO"] = lambda: WDBO(problem.domain, horizon, INITIAL, seed)
    return policies


def has_wdbo() -> bool:
    return importlib.util.find_spec("wdbo_algo") is not None


def ours(name: str, problem: ContinuousProblem, horizon: int, seed: int) -> Policy:
    """One of ``OURS`` or random play, with what the problem tells beforehand."""
    options: dict[str, Any] = {}
    if name != "random":
        learn = {"first": INITIAL, "every": REFIT}
        options = {"width": WIDTH, "learn_hyperparameters": learn, "search": {"initial": INITIAL}}
    if name == "sw_gp_ucb":
        options["window"] = max(INITIAL, horizon // 2)
    if name == SMOOTH:
        name, options["time_kernel"] = "tv_gp_ucb", MaternKernel(nu=1.5).double()
        options["time_kernel"].lengthscale = horizon / 3
    return recipes.build(name, problem, replicates=1, horizon=horizon, seed=seed, **options)


def race(name: str, horizon: int, replicate: int, only: Collection[str] = ()) -> pd.DataFrame:
    """One row per policy (of ``only``, if any) and step: regret, and seconds of ``choose`` and ``learn``."""
    problem = make(name, horizon=horizon)
    for step in range(1, horizon + 1):
        problem.best(step)  # not in anybody's time
    built = racers(problem, horizon, replicate)
    validation.require(set(only) <= set(built), "only", only, f"policies among {'; '.join(built)}")
    rows = []
    for policy, build in built.items():  # in this order, whatever that of ``only``
        if only and policy not in only:
            continue
        torch.manual_seed(replicate)
        history = run(build(), problem, horizon, first_replicate=replicate)
        say(
            f"{name} {policy} {replicate}: {history.mean_cumulative_regret:.1f}, {history.ms_per_step:.0f} ms"
        )
        columns = {"problem": name, "policy": policy, "replicate": replicate, "step": range(1, horizon + 1)}
        columns |= {"regret": history.regret[0].numpy(), "seconds": history.seconds.numpy()}
        rows.append(pd.DataFrame(columns))
    return pd.concat(rows, ignore_index=True)


def continued(name: str, horizon: int, replicates: int, table: Path, again: Collection[str] = ()) -> None:
    """Play the replicates that the table lacks, one by one, and write it after each; other horizons' rows go.
    ``again``: policies to be played again, or for the first time, in the replicates that the table has."""
    played = pd.read_csv(table) if table.exists() else pd.DataFrame()
    if len(played) and played["step"].max() != horizon:
        played = pd.DataFrame()
    held, measured = set(played.get("replicate", [])), ["regret", "seconds"]
    for replicate in range(replicates):
        if replicate not in held:
            played = pd.concat([played, race(name, horizon, replicate)], ignore_index=True)
        elif again:
            fresh = race(name, horizon, replicate, again)
            rows = played["policy"].isin(again) & (played["replicate"] == replicate)
            known = fresh["policy"].isin(played.loc[rows, "policy"])
            played.loc[rows, measured] = fresh.loc[known, measured].to_numpy()
            played = pd.concat([played, fresh[~known]], ignore_index=True)
        else:
            continue  # nothing to write
        save(played, table)
