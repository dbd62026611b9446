"""How often a limit on a measured outcome is broken where reward and outcome drift, and the regret beside it.

    python -m benchmarks.safety [--points] [--quick] [--out DIR]

Every policy plays the same draws with the same noise; results are written after each of them, to ``violations.csv``
and ``RESULTS.md``. About three minutes on one core; ``--quick`` plays every line of it in small. ``--points``: the
same over the points of a square, to ``points.csv`` and ``POINTS.md``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bandits_torch import recipes
from bandits_torch.files import atomic_write
from bandits_torch.history import History, standard_error
from bandits_torch.loop import run
from bandits_torch.problems import make
from benchmarks.pages import markdown, save
from benchmarks.safety.points import SafePointDraws
from benchmarks.safety.points import play as play_points

DELTA = 0.1
SEED = 100  # seed 5 was played while the policies were written
PROBLEMS: dict[str, dict[str, Any]] = {
    "slow drift, any arm may be unsafe": {"forgetting_rate": 0.003, "climb": 0.0},
    "fast drift, any arm may be unsafe": {"forgetting_rate": 0.03, "climb": 0.0},
    "slow drift, safe in the middle": {"forgetting_rate": 0.003, "climb": 4.0},
    "fast drift, safe in the middle": {"forgetting_rate": 0.03, "climb": 4.0},
}
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "without limits (tv_gp_ucb)": ("tv_gp_ucb", {"width": 2.0}),
    "safe_gp_ucb, whole run": ("safe_gp_ucb", {"width": 2.0, "guarantee": "run", "delta": DELTA}),
    "safe_gp_ucb, each step": ("safe_gp_ucb", {"width": 2.0, "guarantee": "step", "delta": DELTA}),
    "safe_opt, each step": ("safe_opt", {"width": 2.0, "guarantee": "step", "delta": DELTA}),
    "safe_gp_ucb, each step, blind to drift": (
        "safe_gp_ucb",
        {"width": 2.0, "guarantee": "step", "delta": DELTA, "forgetting_rate": 0.0},
    ),
}
_HEAD = f"""# Safe policies under drift

Written by `python -m benchmarks.safety`; run it again rather than edit it.

Problem `safe-tv-gp`: the reward and a measured outcome are independent draws of a Gaussian process that drifts, the
outcome's limit is half of its standard deviation. "Safe in the middle": the outcome's prior mean, which is known, is 4
deviations lower there. {{S}} draws (seed {SEED}), 50 arms, {{T}} steps, delta = {DELTA}, one arm known to be safe at
the first step; after that the safe set is the models' alone.

* *broken*: share of steps at which the arm's true outcome is above the limit; *of steps in the safe set*: without those
  at which no arm was certain and the likeliest was played (*fallback*), for which nothing is claimed.
* *runs*: share of runs that broke the limit at least once while in the safe set. "Whole run" claims at most delta of
  it; "each step" at most delta of *steps in the safe set*.
* *regret*: a step, against the best arm within the limit; it is negative where a policy gains by breaking the limit.
"Blind to drift" has models that never forget: the safe set of a stationary problem.

The standard error over the draws is behind each mean.

"""


def play(problem: dict[str, Any], name: str, options: dict[str, Any], S: int, T: int) -> History:
    """One policy on one problem."""
    made = make("safe-tv-gp", replicates=S, num_arms=50, seed=SEED, **problem)
    if options.get("forgetting_rate") == 0.0:
        frozen = tuple(_frozen(one) for one in made.knowledge.constraints or ())
        options = options | {"constraints": frozen}
    policy = recipes.build(name, made, replicates=S, horizon=T, **options)
    return run(policy, made, T, seed=1, progress=name)


def _frozen(one: Any) -> Any:
    """The same outcome, believed not to drift."""
    return type(one)(
        one.name, one.low, one.high, one.kernel, one.noise_variance, one.prior_mean, forgetting_rate=0.0
    )


def row(history: History) -> dict[str, Any]:
    """What is reported of a run."""
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


def _table(part: pd.DataFrame) -> str:
    return markdown(list(part.columns), part.to_numpy().tolist())


_POINTS = """# Safe policies over points, under drift

Written by `python -m benchmarks.safety --points`; run it again rather than edit it.

Over the unit square: reward and a measured outcome are independent draws that drift at rate 0.03 a step (256 Fourier
features of a squared exponential kernel, length-scale 0.2); the outcome must stay below half of its standard deviation.
{S} draws (seed {seed}), {T} steps, delta = {delta}, one point known to be safe at the first step. Columns as in
[RESULTS.md](RESULTS.md); regret is against the best point within the limit of a grid of 64 x 64.

"""


def points(out: Path, S: int, T: int) -> None:
    """The race over points."""
    problem, rows = SafePointDraws(T, S, SEED, 0.03), []
    for label in ("without limits (tv_gp_ucb)", "safe_gp_ucb, whole run", "safe_gp_ucb, each step"):
        name, options = POLICIES[label]
        rows.append({"policy": label, **row(play_points(problem, name, options, T))})
        table = pd.DataFrame(rows)
        save(table, out / "points.csv", None)
        with atomic_write(out / "POINTS.md") as file:
            head = _POINTS.format(S=S, T=T, seed=SEED, delta=DELTA)
            file.write((head + _table(table) + "\n").encode())
        print(label, rows[-1], flush=True)


def main() -> None:
    """Play everything and write as it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 draws, 30 steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--points", action="store_true", help="over points in place of arms")
    asked = parser.parse_args()
    S, T = (4, 30) if asked.quick else (50, 400)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.points:
        points(asked.out, *((2, 6) if asked.quick else (20, 60)))
        return
    rows: list[dict[str, Any]] = []
    for title, problem in PROBLEMS.items():
        for label, (name, options) in POLICIES.items():
            figures = row(play(problem, name, options, S, T))
            rows.append({"problem": title, "policy": label, **figures})
            table = pd.DataFrame(rows)
            save(table, asked.out / "violations.csv", None)
            sections = [
                f"## {one}\n\n{_table(part.drop(columns='problem'))}"
                for one, part in table.groupby("problem", sort=False)
            ]
            with atomic_write(asked.out / "RESULTS.md") as file:
                file.write((_HEAD.format(S=S, T=T) + "\n\n".join(sections) + "\n").encode())
            print(title, label, figures, flush=True)


if __name__ == "__main__":
    main()
