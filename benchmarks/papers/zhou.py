"""Zhou & Shroff 2021, No-regret algorithms for time-varying Bayesian optimization: its theorems, measured.

``python -m benchmarks.papers zhou [horizon|budget|gain|gap|bound|report ...] [--fast] [--out DIR]``

The paper has no experiments. Here R-GP-UCB and SW-GP-UCB, with the tuned H and w, the theorems' widths or a constant
one, and IGP-UCB beside them, play functions whose variation budget in the RKHS norm is exact (``TurningFunctions``).
Each part writes a CSV file; pictures, RESULTS.md and claims.csv are then made from the CSV files alone.
"""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch

from bandits_torch import History, Policy, recipes, run
from bandits_torch.policies import PeriodicRestart, SlidingWindow
from benchmarks.pages import save, say
from benchmarks.papers import _zhou_page as page
from benchmarks.papers._folders import Job
from benchmarks.papers._folders import run as run_parts
from benchmarks.papers._zhou_problem import NOISE_SCALE, Bounds, TurningFunctions

BUDGET = 4 * math.sqrt(2)  # P_T of the sweep over T, with B = 1: about one full turn, or four jumps
HORIZONS = (500, 1000, 2000, 4000, 8000, 16_000)
BUDGETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
LENGTHSCALES = (0.05, 0.1, 0.2, 0.4)
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
_MIDDLE = 2000  # T of the sweeps over P_T and gamma
_TUNING = 1000  # T at which the constant width is picked, on other functions
_RECIPES = {"R-GP-UCB": "r_gp_ucb", "SW-GP-UCB": "sw_gp_ucb", "IGP-UCB": "igp_ucb"}


def main(arguments: list[str]) -> None:
    fast = "3 replicates, two values a sweep, a tenth of the steps"
    torch.set_num_threads(1)  # a step this short gains nothing from a second thread
    run_parts("zhou", __doc__.split("\n")[0], arguments, PARTS, lambda job: page.write(job.out), fast=fast)


def _replicates(job: Job) -> int:
    return 3 if job.fast else 20


def _some(job: Job, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of a sweep's values that are run."""
    return values[:2] if job.fast else values


def _steps(job: Job, full: int) -> int:
    return full // 10 if job.fast else full


def horizon(job: Job) -> None:
    """Regret against T at a fixed P_T, for a steady drift and for jumps; P_T known."""
    tuned, rows = _tuned_widths(job), []
    for change in ("drift", "jumps"):
        for full in _some(job, HORIZONS if change == "drift" else HORIZONS[1::2]):
            T = _steps(job, full)
            problem = TurningFunctions(T, BUDGET, change, replicates=_replicates(job))
            rows += _race(problem, tuned, f"{change}, T = {T}", {"environment": change, "x": T})
            save(pd.DataFrame(rows), job.out / "horizon.csv", 5)


def budget(job: Job) -> None:
    """Regret against P_T at a fixed T, drift, for H and w tuned with P_T and without."""
    tuned, rows = _tuned_widths(job), []
    for P in _some(job, BUDGETS):
        problem = TurningFunctions(_steps(job, _MIDDLE), P, replicates=_replicates(job))
        for known in (True, False):
            words = {"environment": "known" if known else "unknown", "x": P}
            rows += _race(problem, tuned, f"P_T = {P:g}, {words['environment']}", words, known)
        save(pd.DataFrame(rows), job.out / "budget.csv", 5)


def gain(job: Job) -> None:
    """Regret against gamma_T at a fixed T and P_T, drift: the lengthscale sets gamma_T."""
    tuned, rows = _tuned_widths(job), []
    for lengthscale in _some(job, LENGTHSCALES):
        T = _steps(job, _MIDDLE)
        problem = TurningFunctions(T, BUDGET, lengthscale=lengthscale, replicates=_replicates(job))
        words = {"environment": f"lengthscale {lengthscale:g}", "x": Bounds(problem).gamma(T)}
        rows += _race(problem, tuned, words["environment"], words)
        save(pd.DataFrame(rows), job.out / "gain.csv", 5)


def gap(job: Job) -> None:
    """|V^{-1} sum_{s<=p} phi_s phi_s^T|, V = lambda I + the sum over all H steps, which earlier work took to be at most
    1, and Claim 2's bound. Unit vectors: p near one direction of R^d, the others near one at a random angle with it."""
    generator, rows = torch.Generator().manual_seed(0), []
    steps, early, noise = 50, 5, 0.01
    for dim in (2, 4, 8):
        for trial in range(20 if job.fast else 500):
            normal = torch.randn(steps + 2, dim, generator=generator, dtype=torch.float64)
            first, second = normal[-2], normal[-2] + 0.3 * normal[-1]
            around = torch.cat([first.expand(early, -1), second.expand(steps - early, -1)])
            phi = torch.nn.functional.normalize(around + 0.02 * normal[:steps], dim=-1)
            V = phi.mT @ phi + noise * torch.eye(dim, dtype=torch.float64)
            norm = torch.linalg.matrix_norm(torch.linalg.solve(V, phi[:early].mT @ phi[:early]), 2)
            gamma = float(torch.logdet(V / noise)) / 2  # the realised gain, at most gamma_H
            bound = math.sqrt(2 * steps * (1 + noise) * gamma) / noise
            rows.append({"dim": dim, "trial": trial, "norm": float(norm), "bound": bound})
    save(pd.DataFrame(rows), job.out / "gap.csv", 5)


def bound(job: Job) -> None:
    """A case where the bounds of Theorems 1 and 2 lie below random play's regret: next to no change, lambda = 1."""
    problem = TurningFunctions(_steps(job, 20_000), 1e-5, replicates=3 if job.fast else 5)
    bounds, T, rows = Bounds(problem, 1.0), int(problem.horizon or 0), []
    random = T * (problem.g.amax(-1) - problem.g.mean(-1))  # f_1, from which f moves by 1e-5 in all
    lengths = sorted({max(1, T * k // 200) for k in range(1, 201)})
    for name, option in (("R-GP-UCB", "interval"), ("SW-GP-UCB", "window")):
        found = {m: bounds.regret(m, math.ceil(T / m) if option == "interval" else T) for m in lengths}
        memory = min(found, key=lambda m: found[m])
        policy = _build(name, problem, None, noise_variance=1.0, noise_scale=NOISE_SCALE, **{option: memory})
        total = _played(policy, problem, f"bound: {name}").regret.sum(-1).tolist()
        own = {"policy": name, "width": "theory", "memory": memory, "bound": found[memory]}
        for k, regret in enumerate(total):
            rows.append(own | {"replicate": k, "regret": regret, "random": float(random[k])})
    save(pd.DataFrame(rows), job.out / "bound.csv", 5)


PARTS: dict[str, Callable[[Job], None]] = {
    part.__name__: part for part in (horizon, budget, gain, gap, bound)
}


def _race(
    problem: TurningFunctions, tuned: dict[str, float], title: str, words: dict[str, Any], known: bool = True
) -> list[dict[str, Any]]:
    """Rows of every policy and replicate: regret, that of random play, H or w, the bound."""
    bounds, rows, T = Bounds(problem), [], int(problem.horizon or 0)
    functions = [problem.expected_rewards(t) for t in range(1, T + 1, max(1, T // 100))]
    random = T * torch.stack([f.amax(-1) - f.mean(-1) for f in functions]).mean(0)
    options = {} if known else {"rkhs_variation_budget": None}
    for name in _RECIPES if known else ("R-GP-UCB", "SW-GP-UCB"):  # IGP-UCB knows of no P_T
        for width in ("theory", "constant"):
            given = options if name != "IGP-UCB" else {}
            policy = _build(name, problem, tuned[name] if width == "constant" else None, **given)
            history = _played(policy, problem, f"{title}: {name}, {width}")
            memory = _memory(policy, T)
            events = math.ceil(T / memory) if name == "R-GP-UCB" else T
            own = words | {"policy": name, "width": width}
            bound = {"memory": memory, "bound": bounds.regret(memory, events)}
            for k, regret in enumerate(history.regret.sum(-1).tolist()):
                rows.append(own | {"replicate": k, "regret": regret, "random": float(random[k])} | bound)
    return rows


def _build(name: str, problem: TurningFunctions, width: float | None, **options: Any) -> Policy:
    given = {"replicates": problem.replicates, "horizon": problem.horizon, "width": width}
    return recipes.build(_RECIPES[name], problem, **given, **options)


def _played(policy: Policy, problem: TurningFunctions, title: str) -> History:
    history = run(policy, problem, int(problem.horizon or 0), progress=title, capture="auto")
    say(f"{title:50} {history.mean_cumulative_regret:9.1f}  {history.meta['wall_seconds']:.1f} s")
    return history


def _memory(policy: Policy, horizon: int) -> int:
    """H or w; T for a policy that forgets nothing."""
    rule = getattr(policy, "forgetting", None)
    if isinstance(rule, PeriodicRestart):
        return rule.interval
    return rule.window if isinstance(rule, SlidingWindow) else horizon


def _tuned_widths(job: Job) -> dict[str, float]:
    """For each algorithm the constant width of least regret at T = 1 000, on functions that no sweep plays."""
    path = job.out / "tuning.csv"
    if not path.is_file():
        problem = TurningFunctions(_steps(job, _TUNING), BUDGET, replicates=_replicates(job), seed=1)
        rows = []
        for name in _RECIPES:
            for width in _some(job, WIDTHS):
                history = _played(_build(name, problem, width), problem, f"tuning: {name}, width {width:g}")
                rows.append({"policy": name, "width": width, "regret": history.mean_cumulative_regret})
        save(pd.DataFrame(rows), path, 5)
    frame = pd.read_csv(path)
    best = frame.loc[frame.groupby("policy")["regret"].idxmin()]
    return dict(zip(best["policy"], best["width"], strict=True))
