"""What has to hold before a figure counts: the tests on the device, and the same choices on CPU and GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bandits_torch import recipes
from bandits_torch.history import History
from bandits_torch.loop import run
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.problems import make
from benchmarks.gpu.stepping import Settings

ROOT = Path(__file__).resolve().parents[2]
# On a GPU: first those written for one, then those that are played again on its tensors.
_WRITTEN_FOR_ONE = (
    "tests/captured/test_captured_cuda.py",
    "tests/models/test_arm_gp_devices.py",
    "tests/theory/test_widths.py",
    "tests/test_benchmarks_speed.py",
)
_ON_ITS_TENSORS = ("theory", "acquisition", "models", "policies")
_ROUNDING = 1e-9  # relative: indices closer than this may change places


def tests(settings: Settings, log: Path) -> Iterator[dict[str, Any]]:
    """How many tests pass with tensors on the device, folder by folder; what pytest says goes to ``log``."""
    written = _WRITTEN_FOR_ONE[: settings.pick(None, 1)]
    plan = [("written for a GPU", "cpu", [*written, "-k", "gpu or cuda"])]  # these place their own tensors
    if not settings.small:
        plan += [(folder, settings.device, [f"tests/{folder}"]) for folder in _ON_ITS_TENSORS]
    for k, (name, device, arguments) in enumerate(plan):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--device={device}"]
        command += ["--continue-on-collection-errors", "--tb=line", "-W", "default", *arguments]
        yield {"tests": name, **_outcome(command, max(5.0, settings.left / (len(plan) - k)), log)}


def _outcome(command: list[str], seconds: float, log: Path) -> dict[str, Any]:
    """Counts from pytest's last line; those of a run that was cut short are what its dots say."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with log.open("ab") as file:
        file.write((" ".join(command) + "\n").encode())
        file.flush()
        begun = file.tell()
        whole = True
        try:
            subprocess.run(command, cwd=ROOT, env=environment, stdout=file, stderr=file, timeout=seconds)
        except subprocess.TimeoutExpired:
            whole = False
    said = log.read_bytes()[begun:].decode(errors="replace")
    counts = {kind: 0 for kind in ("passed", "failed", "skipped", "error")}
    last = said.strip().splitlines()[-1] if said.strip() else ""
    for count, kind in re.findall(r"(\d+) (passed|failed|skipped|error)", last if whole else ""):
        counts[kind] = int(count)
    if not whole:
        dots = "".join(re.findall(r"^([.FEsx]+)", said, re.MULTILINE))
        counts = {"passed": dots.count("."), "failed": dots.count("F"), "skipped": dots.count("s")}
        counts["error"] = dots.count("E")
    return {**counts, "whole": whole}


def same_choices(settings: Settings) -> Iterator[dict[str, Any]]:
    """Does every recipe choose the same arms on CPU and GPU, plain and captured, or differ only in a near tie?"""
    steps = settings.pick(200, 6)
    for recipe in recipes.RECIPES:
        row: dict[str, Any] = {"recipe": recipe, "steps": steps}
        try:
            here, there = _played(recipe, "cpu", steps), _played(recipe, settings.device, steps)
            row |= _compared(recipe, here, there, "")
            try:
                captured = _played(recipe, settings.device, steps, capture=True)
            except ValueError as error:
                row["captured"] = "refused" if "capture" in str(error) else str(error)[:200]
            else:
                row |= _compared(recipe, here, captured, "captured_")
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        yield row


def _problem(recipe: str, steps: int) -> Any:
    over_priors = recipes.registered(recipe).belief == "priors" or recipe == "known_prior_gp_ucb"
    name = "hills" if over_priors else "switching"
    settings = {"num_arms": 21} if name == "hills" else {"num_arms": 30, "horizon": max(steps, 20)}
    return make(name, replicates=3, seed=3, **settings)


def _built(recipe: str, device: str, steps: int) -> tuple[Any, Any]:
    problem = _problem(recipe, steps).to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick = dict(recipes.registered(recipe).quick)
        policy = recipes.build(recipe, problem, replicates=3, horizon=max(steps, 20), seed=5, **quick)
    return policy, problem


def _played(recipe: str, device: str, steps: int, capture: bool = False) -> History:
    policy, problem = _built(recipe, device, steps)
    return run(policy, problem, steps, seed=7, capture=capture)


def _compared(recipe: str, here: History, there: History, prefix: str) -> dict[str, Any]:
    """The first step at which arms differ, and how far apart their indices were on the CPU, relative to the larger."""
    differ = (here.arms != there.arms).any(0).nonzero().flatten()
    if not len(differ):
        return {f"{prefix}same": True}
    step = int(differ[0]) + 1
    gap = _gap(recipe, here, there, step)
    return {f"{prefix}same": False, f"{prefix}first_step": step, f"{prefix}gap": gap}


@torch.no_grad()
def _gap(recipe: str, here: History, there: History, step: int) -> float:
    """NaN for a policy that is no index policy."""
    policy, problem = _built(recipe, "cpu", here.horizon)
    if step > 1:
        run(policy, problem, step - 1, seed=7)
    if not isinstance(policy, IndexPolicy):
        return float("nan")
    time = problem.time(step)
    scores = policy._acquisition_now(time)(policy.choices.inputs(time)).reshape(problem.num_arms, -1)  # type: ignore[attr-defined]
    first, second = (scores.gather(0, run.arms[:, step - 1].unsqueeze(0)) for run in (here, there))
    return float(((first - second).abs() / scores.abs().amax(0)).max())


def near_tie(row: dict[str, Any], prefix: str = "") -> bool:
    """Whether a recipe chose the same arms, or parted where two indices were within rounding."""
    return bool(row.get(f"{prefix}same")) or row.get(f"{prefix}gap", float("inf")) <= _ROUNDING
