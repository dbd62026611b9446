"""``python -m benchmarks.safety``: how often a limit on a measured outcome is broken where reward and outcome drift,
and the regret beside it; ``--points``: over the points of a square. Three minutes of a core."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from torch import Tensor

from bandits_torch import History, make, recipes, run
from bandits_torch.history import standard_error
from bandits_torch.models import OutcomeConstraint
from bandits_torch.problems import gaussian_noise
from bandits_torch.streams import ReplicateStreams
from benchmarks import options, pages
from benchmarks.parallel.race import PointDraws

_OF_OUTCOME = 1_000_003  # what is added to the seed for the outcome's own draws
_LIMIT = 0.5  # of the outcome, whose standard deviation is 1
_SEARCH = {"num_restarts": 1, "raw_samples": 64, "options": {"maxiter": 10}}


class SafePointDraws(PointDraws):
    """``PointDraws`` of kind tv-gp with the outcome "load", an independent draw alike, that must stay below 0.5. Regret
    is against the best point of the grid within the limit, or, where there is none, that of the least outcome."""

    outcome_names = ("load",)
    noise_is_added = False  # what is measured is drawn beside it

    def __init__(self, horizon: int, replicates: int, seed: int, forgetting_rate: float) -> None:
        super().__init__("tv-gp", horizon, replicates, seed, forgetting_rate)
        self._outcome = PointDraws("tv-gp", horizon, replicates, seed + _OF_OUTCOME, forgetting_rate)
        own = self.knowledge
        load = OutcomeConstraint("load", high=_LIMIT, kernel=own.kernel, noise_variance=own.noise_variance)
        self.knowledge = replace(own, constraints=(load,))
        least = self._outcome.on_grid(1).argmin(-1)
        self.safe_points = self.grid[least].unsqueeze(1)

    def best(self, step: int) -> Tensor:
        outcome = self._outcome.on_grid(step)
        allowed = (outcome <= _LIMIT) | (outcome == outcome.amin(-1, keepdim=True))
        return self.on_grid(step).masked_fill(~allowed, -torch.inf).amax(-1)

    def measure(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """The outcome with normal noise, (S, 1)."""
        outcome = self._outcome.expected(step, arm)
        return (outcome + gaussian_noise(self._outcome.noise_scale, streams)).unsqueeze(-1)

    def trace(self, step: int, arm: Tensor) -> dict[str, Tensor | float]:
        """``violation`` and ``feasible``, the share of the grid within the limit, (S,) each."""
        feasible = (self._outcome.on_grid(step) <= _LIMIT).double().mean(-1)
        violation = (self._outcome.expected(step, arm) > _LIMIT).double()
        return {"violation": violation, "feasible": feasible}


def play_points(problem: SafePointDraws, name: str, options: dict[str, Any], horizon: int) -> History:
    safe = {"safe_points": problem.safe_points} if name == "safe_gp_ucb" else {}
    search = {"search": {"raw_samples": 128} if safe else _SEARCH}
    policy = recipes.build(
        name, problem, replicates=problem.replicates, horizon=horizon, **(safe | search | options)
    )
    return run(policy, problem, horizon, seed=1)


DELTA = 0.1
SEED = 100  # seed 5 was played while the policies were written
PROBLEMS: dict[str, dict[str, Any]] = {
    "slow drift, any arm may be unsafe": {"forgetting_rate": 0.003, "climb": 0.0},
    "fast drift, any arm may be unsafe": {"forgetting_rate": 0.03, "climb": 0.0},
    "slow drift, safe in the middle": {"forgetting_rate": 0.003, "climb": 4.0},
    "fast drift, safe in the middle": {"forgetting_rate": 0.03, "climb": 4.0},
}
_FREE = "without limits (tv_gp_ucb)"
_STEP = {"width": 2.0, "guarantee": "step", "delta": DELTA}
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    _FREE: ("tv_gp_ucb", {"width": 2.0}),
    "safe_gp_ucb, whole run": ("safe_gp_ucb", _STEP | {"guarantee": "run"}),
    "safe_gp_ucb, each step": ("safe_gp_ucb", _STEP),
    "safe_opt, each step": ("safe_opt", _STEP),
    "safe_gp_ucb, each step, blind to drift": ("safe_gp_ucb", _STEP | {"forgetting_rate": 0.0}),
}


def play(problem: dict[str, Any], name: str, options: dict[str, Any], S: int, T: int) -> History:
    made = make("safe-tv-gp", replicates=S, num_arms=50, seed=SEED, **problem)
    if options.get("forgetting_rate") == 0.0:
        still = tuple(replace(one, forgetting_rate=0.0) for one in made.knowledge.constraints or ())
        options = options | {"constraints": still}
    policy = recipes.build(name, made, replicates=S, horizon=T, **options)
    return run(policy, made, T, seed=1, progress=name)


def row(history: History) -> dict[str, Any]:
    broken = history.trace["violation"]
    fallback = history.trace.get("fallback", torch.zeros_like(broken))
    inside = broken * (1 - fallback)
    steps = (1 - fallback).sum(-1).clamp_min(1)
    return {
        "broken": _shown(broken.mean(-1)),
        "of steps in the safe set": _shown(inside.sum(-1) / steps),
        "runs": f"{float(inside.amax(-1).mean()):.2f}",
        "fallback": f"{float(fallback.mean()):.3f}",
        "regret": _shown(history.regret.mean(-1)),
    }


def _shown(values: torch.Tensor) -> str:
    return f"{float(values.mean()):.4f} +- {float(standard_error(values)):.4f}"


SIZE, SIZE_OF_POINTS = (50, 400), (20, 60)  # draws, steps


def write_page(out: Path, over_points: bool = False) -> Path:
    """A page from its table: it begins with how often each guarantee was broken at worst, and the limit without one."""
    page, file = ("POINTS.md", "points.csv") if over_points else ("RESULTS.md", "violations.csv")
    S, T = SIZE_OF_POINTS if over_points else SIZE
    table = pd.read_csv(out / file, dtype=str)

    def worst(policy: str, column: str) -> float:
        values = table.loc[table["policy"] == policy, column]
        return max((float(value.split()[0]) for value in values), default=math.nan)

    step = worst("safe_gp_ucb, each step", "of steps in the safe set")
    broken = {"step": step, "whole": worst("safe_gp_ucb, whole run", "runs"), "free": worst(_FREE, "broken")}
    sizes = {"S": S, "T": T, "seed": SEED, "delta": DELTA}
    return pages.render(out / page, f"safety/{page}.jinja", table=table, **sizes, **broken)


write_points = partial(write_page, over_points=True)


def points(out: Path, S: int, T: int) -> None:
    problem, rows = SafePointDraws(T, S, SEED, 0.03), []
    for label in (_FREE, "safe_gp_ucb, whole run", "safe_gp_ucb, each step"):
        name, options = POLICIES[label]
        rows.append({"policy": label, **row(play_points(problem, name, options, T))})
        pages.save(pd.DataFrame(rows), out / "points.csv", None)
        pages.say(f"{label} {rows[-1]}")
        write_points(out)


def main(
    over_points: Annotated[bool, typer.Option("--points", help="Over points in place of arms.")] = False,
    page: options.PageAlone = False,
    out: options.Out = None,
) -> None:
    """Play everything and write as it goes."""
    folder, rows, (S, T) = pages.results_folder(__file__, out), [], SIZE
    if over_points and not page:
        points(folder, *SIZE_OF_POINTS)
    for title, problem in () if over_points or page else PROBLEMS.items():
        for label, (name, settings) in POLICIES.items():
            rows.append({"problem": title, "policy": label, **row(play(problem, name, settings, S, T))})
            pages.save(pd.DataFrame(rows), folder / "violations.csv", None)
            pages.say(f"{title} {label} {rows[-1]}")
            write_page(folder)
    if page:
        pages.say(f"wrote {write_page(folder, over_points)}")


if __name__ == "__main__":
    options.command(main)()
