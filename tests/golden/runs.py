"""The runs that are kept: every recipe on two problems over arms, and over points where it takes a domain.

Arms: 200 steps, 3 replicates. Points: 40 steps and a small search, since every step is an optimisation. The recipes for
an unknown prior need candidate priors, so their two problems are hills of two kinds.
"""

import hashlib
import inspect
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bandits_torch import History, make, recipes, run

KEPT = Path(__file__).with_name("chosen.json")
STEPS, POINT_STEPS, LEARNING_STEPS, REPLICATES = 200, 40, 60, 3
FIRST, FIRST_POINTS = 30, 4  # choices that are kept as they are
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"  # one for each arm
_SEARCH = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 5}}
_LEARNING = {"every": 10, "first": 4}
_WITH_KERNEL: dict[str, dict[str, Any]] = {
    "switching": {"num_arms": 30, "horizon": STEPS},
    "tv-gp": {"num_arms": 40, "horizon": STEPS},
}
_WITH_PRIORS: dict[str, dict[str, Any]] = {
    "hills": {"num_arms": 21},
    "hills/noisy": {"num_arms": 41, "noise_scale": 0.3, "true_prior": 4},
}
_OVER_POINTS: dict[str, dict[str, Any]] = {"dynamic-levy": {"dim": 2}, "dynamic-ackley": {"dim": 3}}
_POINT_RECIPES = (
    *("random", "gp_ucb", "igp_ucb", "gp_ts", "gp_ei", "gp_pi", "r_gp_ucb", "sw_gp_ucb"),
    *("tv_gp_ucb", "ui_gp_ucb", "et_gp_ucb", "pe_gp_ucb"),
)


class Case(NamedTuple):
    """One run: a recipe with its options on a problem with its own."""

    recipe: str
    problem: str
    steps: int
    options: dict[str, Any]
    of_problem: dict[str, Any]
    variant: str = ""

    @property
    def name(self) -> str:
        """By which it is kept."""
        return f"{self.recipe}{self.variant} on {self.problem}"


def cases() -> Iterator[Case]:
    """Every run that is kept."""
    for recipe, function in recipes.RECIPES.items():
        over_kernel = list(inspect.signature(function).parameters)[1] == "kernel"
        for problem, settings in (_WITH_KERNEL if over_kernel else _WITH_PRIORS).items():
            yield Case(recipe, problem, STEPS, dict(recipes.registered(recipe).quick), settings)
    learning = {"learn_hyperparameters": _LEARNING}
    for recipe in ("gp_ucb", "sw_gp_ucb", "tv_gp_ucb"):
        options = dict(recipes.registered(recipe).quick) | learning
        yield Case(recipe, "switching", LEARNING_STEPS, options, _WITH_KERNEL["switching"], ", learning")
    chosen = {"window": "likelihood"}
    yield Case("sw_gp_ucb", "switching", STEPS, chosen, _WITH_KERNEL["switching"], ", likelihood")
    for recipe in _POINT_RECIPES:
        options = dict(recipes.registered(recipe).quick) | ({} if recipe == "random" else {"search": _SEARCH})
        for problem, settings in _OVER_POINTS.items():
            yield Case(recipe, problem, POINT_STEPS, options, settings | {"horizon": POINT_STEPS})
    for recipe in ("gp_ucb", "pe_gp_ucb"):
        options = {"search": _SEARCH} | learning
        settings = {"dim": 2, "horizon": POINT_STEPS}
        yield Case(recipe, "dynamic-levy", POINT_STEPS, options, settings, ", learning")


def kept() -> dict[str, Any]:
    """What each run gave when it was kept."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def play(case: Case, steps: int | None = None) -> History:
    """The run, or its first ``steps`` steps."""
    problem = make(case.problem.split("/")[0], replicates=REPLICATES, seed=3, **case.of_problem)
    if problem.dim:  # the best there was is an optimisation of its own in every step
        problem.best = lambda step: torch.ones(REPLICATES, dtype=torch.float64)  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* has one prior_mean for all arms")
        policy = recipes.build(
            case.recipe, problem, replicates=REPLICATES, horizon=case.steps, seed=5, **case.options
        )
    return run(policy, problem, steps or case.steps, seed=7)


def told(history: History) -> dict[str, Any]:
    """What is kept of a run: the first choices, a line for each replicate; digests of all choices and all numbers."""
    if history.arms.dim() == 2:
        chosen = ["".join(_DIGITS[arm] for arm in arms) for arms in history.arms.tolist()]
        first = [arms[:FIRST] for arms in chosen]
    else:
        chosen = [" ".join(_point(x) for x in points) for points in history.arms.tolist()]
        first = [" ".join(points.split(" ")[:FIRST_POINTS]) for points in chosen]
    choices = hashlib.sha256("\n".join(chosen).encode()).hexdigest()[:16]
    return {"first": first, "choices": choices, "digest": digest(history)}


def _point(x: list[float]) -> str:
    return ",".join(f"{coordinate:.6f}" for coordinate in x)


def digest(history: History) -> str:
    """Of the bits of every tensor in it but the seconds."""
    names = ("arms", "rewards", "expected_rewards", "best", "times")
    tensors: dict[str, Tensor] = {name: getattr(history, name) for name in names} | dict(history.trace)
    whole = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        whole.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        whole.update(value.numpy().tobytes())
    return whole.hexdigest()[:16]
