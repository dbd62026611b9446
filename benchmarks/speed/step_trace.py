"""What a reader would have to step through: the files, functions and lines that one step of a recipe executes."""

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import botorch
import gpytorch
import linear_operator
import pandas as pd
import torch

import bandits_torch
from bandits_torch import make, recipes
from bandits_torch.policies import Observation, Policy
from benchmarks.pages import say
from benchmarks.speed.page import Settings
from benchmarks.speed.plain_botorch import condition, gp, score_in_one_call, ucb
from benchmarks.speed.workload import make_task

ARMS, BEFORE, _WINDOW = 30, 30, 10  # the window is full before the step that is traced
_OPTIONS: dict[str, dict[str, Any]] = {"sw_gp_ucb": {"window": _WINDOW}}
_FAST = ("random", "gp_ucb", "sw_gp_ucb", "igp_ucb", "pe_gp_ucb")
_OURS = (bandits_torch,)
_THEIRS = (botorch, gpytorch, linear_operator)


class Executed:
    """Distinct files, functions and lines of some packages that run while it is entered (``sys.settrace``)."""

    def __init__(self, *packages: Any) -> None:
        self._folders = tuple(str(Path(package.__file__).parent) + os.sep for package in packages)
        self.codes: set[CodeType] = set()
        self.lines: set[tuple[str, int]] = set()

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self._folders):
            return None
        self.codes.add(frame.f_code)
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._trace

    def counts(self) -> dict[str, int]:
        files = {code.co_filename for code in self.codes}
        return {"files": len(files), "functions": len(self.codes), "lines": len(self.lines)}


def of_recipe(name: str) -> Executed:
    """One step of a recipe, choose and learn, after 30 others: all arms available, no restart due."""
    over_kernel = list(inspect.signature(recipes.RECIPES[name]).parameters)[1] == "kernel"
    problem = make("gp" if over_kernel else "hills", num_arms=ARMS, seed=0)
    options = dict(recipes.registered(name).quick) | _OPTIONS.get(name, {})
    policy = recipes.build(name, problem, replicates=1, horizon=10 * BEFORE, seed=0, **options)
    for step in range(BEFORE):
        _step(policy, step)
    with Executed(*_OURS) as executed:
        _step(policy, BEFORE)
    return executed


def _step(policy: Policy, step: int) -> None:
    time = float(step + 1)
    choice = policy.choose(time)
    reward = torch.sin(1.7 * choice.arm.double() + 0.1 * step)
    policy.learn(Observation(time, choice.arm, reward, choice.why))


def of_botorch() -> Executed:
    """One step of BoTorch's UCB over as many arms, its model conditioned on what came before, as a user writes it."""
    task = make_task(ARMS, "cpu")

    def step(model: Any, number: int) -> Any:
        arm = score_in_one_call(ucb(model), task.arms)
        reward = task.reward(number, torch.tensor([arm])).reshape(1, 1)
        return condition(model, task.arms[arm : arm + 1], reward)

    model = gp(task.arms[:1], task.reward(0, torch.tensor([0])).reshape(1, 1))
    model.posterior(task.arms[:1])
    for number in range(1, BEFORE):
        model = step(model, number)
    with Executed(*_THEIRS) as executed, torch.no_grad():
        step(model, BEFORE)
    return executed


def measure(settings: Settings) -> pd.DataFrame:
    """One row for each recipe, and one for BoTorch's UCB."""
    rows: list[dict[str, Any]] = []
    for name in _FAST if settings.fast else recipes.RECIPES:
        say(name)
        rows.append({"step": name, **of_recipe(name).counts()})
    rows.append({"step": "BoTorch's UCB", **of_botorch().counts()})
    return pd.DataFrame(rows)
